"""The filter of system calls: what it answers, by an interpreter for each architecture, and what the kernel answers to real
processes with it and without it."""

import asyncio
import ctypes
import errno
import json
import os
import platform
import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec import Struct

from switchtower.tools.processes import commands
from switchtower.tools.sandboxes import launch, sandbox, seccomp

PYTHON = str(Path(sys.executable).resolve())
"""That of a virtual environment may lie below `/tmp`, which is another folder in a sandbox."""
TIMEOUT = 60
CORPUS = Path(__file__).parent / "corpus/sandbox_calls.jsonl"
WHY_NOT = sandbox.probe_sandbox("bubblewrap")
with_bubblewrap = pytest.mark.skipif(WHY_NOT is not None, reason=f"no bubblewrap here: {WHY_NOT}")
with_filter = pytest.mark.skipif(seccomp.find_architecture() is None, reason=f"no filter for {platform.machine()}")

Run = Callable[..., Coroutine[Any, Any, commands.FinishedCommand]]


class SystemCallCase(Struct, frozen=True):
    case: str
    call: str
    arguments: tuple[int, ...]
    inside: str
    """The name of an error, or `allowed`."""
    only: str | None = None
    """The one architecture that has the call."""
    outside: bool = True
    """Whether the control run may make the call."""


def read_corpus() -> list[SystemCallCase]:
    return [
        SystemCallCase(**{**line, "arguments": tuple(line["arguments"])})
        for line in map(json.loads, CORPUS.read_text().splitlines())
    ]


CASES = read_corpus()


# The program, interpreted


def interpret(program: bytes, architecture: int, number: int, arguments: tuple[int, ...]) -> int:
    """What the kernel would get from it. Covers the instructions that a filter of ours can have."""
    words = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("<iIQ6Q", ctypes.c_int(number).value, architecture, 0, *(word % 2**64 for word in words))
    instructions = list(struct.iter_unpack("<HBBI", program))
    accumulator = 0
    place = 0
    while True:
        code, if_true, if_false, value = instructions[place]
        place += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x15:
                place += if_true if accumulator == value else if_false
            case 0x35:
                place += if_true if accumulator >= value else if_false
            case 0x45:
                place += if_true if accumulator & value else if_false
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


def answer(architecture: seccomp.Architecture, number: int, arguments: tuple[int, ...] = (), *, audit: int | None = None) -> str:
    action = interpret(seccomp.build_filter(architecture), audit or architecture.audit, number, arguments)
    if action == 0x7FFF0000:
        return "allowed"
    assert action & 0xFFFF0000 == 0x00050000, f"neither allowed nor refused with an error: {action:#x}"
    return errno.errorcode[action & 0xFFFF]


@pytest.mark.parametrize("architecture", seccomp.ARCHITECTURES, ids=lambda one: one.name)
@pytest.mark.parametrize("case", CASES, ids=lambda one: one.case)
def test_the_filter_answers_each_call_of_the_corpus(case: SystemCallCase, architecture: seccomp.Architecture) -> None:
    if case.only not in (None, architecture.name):
        assert case.call not in architecture.numbers
        return
    assert answer(architecture, architecture.numbers[case.call], case.arguments) == case.inside


@pytest.mark.parametrize("architecture", seccomp.ARCHITECTURES, ids=lambda one: one.name)
def test_each_refused_call_is_in_the_corpus_and_all_other_numbers_are_allowed(architecture: seccomp.Architecture) -> None:
    refused = {call for refusal in seccomp.REFUSALS for call in refusal.calls}
    assert refused <= {case.call for case in CASES}
    assert set(architecture.numbers) == (refused & set(architecture.numbers)) | {"clone", "socket", "ioctl"}

    by_number = {number: call for call, number in architecture.numbers.items()}
    for number in range(1024):
        if by_number.get(number) not in refused | {"socket"}:
            assert answer(architecture, number) == "allowed", (number, by_number.get(number))


@pytest.mark.parametrize("architecture", seccomp.ARCHITECTURES, ids=lambda one: one.name)
def test_calls_of_another_table_are_refused_whatever_their_number(architecture: seccomp.Architecture) -> None:
    others = [0x40000003, 0x40000028, *(other.audit for other in seccomp.ARCHITECTURES if other is not architecture)]
    for audit in others:
        assert {answer(architecture, number, audit=audit) for number in range(512)} == {"ENOSYS"}
    for number in (0x40000000, 0x40000000 + 272, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        assert answer(architecture, number) == "ENOSYS"


@pytest.mark.parametrize("architecture", seccomp.ARCHITECTURES, ids=lambda one: one.name)
def test_the_filter_is_one_that_the_kernel_takes(architecture: seccomp.Architecture) -> None:
    program = seccomp.build_filter(architecture)
    instructions = list(struct.iter_unpack("<HBBI", program))

    assert len(program) % 8 == 0
    assert len(instructions) < 4096
    for place, (code, if_true, if_false, _) in enumerate(instructions):
        if code in (0x15, 0x35, 0x45):
            assert place + 1 + max(if_true, if_false) < len(instructions)
    assert instructions[-1][0] == 0x06


HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}


