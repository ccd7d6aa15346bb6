"""Programs in terminals: shown live, typed into, left and found again."""

from pathlib import Path

from tests.conformance.daemons import ManagedDaemon
from tests.conftest import StartDaemon
from tests.tui.seats import AppDriver, open_app


def read_screen(app_driver: AppDriver) -> str:
    return "\n".join(app_driver.app.main.terminal.read_lines())


async def test_a_program_is_typed_into_left_running_and_found_again(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace) as seat:
        await seat.write("/exec cat")
        await seat.wait_until(lambda: seat.app.session is not None and seat.app.session.is_program)
        await seat.press(*"hello", "enter")
        await seat.wait_until(lambda: read_screen(seat).count("hello") == 2)
        # Ctrl-Q is the program's while one types into it.
        await seat.press("ctrl+q")
        assert seat.app.is_running
        await seat.press("ctrl+right_square_bracket")
        assert seat.app.main.sessions.has_focus_within
        session_id = seat.app.session.session_id if seat.app.session else ""
    async with open_app(push_daemon, workspace, session_id=session_id) as seat:
        await seat.wait_until(lambda: read_screen(seat).count("hello") == 2)
        await seat.press("ctrl+d")
        await seat.wait_for_text("it has ended with exit code 0")


async def test_a_program_has_the_window_that_it_is_seen_in(push_daemon: ManagedDaemon, workspace: Path) -> None:
    async with open_app(push_daemon, workspace, size=(90, 30)) as seat:
        await seat.write("/exec sh -c 'read x; stty size'")
        await seat.wait_until(lambda: seat.app.session is not None and seat.app.session.is_program)
        view = seat.app.main.terminal
        await seat.wait_until(lambda: (view._screen.cols, view._screen.rows) == (view.size.width, view.size.height))
        await seat.press("enter")
        await seat.wait_until(lambda: f"{view.size.height} {view.size.width}" in read_screen(seat))


async def test_what_a_program_asks_is_answered_where_it_asks_or_through_the_inbox(
    dedicated_daemon: StartDaemon, workspace: Path
) -> None:
    async with open_app(dedicated_daemon(), workspace) as seat:
        ask = 'printf "Proceed? [y/n] "; read x; echo got $x'
        await seat.write(f"/exec sh -c '{ask}; {ask}'")
        await seat.wait_for_text("1 waiting")
        assert seat.app.screen is seat.app.main, "the program's own question is on the screen, and keys are the program's"
        await seat.press("n", "enter")
        await seat.wait_until(lambda: "got n" in read_screen(seat))
        await seat.wait_until(lambda: read_screen(seat).count("Proceed?") == 2 and len(seat.app.inbox) == 1)
        await seat.press("ctrl+right_square_bracket", "ctrl+t", "enter")
        await seat.wait_for_approval()
        await seat.press("y")
        await seat.wait_until(lambda: "got y" in read_screen(seat))
