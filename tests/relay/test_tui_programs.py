"""Programs that draw on the whole screen, on a host, driven by an app at the hub: opened, typed into, resized and left."""

import shutil
from collections.abc import Callable

import pyte
import pytest
from tests.relay.stage import Stage, Tower, eventually, python

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


class Paper(pyte.Screen):
    """pyte's, which stumbles over private attributes as vim sends them."""

    def select_graphic_rendition(self, *attributes: int, private: bool = False) -> None:
        if not private:
            super().select_graphic_rendition(*attributes)


class Seat:
    """Where a person would sit, in front of a run's terminal."""

    def __init__(self, hub: Tower, app: RelayApp, run: str) -> None:
        self._hub, self._app, self.run = hub, app, run

    async def display(self) -> list[str]:
        """The terminal as somebody sees it who comes only now."""
        told = await self._hub.http.get(f"/runs/{self.run}/screen")
        screen = Paper(told["cols"], told["rows"])
        pyte.Stream(screen).feed(told["text"])
        return list(screen.display)

    async def shows(self, wanted: Callable[[list[str]], bool]) -> list[str]:
        seen: list[str] = []

        async def is_shown() -> bool:
            seen[:] = await self.display()
            return wanted(seen)

        try:
            await eventually(is_shown)
        except TimeoutError:
            pytest.fail("the screen is another:\n" + "\n".join(seen))
        return seen

    async def sees(self, text: str) -> list[str]:
        return await self.shows(lambda display: any(text in line for line in display))

    async def keys(self, text: str) -> None:
        await self._app.command("run.send_stdin", self.run, text=text)

    async def types(self, text: str) -> None:
        await self._app.command("run.send_input", self.run, input_id=self._app.new_id("in"), text=text)

    async def resize(self, cols: int, rows: int) -> None:
        await self._app.command("run.resize", self.run, cols=cols, rows=rows)

    async def exit_code(self) -> int:
        ended = await self._app.next_of("run.exited", self.run)
        row = await self._hub.http.run(self.run)
        assert (row["status"], row["exit_code"]) == ("exited", ended["data"]["exit_code"])
        return int(row["exit_code"])


class Theatre:
    def __init__(self, hub: Tower, host: Tower, app: RelayApp) -> None:
        self.hub, self.host, self.app = hub, host, app

    async def seat(self, command: str, **size: int) -> Seat:
        """120 columns and 40 rows, when no size is given."""
        where = str(self.host.workspace)
        return Seat(self.hub, self.app, await self.app.start(self.host.host_id, command, cwd=where, **size))


@pytest.fixture
async def theatre(stage: Stage) -> Theatre:
    hub = await stage.open_hub()
    host = await stage.real_host("a")
    await stage.online(host.host_id)
    return Theatre(hub, host, await stage.app())


def program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"there is no {name} here")
    return path


async def test_a_file_is_written_with_vim(theatre: Theatre) -> None:
    seat = await theatre.seat(f"{program('vim')} -u NONE -N notes.txt")
    await seat.shows(lambda display: display[1].startswith("~"))
    await seat.keys("i")
    await seat.sees("-- INSERT --")
    await seat.types("first line\rsecond läne 日本")
    display = await seat.sees("second läne")
    assert display[0].rstrip() == "first line"
    await seat.resize(60, 15)
    await seat.shows(lambda display: len(display) == 15 and len(display[0]) == 60 and display[13].startswith("~"))
    await seat.keys("\x1b")
    await seat.shows(lambda display: not any("INSERT" in line for line in display))
    await seat.keys(":1d\r")
    await seat.shows(lambda display: display[0].startswith("second läne"))
    await seat.keys(":wq\r")
    assert await seat.exit_code() == 0
    assert (theatre.host.workspace / "notes.txt").read_text() == "second läne 日本\n"


async def test_vim_can_be_left_with_a_code_of_its_own(theatre: Theatre) -> None:
    seat = await theatre.seat(f"{program('vim')} -u NONE -N")
    await seat.shows(lambda display: display[1].startswith("~"))
    await seat.keys(":cq\r")
    assert await seat.exit_code() == 1


async def test_a_long_file_is_read_with_less(theatre: Theatre) -> None:
    (theatre.host.workspace / "long.txt").write_text("".join(f"this is line {number}\n" for number in range(1, 501)))
    seat = await theatre.seat(f"{program('less')} long.txt")
    display = await seat.sees("this is line 39")
    assert display[0].rstrip() == "this is line 1"
    await seat.keys(" ")
    display = await seat.sees("this is line 78")
    assert display[0].rstrip() == "this is line 40"
    await seat.keys("/line 300\r")
    await seat.shows(lambda display: display[0].rstrip() == "this is line 300")
    await seat.resize(100, 30)
    await seat.shows(lambda display: len(display) == 30 and display[28].rstrip() == "this is line 328")
    await seat.keys("G")
    await seat.sees("this is line 500")
    await seat.keys("q")
    assert await seat.exit_code() == 0


async def test_a_curses_program_sees_keys_and_sizes(theatre: Theatre) -> None:
    seat = await theatre.seat(python(CURSES))
    await seat.sees("size 120x40")
    keys = ("a", "a"), ("\x1bOA", "up"), ("\x1bOD", "left"), ("z", "z")
    for place, (key, _) in enumerate(keys, 1):
        await seat.keys(key)
        await seat.sees("keys " + " ".join(name for _, name in keys[:place]))
    await seat.resize(90, 25)
    await seat.sees("size 90x25")
    display = await seat.sees("keys a up left z")  # the program draws the screen line by line
    assert (len(display), len(display[0])) == (25, 90)
    assert "keys a up left z" in display[2]
    await seat.keys("q")
    assert await seat.exit_code() == 4


async def test_the_hub_knows_the_size_that_a_program_was_started_with(theatre: Theatre) -> None:
    seat = await theatre.seat(python(CURSES), cols=70, rows=18)
    display = await seat.sees("size 70x18")
    assert (len(display), len(display[0])) == (18, 70)
    await seat.keys("q")
    assert await seat.exit_code() == 0


async def test_a_program_that_draws_is_stopped_with_its_children(theatre: Theatre) -> None:
    seat = await theatre.seat(f"{program('less')} +F /etc/hostname")
    await seat.sees("Waiting for data")
    await theatre.app.command("run.stop", seat.run, signal="kill")
    assert await seat.exit_code() != 0


async def test_two_who_come_at_different_times_see_the_same_screen(theatre: Theatre, stage: Stage) -> None:
    (theatre.host.workspace / "long.txt").write_text("".join(f"row {number}\n" for number in range(1, 2_000)))
    seat = await theatre.seat(f"{program('less')} long.txt")
    await seat.sees("row 39")
    early = await stage.app()
    await early.subscribe(seat.run)
    first = await early.next_of("run.screen", seat.run)
    for page in range(2, 30):
        await seat.keys(" ")
        await seat.sees(f"row {39 * page}")
    late = await seat.display()
    last = (await theatre.hub.http.messages(seat.run))[-1]["id"]
    if not early.events(seat.run) or early.events(seat.run)[-1]["id"] < last:
        await early.until(lambda frame: frame.get("id") == last)
    screen = Paper(120, 40)
    stream = pyte.Stream(screen)
    stream.feed(first["data"]["text"])
    for frame in early.events(seat.run):
        if frame["type"] == "run.output":
            stream.feed(frame["data"]["text"])
    assert list(screen.display) == late
    await seat.keys("q")
    assert await seat.exit_code() == 0
