"""A process that is forked from a warm Python is a process like any other."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.warm import processes

TIMEOUT = 60


def make_python_command(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def test_its_arguments_folder_variables_and_streams_are_its_own(tmp_path: Path) -> None:
    code = "import os, sys; print(sys.argv[1:], os.getcwd(), sorted(os.environ), sys.stdin.read()); print('bad', file=sys.stderr)"
    ours = {name: value for name, value in os.environ.items() if name.startswith(("PYTHON", "LC_", "LANG"))}
    ended = processes.run(
        make_python_command(code, "a", "b c"),
        input=b"said",
        cwd=tmp_path,
        env={**ours, "ONE": "1"},
        capture_output=True,
        timeout=TIMEOUT,
    )
    assert ended.stdout.decode() == f"['a', 'b c'] {tmp_path} {sorted([*ours, 'ONE'])} said\n"
    assert (ended.stderr, ended.returncode) == (b"bad\n", 0)


@pytest.mark.parametrize(
    ("code", "expected"),
    [("raise SystemExit(7)", 7), ("1/0", 1), ("import os; os._exit(9)", 9), ("import os; os.kill(os.getpid(), 15)", -15)],
    ids=["exit", "exception", "at once", "signal"],
)
def test_its_exit_code_is_told(code: str, expected: int) -> None:
    assert processes.run(make_python_command(code), capture_output=True, timeout=TIMEOUT).returncode == expected


def test_what_it_registers_for_its_end_happens() -> None:
    code = "import atexit, threading; atexit.register(print, 'last'); threading.Thread(target=print, args=['first']).start()"
    assert processes.run(make_python_command(code), capture_output=True, timeout=TIMEOUT).stdout == b"first\nlast\n"


def test_it_is_polled_signalled_and_waited_for() -> None:
    with processes.Popen(make_python_command("import time; time.sleep(600)")) as process:
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait(TIMEOUT) == -signal.SIGKILL
        assert process.poll() == -signal.SIGKILL
        process.kill()  # too late, and no harm


def test_it_holds_nothing_open_that_another_was_given() -> None:
    looks = "import os; print([fd for fd in range(1_000) if os.path.exists(f'/proc/self/fd/{fd}')])"
    with processes.Popen(
        make_python_command("input()"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as other:
        read, write = os.pipe()
        shown = processes.run(make_python_command(looks), capture_output=True, pass_fds=[write], timeout=TIMEOUT).stdout
        os.close(write)
        assert shown.decode() == f"{[0, 1, 2, write]}\n"
        assert os.read(read, 1) == b"", "the end that was passed on ended with the process"
        os.close(read)
        other.communicate(b"\n", timeout=TIMEOUT)


def test_none_of_our_rooms_is_loaded_before_it_asks_for_them() -> None:
    code = "import sys; print([name for name in sys.modules if name.startswith('switchtower')])"
    assert processes.run(make_python_command(code), capture_output=True, timeout=TIMEOUT).stdout == b"[]\n"


def test_variables_that_python_reads_at_its_start_are_obeyed() -> None:
    code = "import sys; print(sys.stdout.encoding, sys.flags.optimize)"
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONOPTIMIZE": "2"}
    assert (
        processes.run(make_python_command(code), env=environment, capture_output=True, timeout=TIMEOUT).stdout == b"iso8859-1 2\n"
    )


async def test_its_streams_can_be_awaited() -> None:
    echo = make_python_command("import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)")
    process = processes.Popen(echo, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    reader, writer = await processes.open_streams(process)
    async with asyncio.timeout(TIMEOUT):
        writer.write(b"one\n")
        assert await reader.readline() == b"ONE\n"
        writer.close()
        await writer.wait_closed()
        assert await reader.read() == b""
    assert process.wait(TIMEOUT) == 0
