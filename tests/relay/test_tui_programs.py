"""Programs that draw on the whole screen, on a host, driven by an app at the hub: opened, typed into, resized and left."""

import shutil
from collections.abc import Callable

import pyte
import pytest
from tests.relay.stage import RelayNetwork, RestartableDaemon, make_python_command, wait_until

from switchtower.testing.relay_client import RelayApp

CURSES = r"""
import curses

def main(screen):
    curses.curs_set(0)
    keys = []
    while True:
        rows, cols = screen.getmaxyx()
        screen.erase()
        screen.box()
        screen.addstr(1, 2, f"size {cols}x{rows}")
        screen.addstr(2, 2, "keys " + " ".join(keys[-5:]), curses.A_BOLD)
        screen.refresh()
        key = screen.getch()
        if key == ord("q"):
            return len(keys)
        if key == curses.KEY_RESIZE:
            curses.update_lines_cols()
            continue
        keys.append({curses.KEY_UP: "up", curses.KEY_LEFT: "left"}.get(key, chr(key) if 32 <= key < 127 else str(key)))

raise SystemExit(curses.wrapper(main))
"""


class TolerantScreen(pyte.Screen):
    """pyte's, which stumbles over private attributes as vim sends them."""

    def select_graphic_rendition(self, *attributes: int, private: bool = False) -> None:
        if not private:
            super().select_graphic_rendition(*attributes)


class RemoteTerminalDriver:
    """Where a person would sit, in front of a run's terminal."""

    def __init__(self, hub: RestartableDaemon, app: RelayApp, run: str) -> None:
        self._hub, self._app, self.run = hub, app, run

    async def read_display(self) -> list[str]:
        """The terminal as somebody sees it who comes only now."""
        told = await self._hub.http.get(f"/runs/{self.run}/screen")
        screen = TolerantScreen(told["cols"], told["rows"])
        pyte.Stream(screen).feed(told["text"])
        return list(screen.display)

    async def wait_for_screen(self, wanted: Callable[[list[str]], bool]) -> list[str]:
        seen: list[str] = []

        async def is_shown() -> bool:
            seen[:] = await self.read_display()
            return wanted(seen)

        try:
            await wait_until(is_shown)
        except TimeoutError:
            pytest.fail("the screen is another:\n" + "\n".join(seen))
        return seen

    async def wait_for_text(self, text: str) -> list[str]:
        return await self.wait_for_screen(lambda display: any(text in line for line in display))

    async def send_keys(self, text: str) -> None:
        await self._app.send_command("run.send_stdin", self.run, text=text)

    async def type_text(self, text: str) -> None:
        await self._app.send_command("run.send_input", self.run, input_id=self._app.make_id("in"), text=text)

    async def resize(self, cols: int, rows: int) -> None:
        await self._app.send_command("run.resize", self.run, cols=cols, rows=rows)

    async def wait_for_exit(self) -> int:
        ended = await self._app.next_of_type("run.exited", self.run)
        row = await self._hub.http.get_run(self.run)
        assert (row["status"], row["exit_code"]) == ("exited", ended["data"]["exit_code"])
        return int(row["exit_code"])


class RemoteTerminalHarness:
    def __init__(self, hub: RestartableDaemon, host: RestartableDaemon, app: RelayApp) -> None:
        self.hub, self.host, self.app = hub, host, app

    async def open_driver(self, command: str, **size: int) -> RemoteTerminalDriver:
        """120 columns and 40 rows, when no size is given."""
        where = str(self.host.workspace)
        return RemoteTerminalDriver(self.hub, self.app, await self.app.start(self.host.host_id, command, cwd=where, **size))


@pytest.fixture
async def remote_terminal_harness(relay_network: RelayNetwork) -> RemoteTerminalHarness:
    hub = await relay_network.open_hub()
    host = await relay_network.start_host("a")
    await relay_network.wait_online(host.host_id)
    return RemoteTerminalHarness(hub, host, await relay_network.connect_app())


def find_program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"there is no {name} here")
    return path


async def test_a_file_is_written_with_vim(remote_terminal_harness: RemoteTerminalHarness) -> None:
    seat = await remote_terminal_harness.open_driver(f"{find_program('vim')} -u NONE -N notes.txt")
    await seat.wait_for_screen(lambda display: display[1].startswith("~"))
    await seat.send_keys("i")
    await seat.wait_for_text("-- INSERT --")
    await seat.type_text("first line\rsecond läne 日本")
    display = await seat.wait_for_text("second läne")
    assert display[0].rstrip() == "first line"
    await seat.resize(60, 15)
    await seat.wait_for_screen(lambda display: len(display) == 15 and len(display[0]) == 60 and display[13].startswith("~"))
    await seat.send_keys("\x1b")
    await seat.wait_for_screen(lambda display: not any("INSERT" in line for line in display))
    await seat.send_keys(":1d\r")
    await seat.wait_for_screen(lambda display: display[0].startswith("second läne"))
    await seat.send_keys(":wq\r")
    assert await seat.wait_for_exit() == 0
    assert (remote_terminal_harness.host.workspace / "notes.txt").read_text() == "second läne 日本\n"


