"""The person's side of a pseudo-terminal that is stdin, stdout and stderr of one command. `stdout` may be something else."""

import fcntl
import os
import pty
import signal
import struct
import termios
import threading
from typing import Any

from tests.cli.conftest import TowerCommand
from tests.warm import processes

TIMEOUT = 60


class TerminalDriver:
    def __init__(
        self, tower: TowerCommand, *arguments: str, stdout: Any = None, size: tuple[int, int] | None = None, **environment: str
    ) -> None:
        self._screen, side = pty.openpty()
        if size is not None:
            self._set_size(*size)
        self.settings_before = termios.tcgetattr(self._screen)
        """Asked at this side, they are those of the other."""
        self.settings_after: Any = None
        self.process = processes.Popen(
            tower.build_command(*arguments),
            stdin=side,
            stdout=side if stdout is None else stdout,
            stderr=side,
            cwd=tower.folder,
            env={**tower.effective_environment, "TERM": "xterm", **environment},
            start_new_session=True,
        )
        os.close(side)
        # Whoever waits for something on its screen must not wait for ever.
        watchdog = threading.Timer(TIMEOUT, self.process.kill)
        watchdog.daemon = True
        watchdog.start()
        self.shown = ""

    def wait_for(self, text: str, *, times: int = 1) -> None:
        while self.shown.count(text) < times:
            self._read(text)

    def wait_for_prompt(self) -> None:
        """Until the screen ends with what a question asks with."""
        while not self.shown.endswith(("> ", "? ", "] ")):
            self._read("a question")

    def _read(self, awaited: str) -> None:
        piece = os.read(self._screen, 65_536).decode(errors="replace")
        assert piece, f"`{awaited}` was never shown: {self.shown}"
        self.shown += piece

    def type(self, line: str) -> None:
        self.press(line.encode() + b"\n")

    def press(self, keys: bytes) -> None:
        os.write(self._screen, keys)

    def interrupt(self) -> None:
        """As Ctrl-C would; this terminal controls nobody."""
        self.process.send_signal(signal.SIGINT)

    def resize(self, cols: int, rows: int) -> None:
        self._set_size(cols, rows)
        self.process.send_signal(signal.SIGWINCH)

    def _set_size(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    @property
    def is_raw(self) -> bool:
        return not termios.tcgetattr(self._screen)[3] & termios.ICANON

    def end(self) -> int:
        try:
            while piece := os.read(self._screen, 65_536):
                self.shown += piece.decode(errors="replace")
        except OSError:
            pass  # a terminal whose programs have all gone
        self.settings_after = termios.tcgetattr(self._screen)
        os.close(self._screen)
        return self.process.wait(timeout=60)
