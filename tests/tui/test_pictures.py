"""Each screen as a picture. What changed is seen in the SVG; `DRAW=1 pytest tests/tui` draws them anew."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tui import people, still, told
from tests.tui.pictures import snap_compare as snap_compare
from textual.pilot import Pilot
from textual.widgets import Input

from switchtower import config
from switchtower.tui import preferences

Compare = Callable[..., bool]
SMALL, LARGE = (80, 24), (200, 60)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> config.Settings:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("COLORFGBG", raising=False)
    return config.Settings(home=tmp_path)


async def wait_until_settled(pilot: Pilot[Any]) -> None:
    """The session is open, all of it is drawn, and what waits for a decision is asked."""
    app = pilot.app
    assert isinstance(app, still.FrozenApp)

    def is_busy() -> bool:
        if app._first_session is not None and app.session is None:
            return True
        if app.session is not None and not app.session.transcript.blocks:
            return True
        asked = app.session is not None and (app.inbox.get_next(app.session.session_id) or app.session.get_next_dialog())
        return bool(asked) and len(app.screen_stack) == 1

    async with asyncio.timeout(60):
        while is_busy():
            await pilot.pause()
    await pilot.pause()


def type_before(*keys: str, text: str = "", opens: bool = False) -> Callable[[Pilot[Any]], Any]:
    """`opens`: the last key brings up another screen."""

    async def act(pilot: Pilot[Any]) -> None:
        await wait_until_settled(pilot)
        if text:
            assert isinstance(pilot.app, still.FrozenApp)
            pilot.app.main.composer.set_text(text)
            await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await wait_until_settled(pilot)
        async with asyncio.timeout(60):
            while opens and len(pilot.app.screen_stack) == 1:
                await pilot.pause()
        if learning := [worker for worker in pilot.app.workers if worker.group == "place" and not worker.is_finished]:
            await pilot.app.workers.wait_for_complete(learning)
        for field in pilot.app.screen.query(Input):
            field.cursor_blink = False
        await pilot.pause()
        await pilot.pause()

    return act


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_the_first_screen(snap_compare: Compare, settings: config.Settings, size: tuple[int, int]) -> None:
    assert snap_compare(still.make_frozen_app(settings, session_id=None), terminal_size=size, run_before=type_before())


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_conversation(snap_compare: Compare, settings: config.Settings, size: tuple[int, int]) -> None:
    assert snap_compare(still.make_frozen_app(settings), terminal_size=size, run_before=type_before())


def test_a_conversation_in_the_light(snap_compare: Compare, settings: config.Settings) -> None:
    (settings.data_dir / "tui").mkdir(parents=True)
    (settings.data_dir / "tui/theme").write_text(preferences.LIGHT.name)
    assert snap_compare(still.make_frozen_app(settings), terminal_size=(120, 40), run_before=type_before())


def test_a_conversation_without_colour(snap_compare: Compare, settings: config.Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(still.make_frozen_app(settings), terminal_size=(120, 40), run_before=type_before())


def test_everything_unfolded(snap_compare: Compare, settings: config.Settings) -> None:
    assert snap_compare(still.make_frozen_app(settings), terminal_size=(120, 60), run_before=type_before("ctrl+o"))


def test_the_sessions_over_a_small_screen(snap_compare: Compare, settings: config.Settings) -> None:
    assert snap_compare(still.make_frozen_app(settings), terminal_size=SMALL, run_before=type_before("ctrl+b"))


def test_commands_are_offered(snap_compare: Compare, settings: config.Settings) -> None:
    assert snap_compare(still.make_frozen_app(settings), terminal_size=SMALL, run_before=type_before(text="/re"))


RUNNING = people.make_session_info(state="running", activeRunId=told.RUN)
EDIT = {"path": "press.py", "tool": "edit_file", "diff": still.DIFF, "always": "allow edit_file press.py"}
WRITING = [told.make_user_message("fix it"), told.make_approval(**EDIT)]
DELETING = [
    told.make_user_message("tidy up"),
    told.make_approval(command="rm -rf build \u202e&& ls", tool="run", cwd="/work", destructive=True),
]


@pytest.mark.parametrize(("story", "size"), [(WRITING, SMALL), (DELETING, LARGE)], ids=["writing", "deleting"])
def test_an_approval(snap_compare: Compare, settings: config.Settings, size: tuple[int, int], story: list[told.Told]) -> None:
    app = still.make_frozen_app(settings, about=RUNNING, story=story)
    assert snap_compare(app, terminal_size=size, run_before=type_before(opens=True))


def test_an_approval_with_a_reason_against_it(snap_compare: Compare, settings: config.Settings) -> None:
    app = still.make_frozen_app(settings, about=RUNNING, story=DELETING)
    assert snap_compare(app, terminal_size=SMALL, run_before=type_before("n", *"keep it"))


def test_the_inbox(snap_compare: Compare, settings: config.Settings) -> None:
    app = still.make_frozen_app(settings, about=RUNNING, story=[*DELETING, told.make_approval("appr_2", **EDIT)])
    assert snap_compare(app, terminal_size=SMALL, run_before=type_before("escape", "escape", "ctrl+t"))


def test_a_question_of_the_agent(snap_compare: Compare, settings: config.Settings) -> None:
    detail = '{"dialogId":"dlg_1","method":"select","message":"Both are ripe.","options":["apple","pear"],"expiresAt":1}'
    story = [told.make_user_message("pick one"), told.make_warning("DIALOG_OPENED", "Which fruit?", detail)]
    app = still.make_frozen_app(settings, about=RUNNING, story=story)
    assert snap_compare(app, terminal_size=SMALL, run_before=type_before(opens=True))


@pytest.mark.parametrize("command", ["help", "diff", "session", "model", "rename", "delete", "policy"])
def test_what_a_command_shows(snap_compare: Compare, settings: config.Settings, command: str) -> None:
    assert snap_compare(
        still.make_frozen_app(settings), terminal_size=SMALL, run_before=type_before("enter", text=f"/{command}", opens=True)
    )


def test_a_program(snap_compare: Compare, settings: config.Settings) -> None:
    about = people.make_session_info(state="running", activeRunId=told.RUN, engine="pty", terminal=people.PROGRAM, title="htop")
    painted = "\x1b[2J\x1b[H\x1b[1;32mCPU\x1b[0m [|||||   45%]\r\n\x1b[7mPID USER\x1b[0m\r\n  1 root"
    story = [told.make_status("Program started", "htop"), told.make_status("Screen", painted, "tool")]
    assert snap_compare(still.make_frozen_app(settings, about=about, story=story), terminal_size=SMALL, run_before=type_before())