async def test_vim_can_be_left_with_a_code_of_its_own(remote_terminal_harness: RemoteTerminalHarness) -> None:
    seat = await remote_terminal_harness.open_driver(f"{find_program('vim')} -u NONE -N")
    await seat.wait_for_screen(lambda display: display[1].startswith("~"))
    await seat.send_keys(":cq\r")
    assert await seat.wait_for_exit() == 1


async def test_a_long_file_is_read_with_less(remote_terminal_harness: RemoteTerminalHarness) -> None:
    (remote_terminal_harness.host.workspace / "long.txt").write_text(
        "".join(f"this is line {number}\n" for number in range(1, 501))
    )
    seat = await remote_terminal_harness.open_driver(f"{find_program('less')} long.txt")
    display = await seat.wait_for_text("this is line 39")
    assert display[0].rstrip() == "this is line 1"
    await seat.send_keys(" ")
    display = await seat.wait_for_text("this is line 78")
    assert display[0].rstrip() == "this is line 40"
    await seat.send_keys("/line 300\r")
    await seat.wait_for_screen(lambda display: display[0].rstrip() == "this is line 300")
    await seat.resize(100, 30)
    await seat.wait_for_screen(lambda display: len(display) == 30 and display[28].rstrip() == "this is line 328")
    await seat.send_keys("G")
    await seat.wait_for_text("this is line 500")
    await seat.send_keys("q")
    assert await seat.wait_for_exit() == 0


async def test_a_curses_program_sees_keys_and_sizes(remote_terminal_harness: RemoteTerminalHarness) -> None:
    seat = await remote_terminal_harness.open_driver(make_python_command(CURSES))
    await seat.wait_for_text("size 120x40")
    keys = ("a", "a"), ("\x1bOA", "up"), ("\x1bOD", "left"), ("z", "z")
    for place, (key, _) in enumerate(keys, 1):
        await seat.send_keys(key)
        await seat.wait_for_text("keys " + " ".join(name for _, name in keys[:place]))
    await seat.resize(90, 25)
    await seat.wait_for_text("size 90x25")
    display = await seat.wait_for_text("keys a up left z")  # the program draws the screen line by line
    assert (len(display), len(display[0])) == (25, 90)
    assert "keys a up left z" in display[2]
    await seat.send_keys("q")
    assert await seat.wait_for_exit() == 4


async def test_the_hub_knows_the_size_that_a_program_was_started_with(remote_terminal_harness: RemoteTerminalHarness) -> None:
    seat = await remote_terminal_harness.open_driver(make_python_command(CURSES), cols=70, rows=18)
    display = await seat.wait_for_text("size 70x18")
    assert (len(display), len(display[0])) == (18, 70)
    await seat.send_keys("q")
    assert await seat.wait_for_exit() == 0


async def test_a_program_that_draws_is_stopped_with_its_children(remote_terminal_harness: RemoteTerminalHarness) -> None:
    seat = await remote_terminal_harness.open_driver(f"{find_program('less')} +F /etc/hostname")
    await seat.wait_for_text("Waiting for data")
    await remote_terminal_harness.app.send_command("run.stop", seat.run, signal="kill")
    assert await seat.wait_for_exit() != 0


async def test_two_who_come_at_different_times_see_the_same_screen(
    remote_terminal_harness: RemoteTerminalHarness, relay_network: RelayNetwork
) -> None:
    (remote_terminal_harness.host.workspace / "long.txt").write_text("".join(f"row {number}\n" for number in range(1, 2_000)))
    seat = await remote_terminal_harness.open_driver(f"{find_program('less')} long.txt")
    await seat.wait_for_text("row 39")
    early = await relay_network.connect_app()
    await early.subscribe(seat.run)
    first = await early.next_of_type("run.screen", seat.run)
    for page in range(2, 30):
        await seat.send_keys(" ")
        await seat.wait_for_text(f"row {39 * page}")
    late = await seat.read_display()
    last = (await remote_terminal_harness.hub.http.list_messages(seat.run))[-1]["id"]
    if not early.list_events(seat.run) or early.list_events(seat.run)[-1]["id"] < last:
        await early.wait_for(lambda frame: frame.get("id") == last)
    screen = TolerantScreen(120, 40)
    stream = pyte.Stream(screen)
    stream.feed(first["data"]["text"])
    for frame in early.list_events(seat.run):
        if frame["type"] == "run.output":
            stream.feed(frame["data"]["text"])
    assert list(screen.display) == late
    await seat.send_keys("q")
    assert await seat.wait_for_exit() == 0
