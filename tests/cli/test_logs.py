"""`tower logs`: the end of the daemon's log, and what comes, through every rotation."""

import json
import logging.handlers
import os
import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.conftest import TowerCommand
from tests.cli.inside import InProcessCommand
from tests.cli.terminal import TerminalDriver

from switchtower.cli.commands import diagnostics

LINE = b"2026-03-01 10:00:00,123 INFO switchtower.daemon.app: listening"


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> InProcessCommand:
    return InProcessCommand(tmp_path, monkeypatch, capfdbinary, dict(os.environ))


@pytest.fixture
def log(in_process: InProcessCommand) -> Path:
    path = in_process.home / "logs/tower.log"
    path.parent.mkdir()
    return path


def make_lines(first: int, last: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(first, last + 1))


def test_the_last_lines_are_printed_byte_for_byte(in_process: InProcessCommand, log: Path) -> None:
    log.write_bytes(make_lines(1, 100) + b"caf\xe9 \x1b[31m\n")

    assert in_process("logs").stdout == make_lines(52, 100) + b"caf\xe9 \x1b[31m\n"
    assert in_process("logs", "-n", "2").stdout == b"line 100\ncaf\xe9 \x1b[31m\n"
    assert in_process("logs", "-n", "0").stdout == b""
    assert in_process("logs", "-n", "5000").stdout == log.read_bytes()


def test_older_files_are_read_where_the_newest_has_too_few(in_process: InProcessCommand, log: Path) -> None:
    log.with_name("tower.log.2").write_bytes(make_lines(1, 4))
    log.with_name("tower.log.1").write_bytes(make_lines(5, 6))
    log.write_bytes(make_lines(7, 8))

    assert in_process("logs", "-n", "3").stdout == make_lines(6, 8)
    assert in_process("logs", "-n", "6").stdout == make_lines(3, 8)
    assert in_process("logs").stdout == make_lines(1, 8)


def test_a_line_that_has_not_ended_is_a_line(in_process: InProcessCommand, log: Path) -> None:
    log.write_bytes(b"one\ntwo")

    assert in_process("logs", "-n", "1").stdout == b"two\n"


def test_json_has_the_parts_of_an_entry_and_messages_for_what_goes_on_from_it(in_process: InProcessCommand, log: Path) -> None:
    log.write_bytes(LINE + b"\nTraceback (most recent call last):\n\xff\n")

    assert [json.loads(line) for line in in_process("logs", "--json").stdout.splitlines()] == [
        {
            "time": "2026-03-01 10:00:00,123",
            "level": "INFO",
            "logger": "switchtower.daemon.app",
            "message": "listening",
        },
        {"message": "Traceback (most recent call last):"},
        {"message": "\ufffd"},
    ]


def test_without_a_log_it_says_what_makes_one(in_process: InProcessCommand) -> None:
    ended = in_process("logs")

    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr == (
        f"tower: there is no log at `{in_process.home}/logs/tower.log`; hint: a daemon writes it, start one with `tower serve`\n"
    )


@pytest.mark.parametrize("count", ["-1", "many", "1000001"])
def test_a_number_of_lines_that_is_none_is_a_wrong_command_line(in_process: InProcessCommand, count: str) -> None:
    assert in_process("logs", f"--lines={count}").code == 64


def test_a_terminal_is_not_steered_by_the_log(tower_command: TowerCommand) -> None:
    (tower_command.home / "logs").mkdir()
    (tower_command.home / "logs/tower.log").write_bytes(b"red \x1b[31m\n")

    terminal = TerminalDriver(tower_command, "logs")

    assert terminal.end() == 0
    assert terminal.shown == "red \\x1b[31m\r\n"


def test_the_real_daemon_s_log_is_found(shared_command: TowerCommand) -> None:
    shared_command("sessions")

    entries = [json.loads(line) for line in shared_command("logs", "--json", "-n", "1000").stdout.splitlines()]

    assert any(entry.get("message", "").startswith("listening on ") for entry in entries)


