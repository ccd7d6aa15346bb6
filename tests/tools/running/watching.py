"""How tests see processes: by the pids that they report themselves, by the token in their command line, and as the kernel
shows them."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

from switchtower.tools.processes import proc, watchdog_process


def kill_with_watchdog(daemon: int) -> None:
    """Kills a daemon that cannot leave the rest to its watchdog, so that the next daemon has something to clean up."""
    for child in proc.list_children(daemon):
        with suppress(OSError):
            if os.fsencode(watchdog_process.__file__) in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(child, signal.SIGKILL)
    os.kill(daemon, signal.SIGKILL)


class PidReports:
    """A named pipe into which processes write their pids, so that a test knows they are there."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._text = ""

    async def wait_for_pids(self, at_least: int, *, within: float = 5) -> list[int]:
        """All that have reported so far, once there are enough of them."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._pipe, readable.set)
        try:
            async with asyncio.timeout(within):
                while True:
                    with suppress(BlockingIOError):
                        self._text += os.read(self._pipe, 4096).decode()
                    if self._text.count("\n") >= at_least:
                        return [int(line) for line in self._text.split()]
                    await readable.wait()
                    readable.clear()
        finally:
            loop.remove_reader(self._pipe)

    def close(self) -> None:
        os.close(self._pipe)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def find_processes_with(token: str) -> dict[int, str]:
    """The processes with this in their command line, also those whose first thread alone has ended."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with suppress(OSError):
                for task in (folder / "task").iterdir():
                    words = (task / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if token in words:
                        found[int(folder.name)] = words
    return found


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
