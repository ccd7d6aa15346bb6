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

TIMEOUT = 60.0
TOWER = [sys.executable, "-m", "switchtower"]


class TmuxTerminal:
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
        self._run_tmux("new-session", "-d", *self._size, "-c", str(self.home / "ws"), command)

    def close(self) -> None:
        self._run_tmux("kill-server", check=False)

    def press(self, *keys: str) -> None:
        self._run_tmux("send-keys", *keys)

    def write(self, text: str) -> None:
        self._run_tmux("send-keys", "-l", text)
        self._run_tmux("send-keys", "Enter")

    def read_screen(self) -> str:
        return self._run_tmux("capture-pane", "-p")

    def wait_for_screen(self, *texts: str, without: str | None = None) -> str:
        """Waits until all of them are on the screen together, and the other is not."""
        deadline = time.monotonic() + TIMEOUT
        while not all(text in (screen := self.read_screen()) for text in texts) or (without is not None and without in screen):
            assert time.monotonic() < deadline, f"{texts} never came; the screen is\n{screen}"
            time.sleep(0.02)  # nobody tells when a terminal has been painted
        return screen

    def wait_for_approval(self, command: str) -> None:
        """Keys that were meant for something else decide nothing: they count when it has been quiet for a moment."""
        self.wait_for_screen("Esc: decide later", command, without="keys are off")

    def run_tower(self, *arguments: str) -> str:
        ended = subprocess.run(
            [*TOWER, *arguments], env=self.environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def _run_tmux(self, *arguments: str, check: bool = True) -> str:
        command = ["tmux", "-L", self._name, "-f", "/dev/null", *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=check).stdout


@pytest.fixture
def tmux_terminal() -> Iterator[TmuxTerminal]:
    home = Path(tempfile.mkdtemp(prefix="tw-", dir="/tmp"))
    (home / "ws").mkdir()
    terminal = TmuxTerminal(home)
    yield terminal
    terminal.close()
    subprocess.run([*TOWER, "stop"], env=terminal.environment, capture_output=True, timeout=TIMEOUT, check=False)
    shutil.rmtree(home)


def test_a_day_at_the_terminal(tmux_terminal: TmuxTerminal) -> None:
    # Started with nothing: two questions, which can be skipped, and the daemon comes along.
    tmux_terminal.open()
    tmux_terminal.wait_for_screen("this is the first start here")
    tmux_terminal.write("s")
    tmux_terminal.wait_for_screen("connected", "What shall we do?")

    # A prompt, and a question before anything runs.
    tmux_terminal.write("run: echo one-two > made.txt && cat made.txt")
    tmux_terminal.wait_for_approval("echo one-two > made.txt")
    assert not (tmux_terminal.home / "ws" / "made.txt").exists()
    tmux_terminal.press("y")
    tmux_terminal.wait_for_screen("one-two", "done in")
    assert (tmux_terminal.home / "ws" / "made.txt").read_text() == "one-two\n"

    # Denied: it does not run.
    tmux_terminal.write("run: touch never.txt")
    tmux_terminal.wait_for_approval("touch never.txt")
    tmux_terminal.press("d")
    tmux_terminal.wait_for_screen("denied")
    assert not (tmux_terminal.home / "ws" / "never.txt").exists()

    # Cancelled in the middle.
    tmux_terminal.write("run: sleep 1000")
    tmux_terminal.wait_for_approval("sleep 1000")
    tmux_terminal.press("y")
    tmux_terminal.wait_for_screen("Esc cancels", without="Esc: decide later")
    tmux_terminal.press("Escape")
    tmux_terminal.wait_for_screen("cancelled")

    # The daemon goes and comes back; the place is kept.
    tmux_terminal.run_tower("stop")
    tmux_terminal.wait_for_screen("The run was cancelled", "daemon away")
    tmux_terminal.press("C-r")
    tmux_terminal.wait_for_screen("The run was cancelled", "● connected")
    tmux_terminal.write("say: still here")
    tmux_terminal.wait_for_screen("still here", "done in")

    # Left, and taken up where it was.
    tmux_terminal.press("C-q")
    tmux_terminal.wait_for_screen("ended with 0")
    tmux_terminal.close()
    assert "completed" in tmux_terminal.run_tower("sessions")
    tmux_terminal.open("ui", "last")
    tmux_terminal.wait_for_screen("still here", "connected")
