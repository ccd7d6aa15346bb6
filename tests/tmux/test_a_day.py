"""The real program in a real terminal, driven as a person would: keys in, a screen out. Everything behind it is real too."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux; `apt-get install tmux`")

PATIENCE = 60.0
TOWER = [sys.executable, "-m", "switchtower"]


class Terminal:
    """One window of a tmux of its own."""

    def __init__(self, home: Path, *, cols: int = 100, rows: int = 30) -> None:
        self.home = home
        self._name = f"tower-{home.name}"
        self._size = ["-x", str(cols), "-y", str(rows)]

    @property
    def environment(self) -> dict[str, str]:
        others = {name: value for name, value in os.environ.items() if not name.startswith(("TOWER_", "PUSHD_", "TMUX"))}
        ours = {"TOWER_HOME": str(self.home), "TOWER_HTTP": "127.0.0.1:0", "TOWER_PI": "off", "TOWER_DEMO_DELAY_MS": "0"}
        ours |= {"TOWER_SANDBOX": "local", "TOWER_TRUSTED_FOLDERS": "/"}
        return {**others, **ours, "TERM": "xterm-256color", "LANG": "C.UTF-8"}

    def open(self, *arguments: str) -> None:
        """The window stays when the program has ended, so that its last words can be read."""
        command = f"{shlex.join([*TOWER, *arguments])}; echo ended with $?; exec sleep 1000"
        self._tmux("new-session", "-d", *self._size, "-c", str(self.home / "ws"), command)

    def close(self) -> None:
        self._tmux("kill-server", check=False)

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def write(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)
        self._tmux("send-keys", "Enter")

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def shows(self, *texts: str, without: str | None = None) -> str:
        """Waits until all of them are on the screen together, and the other is not."""
        deadline = time.monotonic() + PATIENCE
        while not all(text in (screen := self.screen()) for text in texts) or (without is not None and without in screen):
            assert time.monotonic() < deadline, f"{texts} never came; the screen is\n{screen}"
            time.sleep(0.02)  # nobody tells when a terminal has been painted
        return screen

    def asks(self, command: str) -> None:
        """Keys that were meant for something else decide nothing: they count when it has been quiet for a moment."""
        self.shows("Esc: decide later", command, without="keys are off")

    def tower(self, *arguments: str) -> str:
        ended = subprocess.run(
            [*TOWER, *arguments], env=self.environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def _tmux(self, *arguments: str, check: bool = True) -> str:
        command = ["tmux", "-L", self._name, "-f", "/dev/null", *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=check).stdout


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    home = Path(tempfile.mkdtemp(prefix="tw-", dir="/tmp"))
    (home / "ws").mkdir()
    terminal = Terminal(home)
    yield terminal
    terminal.close()
    subprocess.run([*TOWER, "stop"], env=terminal.environment, capture_output=True, timeout=PATIENCE, check=False)
    shutil.rmtree(home)


def test_a_day_at_the_terminal(terminal: Terminal) -> None:
    # Started with nothing: two questions, which can be skipped, and the daemon comes along.
    terminal.open()
    terminal.shows("this is the first start here")
    terminal.write("s")
    terminal.shows("connected", "What shall we do?")

    # A prompt, and a question before anything runs.
    terminal.write("run: echo one-two > made.txt && cat made.txt")
    terminal.asks("echo one-two > made.txt")
    assert not (terminal.home / "ws" / "made.txt").exists()
    terminal.press("y")
    terminal.shows("one-two", "done in")
    assert (terminal.home / "ws" / "made.txt").read_text() == "one-two\n"

    # Denied: it does not run.
    terminal.write("run: touch never.txt")
    terminal.asks("touch never.txt")
    terminal.press("d")
    terminal.shows("denied")
    assert not (terminal.home / "ws" / "never.txt").exists()

    # Cancelled in the middle.
    terminal.write("run: sleep 1000")
    terminal.asks("sleep 1000")
    terminal.press("y")
    terminal.shows("Esc cancels", without="Esc: decide later")
    terminal.press("Escape")
    terminal.shows("cancelled")

    # The daemon goes and comes back; the place is kept.
    terminal.tower("stop")
    terminal.shows("The run was cancelled", "daemon away")
    terminal.press("C-r")
    terminal.shows("The run was cancelled", "● connected")
    terminal.write("say: still here")
    terminal.shows("still here", "done in")

    # Left, and taken up where it was.
    terminal.press("C-q")
    terminal.shows("ended with 0")
    terminal.close()
    assert "completed" in terminal.tower("sessions")
    terminal.open("ui", "last")
    terminal.shows("still here", "connected")
