"""`tower doctor` checks everything that a daemon needs and names remedies; `tower logs` prints the daemon's log files. Both only
read.

The newest log is at its path; older ones have the suffixes `.1`, `.2` …. After a rotation the open file stays open, so its rest
is read before the next file is opened.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from switchtower.cli import console, output
from switchtower.settings.sources import ConfigError

if TYPE_CHECKING:
    from switchtower.cli.doctor import checks


_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command()
@click.option("--deep", is_flag=True, help="Also start your MCP servers for a moment, and see whether the hub can be reached.")
@click.option("--json", "as_json", is_flag=True, help="Print one object: ok, and each check with its status, detail and remedy.")
def doctor(deep: bool, as_json: bool) -> int:
    """Look at everything that the daemon needs. Each line is `ok`, or `warn` or `fail` with a remedy.

    Models are those of the running daemon, as `tower models` lists them; of keys only the place they come from is shown. Exits
    with 0 when nothing fails, and with 1 when something does.

    \b
    Example:
      tower doctor
      tower doctor --json | jq '.checks[] | select(.status != "ok")'
    """
    import msgspec

    found: list[checks.Finding] = []
    for one in _collect_findings(deep=deep):
        found.append(one)
        if not as_json:
            _print_finding(one)
    fails, warns = (sum(one.status == status for one in found) for status in ("fail", "warn"))
    if as_json:
        output.write_line(msgspec.json.encode({"ok": not fails, "checks": found}))
    else:
        console.print_line(f"{len(found)} checks: {fails} failed, {warns} with a warning")
    return console.ExitStatus.FAILED if fails else console.ExitStatus.OK


def _collect_findings(*, deep: bool) -> "Iterator[checks.Finding]":
    from switchtower import config
    from switchtower.cli.doctor import checks, services

    yield from checks.check_machine()
    try:
        settings = config.load()
    except ConfigError as problem:
        yield checks.report_failure("configuration", problem.message, problem.hint)
        return  # without the settings the locations of the other parts are unknown
    there = settings.config_file.exists()
    yield checks.report_ok("configuration", f"{settings.config_file}{'' if there else ' is not there: the defaults hold'}")
    yield checks.check_disk(settings)
    yield from _run_guarded("home", checks.check_home(settings))
    yield from _run_guarded("parts", services.check_services(settings, deep=deep))


def _run_guarded(name: str, look: "Iterator[checks.Finding]") -> "Iterator[checks.Finding]":
    """Turns an `OSError`, for example for a file that disappears or is not readable, into a finding, so that other checks still
    run."""
    from switchtower.cli.doctor import checks

    try:
        yield from look
    except OSError as problem:
        yield checks.report_failure(name, f"{problem.strerror or problem}: {problem.filename or '-'}", "see who owns it")


def _print_finding(one: "checks.Finding") -> None:
    line = console.escape_unprintable(one.detail if one.remedy is None else f"{one.detail}; hint: {one.remedy}")
    status = f"{one.status:<4}"
    if console.supports_colour(1):
        status = console.paint(status, _COLOURS[one.status])
    output.write_line(f"{status}  {one.name:<15} {' '.join(line.splitlines())}")


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with what is logged from now on; Ctrl-C ends it.")
@click.option(
    "-n", "--lines", "count", type=click.IntRange(0, 1_000_000), default=50, metavar="N", help="How many; 50 by default."
)
@click.option("--json", "as_json", is_flag=True, help="Print one object a line: time, level, logger, message.")
def logs(follow: bool, count: int, as_json: bool) -> int:
    """Print the last N lines of the daemon's log. Secrets were hidden when it was written.

    With --json a line that goes on from the one before it, as in a traceback, has a message only. When the log is rotated
    while it is followed, no line is missed.

    \b
    Example:
      tower logs -n 200
      tower logs -f
      tower logs --json | jq 'select(.level == "WARNING")'
    """
    from switchtower import config

    path = config.load().log_path
    if not follow and not list_log_files(path):
        raise click.ClickException(f"there is no log at `{path}`; hint: a daemon writes it, start one with `tower serve`")
    last = LogFollower(path)
    try:
        for line in last.read_tail(count, following=follow):
            _print_log_line(line, as_json=as_json)
        if follow:
            for line in last.follow_lines(_print_missed):
                _print_log_line(line, as_json=as_json)
    except KeyboardInterrupt:
        pass  # the usual end of following
    except OSError as problem:
        raise click.ClickException(f"`{path}` cannot be read: {problem.strerror}; hint: see whose file it is") from None
    finally:
        last.close()
    return console.ExitStatus.OK


def _print_missed() -> None:
    console.print_line("the log went away while it was read; lines may be missing", "yellow")


def _print_log_line(line: bytes, *, as_json: bool) -> None:

    if as_json:
        import msgspec

        output.write_line(msgspec.json.encode(parse_entry(line)))
    elif output.is_terminal():
        output.write_line(console.escape_unprintable(line.decode(errors="replace")))
    else:
        output.write_line(line)


_BLOCK_BYTES = 64 * 1024
_POLL_INTERVAL = 0.1
_MAX_FILES = 20
_MAX_OPEN_ATTEMPTS = 3
"""The maximum number of attempts: a single one can miss a file that is being renamed."""
MAX_LINE_BYTES = 1024 * 1024
_ENTRY = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ([A-Z]+) ([\w.]+): (.*)", re.DOTALL)


def list_log_files(path: Path) -> list[Path]:
    """Lists the existing log files, newest first."""
    older = [path.with_name(f"{path.name}.{number}") for number in range(1, _MAX_FILES)]
    return [file for file in (path, *older) if file.exists()]


def parse_entry(line: bytes) -> dict[str, str]:
    """Splits a line into its parts. A line that does not start an entry is only a message."""
    text = line.decode(errors="replace")
    if (parts := _ENTRY.fullmatch(text)) is None:
        return {"message": text}
    return dict(zip(("time", "level", "logger", "message"), parts.groups(), strict=True))


class LogFollower:
    """Reads a log: `read_tail` first, then `follow_lines`; together they miss no line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: BinaryIO | None = None
        self._rest = b""

    def close(self) -> None:
        if self._open is not None:
            self._open.close()

    def read_tail(self, count: int, *, following: bool = False) -> Iterator[bytes]:
        """Yields the last lines, also from older files if the newest has too few. With `following`, an incomplete line is left
        for `follow_lines`."""
        self._open = _open_file(self._path)
        newest: list[bytes] = []
        if self._open is not None:
            end = os.fstat(self._open.fileno()).st_size
            newest = _read_last_lines(self._open, end, count + following)
            self._open.seek(end)
            if following and newest and not newest[-1].endswith(b"\n"):
                self._rest = newest.pop()
        older: list[bytes] = []
        for file in list_log_files(self._path):
            if file != self._path and (wanted := count - len(older) - len(newest)) > 0:
                with file.open("rb") as content:
                    older = _read_last_lines(content, os.fstat(content.fileno()).st_size, wanted) + older
        lines = [*older, *newest]
        yield from (line.rstrip(b"\r\n") for line in lines[max(0, len(lines) - count) :])

    def follow_lines(self, on_missed: Callable[[], None] = lambda: None) -> Iterator[bytes]:
        """Yields new lines forever. It calls `on_missed` when files disappeared before they could be read."""
        while True:
            if self._open is not None:
                yield from self._read_new_lines()
            following = self._open_next_file(on_missed)
            if following is None:
                time.sleep(_POLL_INTERVAL)
                continue
            if self._open is not None:
                yield from self._read_new_lines()  # lines written before the rotation
                if self._rest:
                    yield self._rest
                    self._rest = b""
                self._open.close()
            self._open = following

    def _read_new_lines(self) -> Iterator[bytes]:
        assert self._open is not None
        if os.fstat(self._open.fileno()).st_size < self._open.tell():
            self._open.seek(0)  # the file was truncated, not rotated
            self._rest = b""
        while block := self._open.read(_BLOCK_BYTES):
            *lines, self._rest = (self._rest + block).split(b"\n")
            yield from (line.rstrip(b"\r") for line in lines)
            if len(self._rest) > MAX_LINE_BYTES:
                yield self._rest
                self._rest = b""

    def _open_next_file(self, on_missed: Callable[[], None]) -> BinaryIO | None:
        """Opens the file after the current one; None when it does not exist yet."""
        if self._open is None:
            return _open_file(self._path)
        ours = os.fstat(self._open.fileno())
        for _ in range(_MAX_OPEN_ATTEMPTS):
            newer: list[Path] = []
            for file in list_log_files(self._path):
                try:
                    status = file.stat()
                except FileNotFoundError:
                    continue
                if (status.st_dev, status.st_ino) == (ours.st_dev, ours.st_ino):
                    return _open_file(newer[-1]) if newer else None
                if status.st_mtime_ns >= ours.st_mtime_ns:
                    newer.append(file)
        if not newer:
            return None
        on_missed()
        return _open_file(newer[-1])


def _open_file(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _read_last_lines(file: BinaryIO, end: int, count: int) -> list[bytes]:
    """Returns the lines with their line ends. It reads backwards, no further than needed."""
    blocks: list[bytes] = []
    found, start = 0, end
    while start > 0 and found <= count:
        step = min(_BLOCK_BYTES, start)
        start -= step
        file.seek(start)
        blocks.append(file.read(step))
        found += blocks[-1].count(b"\n")
    *whole, rest = b"".join(reversed(blocks)).split(b"\n")
    lines = [line + b"\n" for line in whole] + ([rest] if rest else [])
    return lines[max(0, len(lines) - count) :]
