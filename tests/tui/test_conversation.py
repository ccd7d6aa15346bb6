"""A conversation from the first word on: it streams, it is steered, it is cancelled, it is found again."""

from pathlib import Path

from tests.conformance.daemons import ManagedDaemon
from tests.tui.seats import open_app

from switchtower.client.client import DaemonClient
from switchtower.tui.screens.dialogs import TextViewerScreen


async def test_a_session_begins_with_the_first_message_and_not_before(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        client = await DaemonClient.connect(seat.app.settings, start=False)
        assert not [one for one in await client.list_sessions(200) if one.repo.rootPath == str(workspace)]
        await seat.write("say: **good** morning")
        await seat.wait_for_transcript_text("✓ done")
        assert "▌ say: **good** morning" in seat.read_transcript()
        assert "\ngood morning\n" in seat.read_transcript()
        assert [one for one in await client.list_sessions(200) if one.repo.rootPath == str(workspace)]
        client.close()


async def test_thinking_and_tools_are_folded_cards_that_unfold(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("read README.md")
        await seat.wait_until_idle()
        assert "▸ ✓ Read README.md" in seat.read_transcript()
        assert "with two lines" not in seat.read_transcript()
        await seat.press("ctrl+o")
        assert "▾ ✓ Read README.md" in seat.read_transcript()
        assert "with two lines" in seat.read_transcript()


async def test_one_card_is_unfolded_by_keys_and_by_a_click(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("read README.md")
        await seat.wait_until_idle()
        view = seat.app.main.transcript
        view.focus()
        await seat.press("left_square_bracket", "enter")
        assert seat.read_transcript().count("▾") == 1
        await seat.press("enter")
        assert seat.read_transcript().count("▾") == 0
        row = next(at for at, line in enumerate(seat.read_transcript().split("\n")) if "Read README.md" in line and "▸" in line)
        await seat.pilot.click(view, offset=(4, row - view.scroll_offset.y))
        await seat.pilot.pause()
        assert seat.read_transcript().count("▾") == 1


async def test_what_is_written_while_it_works_steers_it(slow_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(slow_daemon, workspace) as seat:
        await seat.write("count 200")
        await seat.wait_until(
            lambda: seat.app.session is not None and seat.app.session.is_running and "1 2" in seat.read_transcript()
        )
        await seat.write("say: enough")
        await seat.wait_until(lambda: seat.app.session is not None and seat.app.session.info.queue)
        assert seat.app.session is not None
        assert [one.text for one in seat.app.session.info.queue] == ["say: enough"]
        await seat.press("escape")
        await seat.wait_for_transcript_text("◌ cancelled")


async def test_escape_cancels_and_leaves_what_was_said(slow_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(slow_daemon, workspace) as seat:
        await seat.write("count 500")
        await seat.wait_until(lambda: "1 2 3" in seat.read_transcript())
        await seat.press("escape")
        await seat.wait_for_transcript_text("◌ cancelled")
        assert "1 2 3" in seat.read_transcript()


async def test_a_refused_message_comes_back_into_the_input(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("/provider nobody-has-this-one")
        seat.app.draft = type(seat.app.draft)(root=str(workspace), provider="nobody-has-this-one")
        await seat.write("hello")
        await seat.wait_until(lambda: seat.app.main.composer.text == "hello")


async def test_a_mistyped_command_stays_in_the_input(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("/modle x")
        await seat.wait_for_notice("did you mean `/model`?")
        assert seat.app.main.composer.text == "/modle x"
        assert seat.app.session is None


async def test_commands_and_files_are_completed(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.wait_until(lambda: "README.md" in seat.app.main.composer.files)
        await seat.press("/", "c", "o", "m")
        await seat.wait_for_text("summarise the conversation")
        await seat.press("tab")
        assert seat.app.main.composer.text == "/compact "
        seat.app.main.composer.set_text("")
        await seat.press("@", "r", "e", "a")
        await seat.wait_until(lambda: seat.app.main.composer.has_offer)
        await seat.press("enter")
        assert seat.app.main.composer.text == "@README.md "


async def test_history_is_walked_with_the_arrows(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("say: one")
        await seat.wait_until_idle()
        seat.app.main.composer.set_text("draft")
        await seat.press("up")
        assert seat.app.main.composer.text == "say: one"
        await seat.press("down")
        assert seat.app.main.composer.text == "draft"


async def test_several_lines_are_one_message(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.press(*"say: one", "ctrl+j", *"say: two", "enter")
        await seat.wait_until_idle()
        assert "▌ say: one\n ▌ say: two".replace(" ▌", "▌") in seat.read_transcript()


async def test_something_to_read_comes_and_goes(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("/policy auto")
        await seat.wait_until(lambda: seat.app.draft.policy == "auto")
        await seat.write("write notes.txt: hello")
        await seat.wait_until_idle()
        for command, shown in (("/session", "policy"), ("/help", "Ctrl-Q"), ("/diff", "+hello")):
            await seat.write(command)
            await seat.wait_until(lambda: isinstance(seat.app.screen, TextViewerScreen))
            await seat.wait_for_text(shown)
            await seat.press("escape")
            assert seat.app.screen is seat.app.main


async def test_undo_takes_back_and_redo_makes_again(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("/policy auto")
        await seat.wait_until(lambda: seat.app.draft.policy == "auto")
        await seat.write("write notes.txt: hello")
        await seat.wait_until_idle()
        assert (workspace / "notes.txt").read_text() == "hello"
        await seat.write("/undo")
        await seat.wait_until(lambda: not (workspace / "notes.txt").exists())
        await seat.wait_until_idle()
        await seat.write("/redo")
        await seat.wait_until(lambda: (workspace / "notes.txt").exists())


async def test_a_session_is_renamed_and_found_in_the_list(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("say: hello")
        await seat.wait_until_idle()
        await seat.write("/rename the orchard")
        await seat.wait_until(lambda: any(row.title == "the orchard" for row in seat.app.rows))
        await seat.wait_for_text("the orchard")
        await seat.press("ctrl+n")
        assert seat.app.session is None
        await seat.write("say: other")
        await seat.wait_for_transcript_text("other")
        await seat.write("/session orchard")
        await seat.wait_for_transcript_text("hello")


async def test_the_list_is_filtered_by_typing_and_opens_what_is_chosen(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        for text in ("say: apple", "say: pear"):
            await seat.press("ctrl+n")
            await seat.write(text)
            await seat.wait_for_transcript_text("✓ done")
        await seat.wait_until(lambda: {row.title for row in seat.app.rows} >= {"say: apple", "say: pear"})
        await seat.press("ctrl+b", "slash", *"say: apple", "enter", "enter")
        await seat.wait_for_transcript_text("▌ say: apple")
        assert seat.app.session is not None


async def test_the_model_is_chosen_from_a_list(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        seat.app.draft = type(seat.app.draft)(root=str(workspace))
        await seat.write("/model")
        await seat.wait_for_text("Which model?")
        await seat.press(*"demo", "enter")
        await seat.wait_until(lambda: seat.app.draft.provider == "demo")


async def test_what_this_daemon_cannot_do_is_said(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("/undo")
        await seat.wait_for_notice("there is no session yet")


async def test_the_look_can_be_turned_and_is_remembered(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("/theme light")
        assert not seat.app.current_theme.dark
    async with open_app(push_daemon, workspace) as seat:
        assert not seat.app.current_theme.dark
        await seat.write("/theme dark")
        assert seat.app.current_theme.dark


async def test_leaving_says_how_to_come_back(slow_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(slow_daemon, workspace) as seat:
        await seat.write("count 300")
        await seat.wait_until(lambda: seat.app.session is not None and seat.app.session.is_running)
        await seat.write("/exit")
        assert seat.app.return_code == 0
        async with open_app(
            slow_daemon, workspace, session_id=seat.app.session.session_id if seat.app.session else None
        ) as other:
            await other.wait_until(lambda: other.app.session is not None and other.app.session.is_running)
            await other.press("escape")
            await other.wait_for_transcript_text("◌ cancelled")


async def test_a_fork_goes_on_with_what_was_said(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("say: apple")
        await seat.wait_for_transcript_text("✓ done")
        first = seat.app.session.session_id if seat.app.session else ""
        await seat.write("/fork the other way")
        await seat.wait_until(lambda: seat.app.session is not None and seat.app.session.session_id != first)
        await seat.wait_until(lambda: {row.title for row in seat.app.rows} >= {"say: apple", "the other way"})


async def test_a_session_is_deleted_only_after_a_yes(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("say: apple")
        await seat.wait_for_transcript_text("✓ done")
        await seat.write("/delete")
        await seat.wait_for_text("for good?")
        await seat.press("n")
        assert seat.app.session is not None
        doomed = seat.app.session.session_id
        await seat.write("/delete")
        await seat.wait_for_text("for good?")
        await seat.press("y")
        await seat.wait_until(lambda: seat.app.session is None and doomed not in {row.session_id for row in seat.app.rows})


async def test_text_is_found_in_all_sessions(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("say: a quince tree")
        await seat.wait_for_transcript_text("✓ done")
        await seat.press("ctrl+n")
        await seat.write("/search quince")
        await seat.wait_for_text("was found in")
        await seat.press("enter")
        await seat.wait_for_transcript_text("a quince tree")
        await seat.write("/search pomegranate")
        await seat.wait_for_notice("nobody said")


async def test_a_session_is_written_to_a_file(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("say: for the record")
        await seat.wait_for_transcript_text("✓ done")
        await seat.write("/export html out.html")
        await seat.wait_for_notice("out.html")
        assert "for the record" in (workspace / "out.html").read_text()
        await seat.write("/export")
        await seat.wait_until(lambda: list(workspace.glob("session-*.md")))
        await seat.write("/export markdown README.md/x.md")
        await seat.wait_for_notice("cannot write")


async def test_what_is_written_while_a_session_starts_belongs_to_it(slow_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(slow_daemon, workspace) as seat:
        for text in ("count 200", "say: second"):
            seat.app.main.composer.set_text(text)
            seat.app.main.composer.submit()
        # The run may read the second message before or after its first words; both are correct.
        await seat.wait_for_transcript_text("Message queued: say: second")
        await seat.wait_until(lambda: [row.root for row in seat.app.rows].count(str(workspace)) == 1)
        await seat.press("escape")


async def test_the_session_chosen_last_is_the_one_that_opens(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        session_ids = []
        for text in ("say: quick", "say: slow"):
            await seat.press("ctrl+n")
            await seat.write(text)
            await seat.wait_for_transcript_text("✓ done")
            session_ids.append(seat.app.session.session_id if seat.app.session else "")
        for session_id in (*session_ids, session_ids[0]):
            seat.app.run_in_background(seat.app.opener.open_session(session_id))
        await seat.wait_for_transcript_text("▌ say: quick")
        await seat.write("say: once more")
        await seat.wait_for_transcript_text("once more")


async def test_a_preset_is_chosen_for_a_new_session(push_daemon: ManagedDaemon, workspace: Path) -> None:
    (workspace / ".tower/presets").mkdir(parents=True)
    (workspace / ".tower/presets/orchard.toml").write_text('description = "For trees"\npolicy = "read-only"\n')
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("/preset orchard")
        await seat.wait_until(lambda: seat.app.draft.preset == "orchard")
        await seat.write("say: hello")
        await seat.wait_for_transcript_text("✓ done")
        assert seat.app.session is not None
        assert seat.app.session.info.preset == "orchard"
