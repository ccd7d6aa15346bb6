"""Programs in terminals: real ones, well-behaved and hostile. All that they write arrives, and nothing of them is left."""

import asyncio
import os
import re
import shlex
import signal
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import uvloop
from tests.tools.running.watching import PidReports, is_alive, open_descriptors

from switchtower.engines.pty import program, terminal
from switchtower.engines.pty.program import ProgramNotStarted
from switchtower.tools.processes import commands, marks, orphans

TIMEOUT = 60
SHORT_GRACE = 0.1
ENVIRONMENT = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": "/"}

Start = Callable[..., program.TerminalProgram]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]

on_both_event_loops = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


@pytest.fixture
async def start_program(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts programs in the test's folder. Afterwards no process and no descriptor of theirs is left."""
    run_id = f"run_{uuid4().hex}"
    started: list[program.TerminalProgram] = []
    orphans.kill_marked(run_id)
    await asyncio.to_thread(time.monotonic)  # the executor's own descriptors and threads are there from now on
    before = open_descriptors()

    def start_in_folder(*argv: str, **options: object) -> program.TerminalProgram:
        given = {"cwd": str(tmp_path), "environment": ENVIRONMENT, "run_id": run_id, **options}
        started.append(program.TerminalProgram.start(argv, **given))  # type: ignore[arg-type]
        return started[-1]

    yield start_in_folder
    async with asyncio.timeout(TIMEOUT):
        for one in started:
            await one.aclose()
    assert orphans.kill_marked(run_id) == 0
    assert all(not Path(f"/proc/{one.pid}").exists() for one in started), "none waits to be reaped"
    assert open_descriptors() == before


@pytest.fixture
def reports(tmp_path: Path) -> Iterator[PidReports]:
    reports = PidReports(tmp_path / "reports")
    yield reports
    reports.close()


async def read_rest(running: program.TerminalProgram) -> bytes:
    output = b""
    async with asyncio.timeout(TIMEOUT):
        while part := await running.read():
            output += part
    return output


async def read_until(running: program.TerminalProgram, expected: bytes) -> bytes:
    output = b""
    async with asyncio.timeout(TIMEOUT):
        while expected not in output:
            part = await running.read()
            assert part, f"ended before {expected!r}: {output!r}"
            output += part
    return output


def make_python_command(code: str) -> tuple[str, ...]:
    return (sys.executable, "-ISuc", f"import os, signal, sys, time, tty, termios\n{code}")


def make_shell_command(code: str) -> tuple[str, ...]:
    return ("bash", "-c", code)


async def test_a_program_has_a_terminal_a_session_a_size_a_folder_and_only_the_given_environment(
    start_program: Start, tmp_path: Path
) -> None:
    code = """
print(os.get_terminal_size(), os.getcwd(), os.getsid(0) == os.getpid() == os.tcgetpgrp(0), os.ttyname(0) == os.ttyname(2))
print(open("/dev/tty").isatty(), sorted(os.environ), sorted(os.listdir("/proc/self/fd")))
"""
    running = start_program(*make_python_command(code), cols=123, rows=45, environment={"PATH": os.environ["PATH"], "GIVEN": "1"})

    lines = (await read_rest(running)).decode().splitlines()
    assert lines[0] == f"os.terminal_size(columns=123, lines=45) {tmp_path} True True"
    shown = re.findall(r"[A-Z_]+", lines[1].partition("[")[2].partition("]")[0])
    names = {name for name in shown if name != "LC_CTYPE" and not name.startswith("GIT_CONFIG_")}
    assert lines[1].startswith("True")
    assert names == {"PATH", "GIVEN", "PWD", marks.RUN_VARIABLE, marks.COMMAND_VARIABLE}
    assert lines[1].endswith("['0', '1', '2', '3']"), "the last is the folder that is being listed"
    assert running.exit_code == 0


async def test_stty_sees_the_size_at_once_and_after_a_resize(start_program: Start) -> None:
    assert await read_rest(start_program("stty", "size", cols=100, rows=30)) == b"30 100\r\n"

    running = start_program(
        *make_python_command(
            "signal.signal(28, lambda *_: (print(*os.get_terminal_size()), sys.exit())); print('go'); time.sleep(99)"
        )
    )
    await read_until(running, b"go")
    running.resize(132, 50)
    assert (await read_rest(running)).split() == [b"132", b"50"]


async def test_sizes_that_no_terminal_has_are_brought_to_the_nearest(start_program: Start) -> None:
    assert await read_rest(start_program("stty", "size", cols=10**9, rows=-1)) == b"1 65535\r\n"


async def test_cat_gives_back_what_is_typed(start_program: Start) -> None:
    running = start_program("cat")
    running.write("grüße\n".encode())
    assert (await read_until(running, "grüße\r\ngrüße\r\n".encode())).count("grüße".encode()) == 2
    running.write(b"\x04")

    assert await read_rest(running) == b""
    assert running.exit_code == 0


async def test_backspace_takes_a_whole_character(start_program: Start) -> None:
    running = start_program("cat")
    running.write("a€\x7fb\n\x04".encode())

    assert (await read_rest(running)).endswith(b"\nab\r\n")


async def test_control_c_reaches_the_program(start_program: Start) -> None:
    running = start_program(*make_shell_command("echo go; exec sleep 1000"))
    await read_until(running, b"go")
    running.write(b"\x03")

    await read_rest(running)
    assert running.exit_code == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("code", "expected"), [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137), ("kill $$", 143)]
)
async def test_the_exit_code_is_as_shells_have_it(start_program: Start, code: str, expected: int) -> None:
    running = start_program(*make_shell_command(code))
    assert running.exit_code is None
    await read_rest(running)
    assert running.exit_code == expected