@pytest.mark.parametrize("architecture", seccomp.ARCHITECTURES, ids=lambda one: one.name)
def test_numbers_are_those_of_the_kernels_headers(architecture: seccomp.Architecture) -> None:
    header = next((path for name in HEADERS[architecture.name] if (path := Path(name)).exists()), None)
    if header is None:
        pytest.skip("the kernel's headers are not installed")
    lines = (line.split() for line in header.read_text().splitlines() if line.startswith("#define __NR"))
    known = {words[1].removeprefix("__NR3264_").removeprefix("__NR_"): words[2] for words in lines if len(words) > 2}
    for call, number in architecture.numbers.items():
        if call in known:  # older headers lack the newest calls
            assert known[call] == str(number), call
    assert len(set(architecture.numbers) & set(known)) > 40


# Real processes


@pytest.fixture
def workspace(pytestconfig: pytest.Config) -> Iterator[Path]:
    base = pytestconfig.rootpath / ".pytest_cache" / "sandbox"
    if base.is_relative_to("/tmp"):
        base = Path(f"/var/tmp/switchtower-tests-{os.getuid()}")
    folder = base / uuid4().hex[:8]
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def run_sandboxed(workspace: Path) -> Run:
    async def run(command: str | list[str], *, network: bool = False, where: str = "bubblewrap") -> commands.FinishedCommand:
        chosen = sandbox.choose_sandbox(where, network=network)
        run_id = f"run_{uuid4().hex}"
        try:
            async with asyncio.timeout(TIMEOUT):
                return await commands.run_command(
                    command, cwd=str(workspace), run_id=run_id, timeout_s=TIMEOUT, grace_s=0.1, sandbox=chosen
                )
        finally:
            commands.kill_marked(run_id)

    return run


MAKE_CALLS = """
import ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
answers = []
for number, arguments in json.load(open(sys.argv[1])):
    report = os.pipe()
    child = os.fork()
    if child == 0:  # what a call does to a process stays with that one
        ctypes.set_errno(0)
        result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(word) for word in arguments))
        failed = result < 0
        os.write(report[1], (errno.errorcode[ctypes.get_errno()] if failed else "allowed").encode() + b"\\n")
        os._exit(0)
    os.close(report[1])
    with open(report[0], "rb") as pipe:
        answers.append(pipe.readline().decode().strip())
    os.waitpid(child, 0)
print(json.dumps(answers))
"""


def write_cases(workspace: Path, cases: list[SystemCallCase]) -> list[str]:
    here = seccomp.find_architecture()
    assert here is not None
    (workspace / "calls.py").write_text(MAKE_CALLS)
    (workspace / "calls.json").write_text(json.dumps([(here.numbers[case.call], case.arguments) for case in cases]))
    return [PYTHON, "calls.py", "calls.json"]


@with_bubblewrap
@with_filter
async def test_the_kernel_refuses_inside_what_it_does_outside(run_sandboxed: Run, workspace: Path) -> None:
    machine = platform.machine()
    cases = [case for case in CASES if case.only in (None, machine)]
    inside = await run_sandboxed(write_cases(workspace, cases))
    assert inside.exit_code == 0, inside.output
    told = dict(zip((case.case for case in cases), json.loads(inside.output), strict=True))
    for case in cases:
        if case.inside != "allowed":
            assert told[case.case] == case.inside, case.case
        elif case.call == "socket":
            assert told[case.case] == "allowed", case.case

    control = [case for case in cases if case.outside and case.inside != "allowed"]
    outside = await run_sandboxed(write_cases(workspace, control), where="local")
    answers = dict(zip((case.case for case in control), json.loads(outside.output), strict=True))
    proved = [case.case for case in control if answers[case.case] != case.inside]
    # A machine may refuse some by itself. Those that each user may make show that it is the filter that refuses.
    assert len(proved) >= 20, answers


OTHER_DOOR = r"""
import ctypes, mmap, os
code = bytes.fromhex("53 b8 14 00 00 00 cd 80 5b c3")  # mov eax, 20 (its getpid); int 0x80; ret
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(code)
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
print("reached" if call() == os.getpid() else "refused")
"""


