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
from switchtower.tui import themes

Compare = Callable[..., bool]
SMALL, LARGE = (80, 24), (200, 60)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> config.Settings:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("COLORFGBG", raising=False)
    return config.Settings(home=tmp_path)


async def settled(pilot: Pilot[Any]) -> None:
    """The session is open, all of it is drawn, and what waits for a decision is asked."""
    app = pilot.app
    assert isinstance(app, still.StillApp)

    def is_busy() -> bool:
        if app._first_session is not None and app.open is None:
            return True
        if app.open is not None and not app.open.transcript.blocks:
            return True
        asked = app.open is not None and (app.inbox.next_to_show(app.open.session_id) or app.open.next_dialog())
        return bool(asked) and len(app.screen_stack) == 1

    async with asyncio.timeout(60):
        while is_busy():
            await pilot.pause()
    await pilot.pause()


def after(*keys: str, text: str = "", opens: bool = False) -> Callable[[Pilot[Any]], Any]:
    """`opens`: the last key brings up another screen."""

    async def act(pilot: Pilot[Any]) -> None:
        await settled(pilot)
        if text:
            assert isinstance(pilot.app, still.StillApp)
            pilot.app.main.composer.put(text)
            await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await settled(pilot)
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
    assert snap_compare(still.app(settings, session_id=None), terminal_size=size, run_before=after())


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_conversation(snap_compare: Compare, settings: config.Settings, size: tuple[int, int]) -> None:
    assert snap_compare(still.app(settings), terminal_size=size, run_before=after())


def test_a_conversation_in_the_light(snap_compare: Compare, settings: config.Settings) -> None:
    (settings.data_dir / "tui").mkdir(parents=True)
    (settings.data_dir / "tui/theme").write_text(themes.LIGHT.name)
    assert snap_compare(still.app(settings), terminal_size=(120, 40), run_before=after())


def test_a_conversation_without_colour(snap_compare: Compare, settings: config.Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(still.app(settings), terminal_size=(120, 40), run_before=after())


def test_everything_unfolded(snap_compare: Compare, settings: config.Settings) -> None:
    assert snap_compare(still.app(settings), terminal_size=(120, 60), run_before=after("ctrl+o"))


def test_the_sessions_over_a_small_screen(snap_compare: Compare, settings: config.Settings) -> None:
    assert snap_compare(still.app(settings), terminal_size=SMALL, run_before=after("ctrl+b"))


def test_commands_are_offered(snap_compare: Compare, settings: config.Settings) -> None:
    assert snap_compare(still.app(settings), terminal_size=SMALL, run_before=after(text="/re"))


RUNNING = people.about(state="running", activeRunId=told.RUN)
EDIT = {"path": "press.py", "tool": "edit_file", "diff": still.DIFF, "always": "allow edit_file press.py"}
WRITING = [told.said("fix it"), told.approval(**EDIT)]
DELETING = [told.said("tidy up"), told.approval(command="rm -rf build \u202e&& ls", tool="run", cwd="/work", destructive=True)]


@pytest.mark.parametrize(("story", "size"), [(WRITING, SMALL), (DELETING, LARGE)], ids=["writing", "deleting"])
def test_an_approval(snap_compare: Compare, settings: config.Settings, size: tuple[int, int], story: list[told.Told]) -> None:
    app = still.app(settings, about=RUNNING, story=story)
    assert snap_compare(app, terminal_size=size, run_before=after(opens=True))


def test_an_approval_with_a_reason_against_it(snap_compare: Compare, settings: config.Settings) -> None:
    app = still.app(settings, about=RUNNING, story=DELETING)
    assert snap_compare(app, terminal_size=SMALL, run_before=after("n", *"keep it"))


def test_the_inbox(snap_compare: Compare, settings: config.Settings) -> None:
    app = still.app(settings, about=RUNNING, story=[*DELETING, told.approval("appr_2", **EDIT)])
    assert snap_compare(app, terminal_size=SMALL, run_before=after("escape", "escape", "ctrl+t"))


def test_a_question_of_the_agent(snap_compare: Compare, settings: config.Settings) -> None:
    detail = '{"dialogId":"dlg_1","method":"select","message":"Both are ripe.","options":["apple","pear"],"expiresAt":1}'
    story = [told.said("pick one"), told.warning("DIALOG_OPENED", "Which fruit?", detail)]
    app = still.app(settings, about=RUNNING, story=story)
    assert snap_compare(app, terminal_size=SMALL, run_before=after(opens=True))


@pytest.mark.parametrize("command", ["help", "diff", "session", "model", "rename", "delete", "policy"])
def test_what_a_command_shows(snap_compare: Compare, settings: config.Settings, command: str) -> None:
    assert snap_compare(still.app(settings), terminal_size=SMALL, run_before=after("enter", text=f"/{command}", opens=True))


def test_a_program(snap_compare: Compare, settings: config.Settings) -> None:
    about = people.about(state="running", activeRunId=told.RUN, engine="pty", terminal=people.PROGRAM, title="htop")
    painted = "\x1b[2J\x1b[H\x1b[1;32mCPU\x1b[0m [|||||   45%]\r\n\x1b[7mPID USER\x1b[0m\r\n  1 root"
    story = [told.status("Program started", "htop"), told.status("Screen", painted, "tool")]
    assert snap_compare(still.app(settings, about=about, story=story), terminal_size=SMALL, run_before=after())