@on_both_event_loops
def test_the_last_bytes_before_the_exit_are_never_lost(new_loop: LoopFactory, tmp_path: Path) -> None:
    async def thirty_times() -> None:
        for number in range(30):
            code = f"os.write(1, b'x' * 70000 + b'last {number}'); os._exit({number})"
            async with program.TerminalProgram.start(
                make_python_command(code), cwd=str(tmp_path), environment=ENVIRONMENT, run_id=f"run_{uuid4().hex}"
            ) as running:
                output = await read_rest(running)
                assert output == b"x" * 70000 + f"last {number}".encode()
                assert running.exit_code == number

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(thirty_times())


async def test_a_megabyte_written_at_once_before_the_exit_arrives_whole(start_program: Start) -> None:
    running = start_program(
        *make_python_command("tty.setraw(1); data = bytes(range(256)) * 4096\nwhile data: data = data[os.write(1, data):]")
    )

    assert await read_rest(running) == bytes(range(256)) * 4096


async def test_output_that_nobody_has_read_yet_is_there_after_the_end(start_program: Start, tmp_path: Path) -> None:
    running = start_program(*make_shell_command("echo hello; touch written; sleep 1000"))
    while not (tmp_path / "written").exists():
        await asyncio.sleep(0.01)
    await running.stop("kill")
    assert running.exit_code == 137

    assert await read_rest(running) == b"hello\r\n"


async def test_less_can_be_driven(start_program: Start, tmp_path: Path) -> None:
    (tmp_path / "long").write_text("".join(f"line {number}\n" for number in range(1, 201)))
    running = start_program("less", "long", rows=10)
    await read_until(running, b"line 9")
    running.write(b"G")
    await read_until(running, b"line 200")
    running.write(b"q")

    await read_rest(running)
    assert running.exit_code == 0


async def test_a_password_is_noticed_and_a_program_that_draws_for_itself_is_none(start_program: Start) -> None:
    code = """
import getpass
print("ready"); input(); password = getpass.getpass("secret? "); tty.setraw(0); print("raw"); os.read(0, 1)
"""
    running = start_program(*make_python_command(code))
    await read_until(running, b"ready")
    assert running.has_echo()
    running.write(b"\n")
    await read_until(running, b"secret? ")
    assert not running.has_echo()
    running.write(b"hunter2\n")
    assert b"hunter2" not in await read_until(running, b"raw")
    assert running.has_echo()


async def test_a_program_that_floods_waits_for_its_reader(start_program: Start, tmp_path: Path) -> None:
    """It cannot write more than the terminal holds; memory does not grow."""
    code = """
while True:
    os.write(1, b"y" * 4096)
    with open("progress", "ab") as progress: progress.write(b".")
"""
    progress = tmp_path / "progress"
    progress.touch()
    running = start_program(*make_python_command(code))
    await running.read()
    written = -1
    async with asyncio.timeout(TIMEOUT):
        while written != (written := progress.stat().st_size):
            await asyncio.sleep(0.3)  # long enough for it to go on if it could
    assert written * 4096 < 1_000_000

    tracemalloc.start()
    taken = 0
    while taken < 20_000_000:
        taken += len(await running.read())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000


async def test_a_flood_does_not_keep_others_from_the_event_loop(start_program: Start) -> None:
    running = start_program("yes")
    await running.read()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    for number in range(100):
        time.sleep(0.002)  # a busy daemon: there is more to read already
        assert await running.read()
        assert turns > number
        turns = number + 1
    counting.cancel()


