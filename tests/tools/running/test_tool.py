"""The tool that runs commands: what is told on the way, what is kept, what is in a file."""

import asyncio
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from switchtower.tools import outcome, registry
from switchtower.tools.processes import commands, orphans
from switchtower.tools.processes import output as processes_output
from switchtower.tools.sandboxes import sandbox


def make_context(root: Path, **options: Any) -> outcome.ToolContext:
    return outcome.ToolContext(workspace=str(root), run_id=f"run_{uuid4().hex}", call_id="call_1", **options)


async def run(root: Path, command: str, *, timeout_seconds: int = 60, **options: Any) -> outcome.ToolOutput:
    args = {"command": command, "timeout_seconds": timeout_seconds}
    return await registry.make_core_toolbox().execute("run", args, make_context(root, **options))


async def test_a_short_output_is_told_whole_and_leaves_no_file(tmp_path: Path) -> None:
    assert (await run(tmp_path, "echo hello")).text == "hello\n[exit code 0]"
    assert list(tmp_path.iterdir()) == []


async def test_a_long_output_keeps_both_ends_and_is_whole_in_a_file(tmp_path: Path) -> None:
    output = await run(tmp_path, "seq 1 100000")

    whole = "".join(f"{number}\n" for number in range(1, 100_001))
    assert output.text.startswith("1\n2\n3\n")
    assert output.text.endswith("99999\n100000\n[exit code 0]")
    head, note, tail = re.split(
        r"\n\[… (.*) bytes left out; the whole output is in `.tower/outputs/call_1.txt` …\]\n", output.text
    )
    shown = head + "\n" + tail.removesuffix("[exit code 0]")
    assert int(note) == len(whole) - len(shown) + 1
    assert len(shown) > commands.KEEP_BYTES - 20
    assert set(shown.split()) <= set(whole.split()), "lines are whole"
    assert len(output.text) < commands.KEEP_BYTES + 200
    assert (tmp_path / ".tower/outputs/call_1.txt").read_text() == whole


async def test_a_failed_and_a_killed_command_also_keep_their_output(tmp_path: Path) -> None:
    failed = await run(tmp_path, "seq 1 100000; exit 3")
    assert failed.error is not None
    assert failed.error.type == "EXEC_NON_ZERO_EXIT"
    assert "the whole output is in `.tower/outputs/call_1.txt`" in failed.text
    assert failed.text.endswith("[exit code 3]")

    killed = await run(tmp_path, "seq 1 200000; sleep 1000", timeout_seconds=2)
    assert killed.error is not None
    assert killed.error.type == "EXEC_TIMEOUT"
    assert (tmp_path / ".tower/outputs/call_1.txt").read_text().endswith("\n200000\n")


async def test_a_model_can_read_on_in_the_file_that_is_named(tmp_path: Path) -> None:
    await run(tmp_path, "seq 1 100000")
    args = {"path": ".tower/outputs/call_1.txt", "offset": 300_000, "limit": 20}

    output = await registry.make_core_toolbox().execute("read_file", args, make_context(tmp_path))

    assert output.text.startswith("51852\n51853\n51854\n51")


async def test_output_is_told_while_the_command_runs(tmp_path: Path) -> None:
    told: list[str] = []

    async def watch(text: str) -> None:
        told.append(text)
        (tmp_path / f"go{len(told)}").touch()

    command = "echo first; while [ ! -e go1 ]; do sleep 0.02; done; printf '✓\\nsecond'; while [ ! -e go2 ]; do sleep 0.02; done"
    output = await run(tmp_path, command, progress=watch)

    assert told == ["first\n", "✓\nsecond"]
    assert output.text == "first\n✓\nsecond\n[exit code 0]"


async def test_a_flood_is_told_in_bounded_pieces_and_does_not_stop_the_command(tmp_path: Path) -> None:
    told: list[str] = []

    async def watch(text: str) -> None:
        told.append(text)
        if len(told) == 3:
            (tmp_path / "stop").touch()

    output = await run(tmp_path, "while [ ! -e stop ]; do seq 1 2000; done; echo last", progress=watch)

    assert output.text.endswith("last\n[exit code 0]")
    assert all(len(text) < processes_output.PIECE + 100 for text in told)


async def test_a_watcher_that_never_returns_does_not_hold_up_the_result(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def watch(text: str) -> None:
        asked.set()
        (tmp_path / "go").touch()
        await asyncio.Event().wait()

    async with asyncio.timeout(60):
        output = await run(tmp_path, "echo first; while [ ! -e go ]; do sleep 0.02; done; echo last", progress=watch)

    assert asked.is_set()
    assert output.text == "first\nlast\n[exit code 0]"


async def test_cancelling_ends_the_command_and_leaves_no_file(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    args = {"command": "seq 1 100000; touch started; sleep 1000"}
    running = asyncio.create_task(registry.make_core_toolbox().execute("run", args, context))
    while not (tmp_path / "started").exists():
        assert not running.done()
        await asyncio.sleep(0.01)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert not orphans.has_marked_processes(context.run_id)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["started"]


async def test_a_command_runs_in_the_sandbox_of_its_session(tmp_path: Path) -> None:
    if (reason := sandbox.probe_sandbox("bubblewrap")) is not None:
        pytest.skip(reason)

    output = await run(tmp_path, "touch inside; touch /usr/outside", sandbox="bubblewrap")

    assert (tmp_path / "inside").exists()
    assert "Read-only" in output.text
    assert not Path("/usr/outside").exists()


@pytest.mark.parametrize("name", ["modal", "nowhere", ""])
async def test_a_sandbox_that_cannot_be_had_is_refused_with_a_remedy(tmp_path: Path, name: str) -> None:
    output = await run(tmp_path, "touch ran", sandbox=name)

    assert output.error is not None
    assert output.error.type == "SANDBOX_UNREACHABLE"
    assert "use" in output.text
    assert list(tmp_path.iterdir()) == []