@with_bubblewrap
@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has it")
async def test_the_32_bit_table_is_no_way_around(run_sandboxed: Run, workspace: Path) -> None:
    (workspace / "door.py").write_text(OTHER_DOOR)
    control = await run_sandboxed([PYTHON, "door.py"], where="local")
    if control.output != "reached\n":
        pytest.skip(f"this kernel has no 32-bit table: {control.output}")

    assert (await run_sandboxed([PYTHON, "door.py"])).output == "refused\n"


@with_bubblewrap
@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize(
    "command",
    [
        "unshare --user --map-root-user true",
        "unshare --user --map-root-user --mount --pid --fork true",
        "bwrap --unshare-user --ro-bind / / true",
        f"{shlex.quote(PYTHON)} -c 'import ctypes, os; os._exit(ctypes.CDLL(None).unshare(0x10000000) and 1)'",
    ],
)
async def test_no_namespaces_inside_the_sandbox(command: str, network: bool, run_sandboxed: Run) -> None:
    if (await run_sandboxed(command, where="local")).exit_code != 0:
        pytest.skip("not possible outside either")

    assert (await run_sandboxed(command, network=network)).exit_code != 0


@with_bubblewrap
def test_the_guard_forbids_user_namespaces_by_itself(workspace: Path) -> None:
    guard = shutil.which("bwrap")
    assert guard is not None
    if b"--disable-userns" not in subprocess.run([guard, "--help"], capture_output=True, check=False).stdout:
        pytest.skip("this bubblewrap cannot")
    words = sandbox.choose_sandbox("bubblewrap").wrap(["unshare", "--user", "true"], str(workspace))
    without_filter = [word for word in words if not isinstance(word, launch.PendingArgument)]

    def ends(argv: list[str]) -> int:
        return subprocess.run(argv, cwd=workspace, capture_output=True, check=False).returncode

    assert ends([word for word in without_filter if word != "--disable-userns"]) == 0, "not possible outside either"
    assert ends(without_filter) != 0


@with_bubblewrap
@with_filter
async def test_each_process_inside_has_the_filter_and_no_new_privileges(run_sandboxed: Run) -> None:
    shown = (await run_sandboxed("setsid sh -c 'grep -E \"^(Seccomp|NoNewPrivs|CapBnd|CapEff):\" /proc/self/status'")).output

    assert [line.split() for line in shown.splitlines()] == [
        ["CapEff:", "0000000000000000"],
        ["CapBnd:", "0000000000000000"],
        ["NoNewPrivs:", "1"],
        ["Seccomp:", "2"],
    ]


@with_bubblewrap
async def test_no_descriptor_of_the_daemon_reaches_a_command(run_sandboxed: Run) -> None:
    # 3 is the folder that `ls` reads.
    assert (await run_sandboxed("ls /proc/self/fd")).output.split() == ["0", "1", "2", "3"]


ORDINARY = """
import multiprocessing, os, socket, subprocess, threading
def double(x): return 2 * x
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool: assert pool.map(double, [1, 2]) == [2, 4]
    with multiprocessing.Manager() as manager: assert manager.list([1])[0] == 1
    thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
    assert subprocess.run(["true"]).returncode == 0
    server = socket.create_server(("127.0.0.1", 0)); socket.create_connection(server.getsockname())
    socket.getaddrinfo("localhost", 80)
    print("done")
"""


@with_bubblewrap
async def test_ordinary_programs_do_not_notice(run_sandboxed: Run, workspace: Path) -> None:
    (workspace / "ordinary.py").write_text(ORDINARY)

    assert (await run_sandboxed([PYTHON, "ordinary.py"])).output == "thread\ndone\n"


@with_bubblewrap
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
async def test_a_debugger_can_trace_its_own_child(run_sandboxed: Run) -> None:
    if (await run_sandboxed("strace -f -o /dev/null true", where="local")).exit_code != 0:
        pytest.skip("not possible outside either")

    finished = await run_sandboxed("strace -f -e trace=execve sh -c 'exec /bin/echo traced'")

    assert finished.exit_code == 0
    assert 'execve("/bin/echo", ["/bin/echo", "traced"]' in finished.output


def test_a_process_that_is_started_without_the_filter_does_not_run(tmp_path: Path) -> None:
    if WHY_NOT is not None:
        pytest.skip(f"no bubblewrap here: {WHY_NOT}")
    argv = sandbox.choose_sandbox("bubblewrap").wrap(["touch", "done"], str(tmp_path))

    started = subprocess.run(argv, cwd=tmp_path, capture_output=True, check=False)

    assert started.returncode != 0
    assert b"Unknown option" in started.stderr
    assert list(tmp_path.iterdir()) == []