@on_both_event_loops
def test_typed_input_waits_for_a_program_that_does_not_read_and_arrives_in_order_when_it_does(
    new_loop: LoopFactory, tmp_path: Path
) -> None:
    code = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
tty.setraw(0)
print("ready")
signal.sigwait([signal.SIGWINCH])
taken = b""
while len(taken) < 1000000: taken += os.read(0, 65536)
print("right" if taken == b"".join(b"%07d\\n" % number for number in range(125000)) else "wrong", "order")
"""

    async def type_a_lot() -> None:
        async with program.TerminalProgram.start(
            make_python_command(code), cwd=str(tmp_path), environment=ENVIRONMENT, run_id=f"run_{uuid4().hex}"
        ) as running:
            await read_until(running, b"ready")
            for begin in range(0, 125_000, 1000):
                running.write(b"".join(b"%07d\n" % number for number in range(begin, begin + 1000)))
            with pytest.raises(program.InputFull, match="does not read"):
                running.write(b"x" * 200_000)
            running.resize(81, 24)  # its signal to begin
            assert b"right" in await read_until(running, b"order")

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(type_a_lot())


async def test_input_that_is_refused_leaves_no_part_behind(start_program: Start) -> None:
    running = start_program(*make_shell_command("stty raw -echo; echo ready; exec head -c 10"))
    await read_until(running, b"ready")
    with pytest.raises(program.InputFull):
        running.write(b"x" * (terminal.MOST_WAITING + 1))
    running.write(b"0123456789")

    assert (await read_rest(running)).strip() == b"0123456789"


async def test_a_line_longer_than_the_kernel_takes_wedges_nothing(start_program: Start) -> None:
    running = start_program(*make_shell_command("stty -echo; echo ready; exec awk '{ print length($0) \"!\"; fflush() }'"))
    await read_until(running, b"ready")
    running.write(b"x" * 20_000 + b"\n")
    running.write(b"after\n\x04")

    assert (await read_rest(running)).split() == [b"4095!", b"5!"], "the kernel drops what is too long, and goes on"
    assert running.exit_code == 0


async def test_typing_after_the_end_is_refused(start_program: Start) -> None:
    running = start_program("true")
    await read_rest(running)

    with pytest.raises(program.ProgramExited):
        running.write(b"x")
    running.resize(10, 10)
    await running.stop()


async def test_a_program_that_closes_its_terminal_has_not_ended(
    start_program: Start, reports: PidReports, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "go")
    running = start_program(
        *make_shell_command("exec </dev/null >/dev/null 2>&1; echo $$ >reports; read line <go; echo back >/dev/tty; exit 5")
    )
    reading = asyncio.create_task(read_rest(running))
    await reports.wait_for_pids(1)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not reading.done()
    (tmp_path / "go").write_text("go\n")

    assert await reading == b"back\r\n"
    assert running.exit_code == 5


HOSTILE = Path(__file__).parents[2] / "tools" / "running" / "hostile.py"


@pytest.mark.parametrize(
    "traits", [["doubly-forked"], ["doubly-forked", "deaf"], ["session", "silent"], ["doubly-forked", "phoenix"]]
)
async def test_what_a_program_leaves_behind_ends_with_it(start_program: Start, reports: PidReports, traits: list[str]) -> None:
    hostile = shlex.join(["env", "-i", sys.executable, "-IS", str(HOSTILE), "token", "reports", *traits])
    running = start_program(*make_shell_command(f"{hostile} & exec 3<&0; read line; echo bye; exit 7"))
    [left] = await reports.wait_for_pids(1)
    assert is_alive(left)
    running.write(b"\n")

    assert (await read_rest(running)).endswith(b"bye\r\n")
    assert running.exit_code == 7
    assert not is_alive(left)


@pytest.mark.parametrize(("end", "expected"), [("exit 7", 7), ("kill -9 $$", 137)])
async def test_the_exit_code_is_reported_before_the_background_has_ended(
    start_program: Start, reports: PidReports, end: str, expected: int
) -> None:
    seen: list[tuple[int, int | None, bool]] = []
    running = start_program(
        *make_shell_command(f"(trap '' HUP TERM; echo $BASHPID >reports; exec sleep 1000) & read line; {end}"),
        on_exit=lambda code: seen.append((code, running.exit_code, is_alive(left))),
    )
    [left] = await reports.wait_for_pids(1)
    running.write(b"\n")
    await read_rest(running)

    assert seen == [(expected, None, True)]
    assert running.exit_code == expected
    assert not is_alive(left)


async def test_a_background_flood_does_not_hold_up_the_end(start_program: Start) -> None:
    running = start_program(*make_shell_command("trap '' HUP TERM; yes & echo started; exit 4"))
    async with asyncio.timeout(TIMEOUT):
        while await running.read():
            pass
    assert running.exit_code == 4


async def test_a_polite_stop_lets_the_program_say_goodbye(start_program: Start) -> None:
    running = start_program(
        *make_python_command("signal.signal(15, lambda *_: (print('goodbye'), sys.exit(9)))\nprint('go'); time.sleep(1000)")
    )
    await read_until(running, b"go")
    await running.stop("term", TIMEOUT)

    assert running.exit_code == 9
    assert (await read_rest(running)).strip() == b"goodbye"


@pytest.mark.requirement("relay:stop:whole-tree")
@pytest.mark.parametrize("options", [("-c",), ("--norc", "-ic")], ids=["shell", "interactive shell"])
async def test_a_program_under_a_shell_gets_its_time_and_the_shell_starts_nothing_more(
    start_program: Start, options: tuple[str, ...]
) -> None:
    code = """
