"""No piece of a secret that a program prints reaches the journal: however the program pauses, whatever is cut, and wherever
its screen is shown."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.pty.stages import SESSION, PtyHarness, PtySubscriber
from tests.security.test_secret_kinds import find_leaks

from switchtower.core import events

BODY = "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6"
TOKEN = f"ghp_{BODY}"
BEGINNING = (
    f"import os, sys, time\nT = bytes.fromhex({TOKEN.encode().hex()!r}).decode()\ndef out(text): os.write(1, text.encode())\n"
)


@pytest.fixture
async def pty_harness(tmp_path: Path) -> AsyncIterator[PtyHarness]:
    opened = PtyHarness(tmp_path)
    await opened.open()
    yield opened
    await opened.runtime.stop()
    await opened.journal.close()


async def start(pty_harness: PtyHarness, code: str, session_id: str = SESSION, **size: Any) -> PtySubscriber:
    file = pty_harness.folder / f"{session_id}.py"
    file.write_text(BEGINNING + code)
    return await pty_harness.run([sys.executable, str(file)], session_id, **size)


def collect_output(program: PtySubscriber) -> str:
    others = [event for event in program.told if not isinstance(event, events.ToolProgressed)]
    return program.output + "\n".join(map(str, others))


@pytest.mark.parametrize("pause", [0.0, 0.006, 0.06, 0.13])
async def test_a_secret_is_hidden_wherever_its_two_pieces_meet(pty_harness: PtyHarness, pause: float) -> None:
    """The pauses lie on both sides of those after which output is journalled, and after which the program counts as silent."""
    cuts = range(1, len(TOKEN))
    programs = [
        await start(
            pty_harness,
            f"for cut in {list(cuts[first::5])}:\n"
            f"    out(T[:cut]); time.sleep({pause}); out(T[cut:] + ' done\\n'); time.sleep({pause})",
            f"sess_{first}",
        )
        for first in range(5)
    ]
    for program in programs:
        await program.end()
    shown = [collect_output(program) for program in programs]
    assert [find_leaks(text, [BODY]) for text in shown] == [[]] * 5
    assert sum(program.output.count(" done\r\n") for program in programs) == len(cuts)


async def test_half_of_a_secret_is_on_no_picture_of_the_screen(pty_harness: PtyHarness) -> None:
    """A resize has the screen stored while the program pauses in the middle."""
    code = "out('ready ' + T[:24])\nwhile not os.path.exists('go'): time.sleep(0.01)\nout(T[24:] + ' done\\n')"
    program = await start(pty_harness, code, cols=80, rows=24)
    await program.wait_for_text("ready")
    await program.resize(90, 24)
    await program.wait_for_event(events.ScreenCaptured)
    (pty_harness.folder / "go").touch()
    await program.end()
    assert program.output == "ready [redacted] done\r\n"
    assert find_leaks(collect_output(program), [BODY]) == []


async def test_a_program_that_ends_in_the_middle_of_a_secret_shows_no_more_of_it(pty_harness: PtyHarness) -> None:
    program = await start(pty_harness, "out(T[:24])")
    await program.end()
    assert find_leaks(collect_output(program), [BODY]) == []


@pytest.mark.parametrize("cols", [10, 20, 33, 41])
async def test_a_secret_that_the_terminal_has_wrapped_is_hidden_in_the_result(pty_harness: PtyHarness, cols: int) -> None:
    program = await start(pty_harness, "out('It is ' + T + ' done\\n')", cols=cols, rows=24)
    await program.end()
    assert find_leaks(collect_output(program), [BODY]) == []


async def test_a_result_that_is_cut_shows_no_rest_of_a_secret(pty_harness: PtyHarness) -> None:
    programs = [
        await start(pty_harness, f"out(T + ' ' + 'x' * {length})", f"sess_{length}", cols=1_000, rows=10)
        for length in range(7_960, 8_000, 8)
    ]
    for program in programs:
        await program.end()
    assert [find_leaks(collect_output(program), [BODY]) for program in programs] == [[]] * len(programs)


@pytest.mark.parametrize("length", [150, 165, 600])
async def test_a_long_question_shows_no_rest_of_a_secret(pty_harness: PtyHarness, length: int) -> None:
    program = await start(
        pty_harness, f"out('Use ' + T + ' ' + 'z' * {length} + ' continue? [y/N] '); sys.stdin.readline()", cols=900, rows=24
    )
    await program.wait_for_event(events.PromptShown)
    await program.send_keys("\r")
    await program.end()
    assert find_leaks(collect_output(program), [BODY]) == []


async def test_a_wrapped_secret_above_a_question_is_hidden(pty_harness: PtyHarness) -> None:
    program = await start(pty_harness, "out('It is ' + T + '\\r\\ncontinue? [y/N] '); sys.stdin.readline()", cols=30, rows=24)
    approval = await program.wait_for_question()
    assert approval.details["screen"] == "It is [redacted, 40 characters]"
    await program.decide(approval.id)
    async with asyncio.timeout(60):
        await program.end()
    assert find_leaks(collect_output(program), [BODY]) == []
