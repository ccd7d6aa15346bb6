"""The last screen of a program in a terminal, from its events: what painted it whole, and all output since. Does no I/O."""

import re
from typing import TYPE_CHECKING

from switchtower.cli.exporting import blocks
from switchtower.client.frames import PushEvent
from switchtower.protocols.push import extensions, messages

if TYPE_CHECKING:
    from switchtower.tui.state.screen import ProgramScreen

_SIZE = re.compile(r"(\d{1,4})x(\d{1,4})")


class LastScreen:
    def __init__(self, terminal: extensions.Terminal) -> None:
        self._size = terminal.cols, terminal.rows
        self._screen = self._make_screen()
        self._ts = 0
        self._ended: list[blocks.ExportBlock] = []

    def _make_screen(self) -> "ProgramScreen":
        from switchtower.tui.state.screen import ProgramScreen

        return ProgramScreen(*self._size)

    def add_event(self, event: PushEvent) -> None:
        self._ts = event.ts
        match event.payload:
            case messages.Status(_, "Screen", str(detail)):
                self._screen = self._make_screen()
                self._screen.feed(detail)
            case messages.Status(_, "Tool output", str(detail)):
                self._screen.feed(detail)
            case messages.Status(_, "Terminal resized", str(detail)) if found := _SIZE.fullmatch(detail):
                self._size = int(found[1]), int(found[2])
                self._screen.resize(*self._size)
            case messages.RunComplete(_, outcome, summary, acceptance):
                self._ended = [
                    blocks.ExportedRunEnd(ts=event.ts, outcome=outcome, summary=summary, results=acceptance.results, done=True)
                ]

    def finish(self) -> list[blocks.ExportBlock]:
        lines = self._screen.read_lines()
        while lines and not lines[-1]:
            lines.pop()
        return [blocks.ExportedScreen(ts=self._ts, lines=lines, done=True), *self._ended]