signal.signal(1, lambda *_: print("hung up"))
signal.signal(15, lambda *_: print("asked"))
print("go")
os.read(0, 1)
print("cleaned up")
"""
    running = start_program("bash", *options, f"{shlex.join(make_python_command(code))}; echo second")
    await read_until(running, b"go")
    stopping = asyncio.create_task(running.stop("term", TIMEOUT))
    seen = await read_until(running, b"asked")
    running.write(b"\n")
    seen += await read_rest(running)
    await stopping

    assert b"cleaned up" in seen
    assert b"hung up" not in seen
    assert b"second" not in seen
    assert running.exit_code in (128 + signal.SIGTERM, 128 + signal.SIGHUP)


async def test_two_polite_stops_signal_once(start_program: Start) -> None:
    code = """
for number in (1, 15): signal.signal(number, lambda number, _: print("told", number))
print("go")
os.read(0, 1)
"""
    running = start_program(*make_python_command(code))
    await read_until(running, b"go")
    polite = asyncio.create_task(running.stop("term", TIMEOUT))
    await read_until(running, b"told 15")
    again = asyncio.create_task(running.stop("term", TIMEOUT))
    await asyncio.sleep(0.2)  # time to do it wrong
    running.write(b"\n")

    assert b"told" not in await read_rest(running)
    await asyncio.gather(polite, again)
    assert running.exit_code == 0


async def test_an_interactive_shell_that_ignores_the_polite_signal_is_hung_up_on(start_program: Start) -> None:
    running = start_program("bash", "--norc", "-i", environment={**ENVIRONMENT, "PS1": "ready> "})
    await read_until(running, b"ready> ")
    await running.stop("term", TIMEOUT)

    assert running.exit_code == 128 + signal.SIGHUP


async def test_a_stopped_program_hears_the_polite_signal(start_program: Start) -> None:
    running = start_program(
        *make_python_command(
            "signal.signal(15, lambda *_: sys.exit(9))\nprint('go'); os.kill(os.getpid(), signal.SIGSTOP); time.sleep(99)"
        )
    )
    await read_until(running, b"go")
    while "T" not in Path(f"/proc/{running.pid}/stat").read_text().rpartition(")")[2].split()[0]:
        await asyncio.sleep(0)
    await running.stop("term", TIMEOUT)

    assert running.exit_code == 9


async def test_a_program_deaf_to_signals_is_killed_after_the_grace(start_program: Start, reports: PidReports) -> None:
    running = start_program(sys.executable, "-IS", str(HOSTILE), "token", "reports", "deaf")
    await reports.wait_for_pids(1)
    await running.stop("term", SHORT_GRACE)

    assert running.exit_code == 137


async def test_a_kill_does_not_wait_for_an_earlier_grace(start_program: Start, reports: PidReports) -> None:
    running = start_program(sys.executable, "-IS", str(HOSTILE), "token", "reports", "deaf")
    await reports.wait_for_pids(1)
    polite = asyncio.create_task(running.stop("term", 1000))
    await asyncio.sleep(0)
    await running.stop("kill")
    await polite

    assert running.exit_code == 137


async def test_a_stop_at_the_very_start_ends_it(start_program: Start) -> None:
    for _ in range(10):
        running = start_program("sleep", "1000")
        await running.stop("kill")
        assert running.exit_code == 137


async def test_the_runs_end_finds_it_after_it_has_dropped_its_environment(
    start_program: Start, reports: PidReports, tmp_path: Path
) -> None:
    run_id = f"run_{uuid4().hex}"
    running = start_program("env", "-i", sys.executable, "-IS", str(HOSTILE), "token", "reports", "x", run_id=run_id)
    [pid] = await reports.wait_for_pids(1)
    assert pid == running.pid
    assert orphans.has_marked_processes(run_id)
    await commands.end_run(run_id, grace_s=SHORT_GRACE)

    await read_rest(running)
    assert running.exit_code == 143


async def test_whoever_is_cancelled_while_reading_leaves_nothing_behind(start_program: Start, reports: PidReports) -> None:
    pids: list[int] = []

    async def hold() -> None:
        async with start_program(
            *make_shell_command("(echo $BASHPID >reports; exec sleep 1000) & echo $$ >reports; wait")
        ) as running:
            await read_rest(running)

    for _ in range(3):
        holding = asyncio.create_task(hold())
        pids = await reports.wait_for_pids(len(pids) + 2)
        holding.cancel()
        await asyncio.wait([holding])
        assert holding.cancelled()
        assert not any(is_alive(pid) for pid in pids)


async def test_a_cancelled_read_loses_nothing(start_program: Start) -> None:
    running = start_program(*make_python_command("tty.setraw(1)\nfor number in range(300): print(number); time.sleep(0.001)"))
    output = b""
    while True:
        try:
            async with asyncio.timeout(0.002):
                part = await running.read()
        except TimeoutError:
            continue
        if not part:
            break
        output += part
    assert output.split() == [str(number).encode() for number in range(300)]


@on_both_event_loops
def test_nothing_is_left_when_the_event_loop_goes_down_with_everything(new_loop: LoopFactory, tmp_path: Path) -> None:
    run_id = f"run_{uuid4().hex}"
    new_loop().close()  # what its library opens once and keeps is there from now on
    before = open_descriptors()
    holding: list[asyncio.Task[None]] = []

    async def forget() -> None:
        running = program.TerminalProgram.start(
            make_shell_command("setsid sleep 1000 & echo go; sleep 1000"),
            cwd=str(tmp_path),
            environment=ENVIRONMENT,
            run_id=run_id,
        )

        async def hold() -> None:
            async with running:
                await read_rest(running)

        await read_until(running, b"go")
        holding.append(asyncio.create_task(hold()))
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(forget())
    assert holding[0].cancelled()
    assert orphans.kill_marked(run_id) == 0
    assert open_descriptors() == before


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["no-such-program"], "there is no program `no-such-program`"),
        (["./data"], "there is no program `./data`"),
        (["/"], "there is no program `/`"),
        ([], "there is no program to run"),
        (["tr\0ue"], "there is no program `tr\0ue`"),
        (["echo", "x" * 3_000_000], "`echo` cannot be started: Argument list too long"),
        (["echo", "\0"], "`echo` cannot be started"),
    ],
)
async def test_what_cannot_be_started_says_why(start_program: Start, tmp_path: Path, argv: list[str], reason: str) -> None:
    (tmp_path / "data").write_text("not executable")
    with pytest.raises(ProgramNotStarted, match=re.escape(reason)):
        start_program(*argv)


async def test_a_folder_that_is_gone_says_so(start_program: Start, tmp_path: Path) -> None:
    for folder in (tmp_path / "gone", Path("/dev/null")):
        with pytest.raises(ProgramNotStarted, match="cannot be entered; hint: "):
            start_program("true", cwd=str(folder))


async def test_a_variable_that_cannot_be_set_is_refused_without_its_value(start_program: Start) -> None:
    with pytest.raises(ProgramNotStarted) as refused:
        start_program("true", environment={**ENVIRONMENT, "KEY": "hunter2\0"})
    assert "hunter2" not in str(refused.value)


async def test_terminals_work_without_the_systems_own_helper(start_program: Start) -> None:
    """A daemon that ignores interrupts, as one started by a script with `&`, has programs that do not."""
    earlier = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        running = start_program(*make_shell_command("echo </dev/tty go; exec sleep 1000"))
    finally:
        signal.signal(signal.SIGINT, earlier)
    await read_until(running, b"go")
    running.write(b"\x03")

    await read_rest(running)
    assert running.exit_code == 128 + signal.SIGINT


async def test_an_exit_is_noticed_without_pidfds_too(start_program: Start) -> None:
    running = start_program(*make_shell_command("read line; exit 3"))
    noticing = asyncio.create_task(program.wait_for_exit(running.pid, by_pidfd=False))
    await asyncio.sleep(0)
    assert not noticing.done()
    running.write(b"\n")
    await asyncio.gather(read_rest(running), asyncio.wait([noticing]))

    assert running.exit_code == 3
