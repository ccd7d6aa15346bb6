"""Programs in terminals: shown live, typed into, left and found again."""

from pathlib import Path

from tests.conformance.daemons import Daemon
from tests.conftest import StartDaemon
from tests.tui.seats import Seat, sit


def screen(seat: Seat) -> str:
    return "\n".join(seat.app.main.terminal.lines())


async def test_a_program_is_typed_into_left_running_and_found_again(pushd: Daemon, workspace: Path) -> None:
    async with sit(pushd, workspace) as seat:
        await seat.write("/exec cat")
        await seat.until(lambda: seat.app.open is not None and seat.app.open.is_program)
        await seat.press(*"hello", "enter")
        await seat.until(lambda: screen(seat).count("hello") == 2)
        # Ctrl-Q is the program's while one types into it.
        await seat.press("ctrl+q")
        assert seat.app.is_running
        await seat.press("ctrl+right_square_bracket")
        assert seat.app.main.sessions.has_focus_within
        session_id = seat.app.open.session_id if seat.app.open else ""
    async with sit(pushd, workspace, session_id=session_id) as seat:
        await seat.until(lambda: screen(seat).count("hello") == 2)
        await seat.press("ctrl+d")
        await seat.until_shown("it has ended with exit code 0")


async def test_a_program_has_the_window_that_it_is_seen_in(pushd: Daemon, workspace: Path) -> None:
    async with sit(pushd, workspace, size=(90, 30)) as seat:
        await seat.write("/exec sh -c 'read x; stty size'")
        await seat.until(lambda: seat.app.open is not None and seat.app.open.is_program)
        view = seat.app.main.terminal
        await seat.until(lambda: (view._screen.cols, view._screen.rows) == (view.size.width, view.size.height))
        await seat.press("enter")
        await seat.until(lambda: f"{view.size.height} {view.size.width}" in screen(seat))


async def test_what_a_program_asks_is_answered_where_it_asks_or_through_the_inbox(
    own_daemon: StartDaemon, workspace: Path
) -> None:
    async with sit(own_daemon(), workspace) as seat:
        ask = 'printf "Proceed? [y/n] "; read x; echo got $x'
        await seat.write(f"/exec sh -c '{ask}; {ask}'")
        await seat.until_shown("1 waiting")
        assert seat.app.screen is seat.app.main, "the program's own question is on the screen, and keys are the program's"
        await seat.press("n", "enter")
        await seat.until(lambda: "got n" in screen(seat))
        await seat.until(lambda: screen(seat).count("Proceed?") == 2 and len(seat.app.inbox) == 1)
        await seat.press("ctrl+right_square_bracket", "ctrl+t", "enter")
        await seat.until_asked()
        await seat.press("y")
        await seat.until(lambda: "got y" in screen(seat))