def test_following_goes_through_a_rotation_and_ctrl_c_ends_it_well(tower_command: TowerCommand) -> None:
    (tower_command.home / "logs").mkdir()
    path = tower_command.home / "logs/tower.log"
    path.write_bytes(make_lines(1, 2))
    process = tower_command.start("logs", "-f", "-n", "1")
    assert process.stdout.readline() == b"line 2\n"

    path.rename(path.with_name("tower.log.1"))
    path.write_bytes(b"line 3\n")
    assert process.stdout.readline() == b"line 3\n"
    with path.open("ab") as more:
        more.write(b"line 4\n")
    assert process.stdout.readline() == b"line 4\n"

    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 0


def test_following_waits_for_a_log_that_is_not_there_yet(tower_command: TowerCommand) -> None:
    process = tower_command.start("logs", "-f", "--json")
    # Made under another name: it is there whole, or not at all.
    (tower_command.home / "logs").mkdir()
    (tower_command.home / "logs/new").write_bytes(LINE + b"\n")
    (tower_command.home / "logs/new").rename(tower_command.home / "logs/tower.log")

    assert json.loads(process.stdout.readline())["message"] == "listening"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


# The book itself


def read(follower: diagnostics.LogFollower, count: int) -> list[bytes]:
    return list(islice(follower.follow_lines(), count))


def test_several_rotations_between_two_looks_miss_nothing(tmp_path: Path) -> None:
    path = tmp_path / "tower.log"
    path.write_bytes(b"first\n")
    follower = diagnostics.LogFollower(path)
    assert list(follower.read_tail(10, following=True)) == [b"first"]

    handler = logging.handlers.RotatingFileHandler(path, maxBytes=30, backupCount=3)
    for number in range(4):
        handler.emit(logging.LogRecord("x", 20, "", 0, f"{number} is longer than half", None, None))
    handler.close()

    assert read(follower, 4) == [b"%d is longer than half" % number for number in range(4)]
    follower.close()


def test_files_that_went_away_unread_are_told_of(tmp_path: Path) -> None:
    path = tmp_path / "tower.log"
    path.write_bytes(b"first\n")
    follower = diagnostics.LogFollower(path)
    list(follower.read_tail(1, following=True))
    path.unlink()
    path.write_bytes(b"second\n")
    missed: list[int] = []

    found = list(islice(follower.follow_lines(lambda: missed.append(1)), 1))

    assert (found, missed) == ([b"second"], [1])
    follower.close()


def test_a_log_that_was_emptied_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "tower.log"
    path.write_bytes(make_lines(1, 5))
    follower = diagnostics.LogFollower(path)
    list(follower.read_tail(0, following=True))
    path.write_bytes(b"anew\n")

    assert read(follower, 1) == [b"anew"]
    follower.close()


def test_half_a_line_is_told_when_it_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "tower.log"
    path.write_bytes(b"one\ntw")
    follower = diagnostics.LogFollower(path)
    assert list(follower.read_tail(1, following=True)) == [b"one"]
    with path.open("ab") as more:
        more.write(b"o\nthree\n")

    assert read(follower, 2) == [b"two", b"three"]
    follower.close()


def test_an_endless_line_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "tower.log"
    path.write_bytes(b"")
    follower = diagnostics.LogFollower(path)
    list(follower.read_tail(0, following=True))
    path.write_bytes(b"x" * (3 * diagnostics.MAX_LINE_BYTES))

    pieces: Iterator[bytes] = follower.follow_lines()

    assert len(next(pieces)) <= diagnostics.MAX_LINE_BYTES + 64 * 1024
    follower.close()


@given(
    st.lists(st.binary(max_size=30).filter(lambda line: not set(line) & set(b"\r\n")), max_size=20),
    st.integers(0, 25),
    st.booleans(),
)
def test_the_tail_is_what_the_lines_end_with(tmp_path_factory: Any, content: list[bytes], count: int, ended: bool) -> None:
    path = tmp_path_factory.mktemp("log") / "tower.log"
    whole = b"\n".join(content) + (b"\n" if ended else b"")
    path.write_bytes(whole)
    every = whole.split(b"\n")
    expected = every if every[-1] else every[:-1]

    follower = diagnostics.LogFollower(path)

    assert list(follower.read_tail(count)) == expected[max(0, len(expected) - count) :]
    follower.close()
