"""The daemon's own files and sockets from inside a sandbox, and the keys of the user's login."""

import asyncio
import ctypes
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from switchtower import config
from switchtower.tools.processes import commands
from switchtower.tools.sandboxes import launch, sandbox, seccomp

PYTHON = str(Path(sys.executable).resolve())
"""That of a virtual environment may lie below `/tmp`, which is another folder in a sandbox."""
TIMEOUT = 60
WHY_NOT = sandbox.probe_sandbox("bubblewrap")
with_bubblewrap = pytest.mark.skipif(WHY_NOT is not None, reason=f"no bubblewrap here: {WHY_NOT}")
with_numbers = pytest.mark.skipif(seccomp.find_architecture() is None, reason=f"no system calls known for {platform.machine()}")

Run = Callable[..., Coroutine[Any, Any, commands.FinishedCommand]]


@pytest.fixture
def disk() -> Iterator[Path]:
    """In a short place, for the sake of sockets' names, and not in a temporary folder, of which a sandbox has another."""
    base = Path.home() if os.access(Path.home(), os.W_OK) else Path("/var/tmp")
    folder = base / f".tower-{uuid4().hex[:6]}"
    (folder / "work").mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def run_sandboxed(disk: Path) -> Run:
    async def run(command: str | list[str], *, network: bool = False) -> commands.FinishedCommand:
        run_id = f"run_{uuid4().hex}"
        try:
            async with asyncio.timeout(TIMEOUT):
                return await commands.run_command(
                    command,
                    cwd=str(disk / "work"),
                    run_id=run_id,
                    timeout_s=TIMEOUT,
                    grace_s=0.1,
                    sandbox=sandbox.choose_sandbox("bubblewrap", network=network),
                )
        finally:
            commands.kill_marked(run_id)

    return run


CONNECT = """
import socket, sys
for path in sys.argv[1:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            socket.socket(socket.AF_UNIX, kind).connect(path)
            print("reached", path)
        except OSError as error:
            print(error.strerror)
"""


@with_bubblewrap
@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("place", ["work/.tower", "work/a/b/tower", "tower"])
async def test_the_daemons_files_and_sockets_are_out_of_reach(
    place: str, network: bool, disk: Path, run_sandboxed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = disk / place
    monkeypatch.setenv("TOWER_HOME", str(home))
    for variable in ("TOWER_SOCKET", "PUSHD_SOCKET"):
        monkeypatch.delenv(variable, raising=False)
    settings = config.Settings(home=home)
    sockets = [settings.default_socket, settings.default_host_socket, settings.pi_socket, disk / "work/elsewhere.sock"]
    for folder in settings.folders:
        Path(folder).mkdir(parents=True, exist_ok=True)
    token = settings.data_dir / "owner.token"
    token.write_text("hush")
    settings.config_file.write_text("# mine\n")
    (disk / "work/connect.py").write_text(CONNECT)
    with ExitStack() as opened:
        for path in sockets:
            path.parent.mkdir(parents=True, exist_ok=True)
            listener = opened.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            listener.listen()
        control = subprocess.run([PYTHON, disk / "work/connect.py", *sockets], capture_output=True, text=True)
        assert control.stdout.count("reached") == len(sockets)

        monkeypatch.setattr(sandbox, "_hidden", tuple(sockets))
        reached = await run_sandboxed([PYTHON, "connect.py", *map(str, sockets)], network=network)
        read = await run_sandboxed(f"cat '{token}' '{settings.config_file}'; grep -rs hush '{disk}'", network=network)
        top = Path(place).parts[1] if place.startswith("work/") else "none"
        exchange = (
            f"mv {top} old; mkdir -p '{settings.config_file.parent}'; echo 'sandbox = \"local\"' > '{settings.config_file}'"
        )
        await run_sandboxed(exchange, network=network)

    assert "reached" not in reached.output
    assert "hush" not in read.output
    assert "# mine" not in read.output
    assert settings.config_file.read_text() == "# mine\n"
    assert token.read_text() == "hush"


@with_bubblewrap
async def test_abstract_sockets_are_those_of_the_network(run_sandboxed: Run) -> None:
    """The daemon has none. Without the network none can be reached; with it all can, as the documentation says."""
    name = f"tower-test-{uuid4().hex}"
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}'); print('reached')"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()

        assert "Connection refused" in (await run_sandboxed([PYTHON, "-c", connect])).output
        assert (await run_sandboxed([PYTHON, "-c", connect], network=True)).output == "reached\n"


# Keys


LOOK_FOR_KEY = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
number = int(sys.argv[1])
found = libc.syscall(ctypes.c_long(number), ctypes.c_long(10), ctypes.c_long(-3), b"user", sys.argv[2].encode(), ctypes.c_long(0))
print("found" if found > 0 else "nothing")
"""

IN_NEW_SESSION = """
import ctypes, subprocess, sys
from switchtower.tools.sandboxes import launch, seccomp
libc = ctypes.CDLL(None, use_errno=True)
numbers, name, look = seccomp.find_architecture().numbers, sys.argv[1], sys.argv[2]
assert libc.syscall(ctypes.c_long(numbers["keyctl"]), ctypes.c_long(1), None) > 0
assert libc.syscall(ctypes.c_long(numbers["add_key"]), b"user", name.encode(), b"secret", ctypes.c_long(6), ctypes.c_long(-3)) > 0
argv = [sys.executable, "-c", look, str(numbers["keyctl"]), name]
def by(start, words):
    process = start(words, stdout=subprocess.PIPE)
    return process.communicate()[0].decode().strip()
pending = [*argv, launch.PendingArgument()]
print(by(subprocess.Popen, argv), by(launch.popen, pending), by(launch.popen, argv), by(subprocess.Popen, argv))
"""


def is_keyring_reachable() -> bool:
    here = seccomp.find_architecture()
    return here is not None and ctypes.CDLL(None).syscall(here.numbers["keyctl"], 0, -3, 1) > 0


@with_numbers
@pytest.mark.skipif(not is_keyring_reachable(), reason="this container has no keys")
def test_a_sandboxed_process_does_not_hold_the_session_keyring_of_the_user() -> None:
    """Seen without the filter, which refuses the call. Other processes of the daemon, and the daemon itself, keep their keys."""
    argv = [sys.executable, "-c", IN_NEW_SESSION, f"tower-{uuid4().hex}", LOOK_FOR_KEY]

    shown = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert shown.stdout.split() == ["found", "nothing", "found", "found"], shown.stderr


@with_bubblewrap
async def test_keys_are_not_listed_inside(run_sandboxed: Run) -> None:
    assert (await run_sandboxed("cat /proc/keys /proc/key-users")).output == ""


@with_bubblewrap
def test_the_word_that_is_replaced_at_the_start_is_there_once(tmp_path: Path) -> None:
    words = sandbox.choose_sandbox("bubblewrap").wrap(["true"], str(tmp_path))

    assert sum(isinstance(word, launch.PendingArgument) for word in words) == 1
