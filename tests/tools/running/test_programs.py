"""Programs without a shell: what they are started with, when they are not, and that one command's end is no other's."""

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.tools.running.watching import PidReports, find_processes_with, is_alive, open_descriptors

from switchtower.tools.processes import commands, marks, orphans
from switchtower.tools.sandboxes import launch

TIMEOUT = 60


@pytest.fixture
def run_id() -> Iterator[str]:
    run_id = f"run_{uuid4().hex}"
    yield run_id
    commands.kill_marked(run_id)


async def run(argv: list[str], cwd: Path, run_id: str, **options: Any) -> commands.FinishedCommand:
    async with asyncio.timeout(TIMEOUT):
        return await commands.run_command(argv, cwd=str(cwd), run_id=run_id, timeout_s=TIMEOUT, grace_s=0.1, **options)


async def test_words_reach_the_program_as_they_are(tmp_path: Path, run_id: str) -> None:
    finished = await run(["printf", "%s|", "a b", "$HOME", ";", "*", "--help", ""], tmp_path, run_id)

    assert finished.output == "a b|$HOME|;|*|--help||"


async def test_it_has_nothing_to_read(tmp_path: Path, run_id: str) -> None:
    assert (await run(["cat"], tmp_path, run_id)).exit_code == 0


async def test_a_program_in_the_workspace_is_found_by_its_path(tmp_path: Path, run_id: str) -> None:
    program = tmp_path / "own"
    program.write_text("#!/bin/sh\necho own $1\n")
    program.chmod(0o755)

    assert (await run(["./own", "1"], tmp_path, run_id)).output == "own 1\n"
    assert (await run([str(program), "2"], tmp_path, run_id)).output == "own 2\n"


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["no-such-program"], FileNotFoundError),
        (["./missing"], FileNotFoundError),
        (["/"], FileNotFoundError),
        ([], ValueError),
        (["echo", "nu\0ll"], ValueError),
        (["echo", "x" * 10_000_000], OSError),
    ],
)
async def test_what_cannot_be_started_raises_and_leaves_nothing_open(
    argv: list[str], error: type[Exception], tmp_path: Path, run_id: str
) -> None:
    before = open_descriptors()
    with pytest.raises(error):
        await run(argv, tmp_path, run_id)
    assert open_descriptors() == before


async def test_a_given_environment_is_all_there_is_beside_the_marks_and_gits_settings(tmp_path: Path, run_id: str) -> None:
    finished = await run(["/usr/bin/env"], tmp_path, run_id, environment={"ONLY": "this", "PATH": os.defpath})
    variables = dict(line.split("=", 1) for line in finished.output.splitlines())

    assert variables.pop("TOWER_COMMAND").isdigit()
    given = {"ONLY": "this", "PATH": os.defpath, "PWD": str(tmp_path), "TOWER_RUN": run_id}
    assert variables == launch.add_overrides(given, chosen=launch.list_overridden_keys(os.environ))


async def test_commands_do_not_see_keys_unless_somebody_says_so(
    tmp_path: Path, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hush")
    monkeypatch.setenv("MODELS_WAY_IN", "hush")
    monkeypatch.setenv("PLAIN", "plain")
    command = ["sh", "-c", "echo $SOME_API_KEY,$MODELS_WAY_IN,$PLAIN"]
    try:
        marks.configure(secret_variables=["MODELS_WAY_IN"])
        assert (await run(command, tmp_path, run_id)).output == ",,plain\n"
        marks.configure(secret_variables=["MODELS_WAY_IN"], allowed=["SOME_API_KEY"])
        assert (await run(command, tmp_path, run_id)).output == "hush,,plain\n"
    finally:
        marks.configure()


async def test_a_command_out_of_time_leaves_the_runs_other_processes_alone(tmp_path: Path, run_id: str) -> None:
    reports = PidReports(tmp_path / "reports")
    await commands.run_command(
        "setsid bash -c 'echo $BASHPID > reports; exec sleep 1000' >/dev/null 2>&1 &",
        cwd=str(tmp_path),
        run_id=run_id,
        timeout_s=TIMEOUT,
    )
    beside = asyncio.create_task(run(["sh", "-c", "echo $$ > reports; exec sleep 1000"], tmp_path, run_id))
    others = await reports.wait_for_pids(2)

    late = await commands.run_command("sleep 1000", cwd=str(tmp_path), run_id=run_id, timeout_s=0.1, grace_s=0.1)

    assert late.timed_out
    assert all(map(is_alive, others))
    beside.cancel()
    await asyncio.wait([beside])
    await commands.end_run(run_id, grace_s=0.1)
    assert not any(map(is_alive, others))
    assert not orphans.has_marked_processes(run_id)
    reports.close()


async def test_a_chain_that_is_always_somebody_else_is_caught(tmp_path: Path, run_id: str) -> None:
    """As quick as forking goes, and alone: whoever looks has to be quicker, or to look again."""
    reports = PidReports(tmp_path / "reports")
    token = f"token-{uuid4().hex}"
    program = (
        f"# {token}\nimport os\n"
        "if os.fork(): os._exit(0)\n"
        "os.closerange(0, 3); os.setsid()\n"
        "pipe = os.open('reports', os.O_WRONLY); os.write(pipe, b'%d\\n' % os.getpid()); os.close(pipe)\n"
        "while True:\n"
        "    if os.fork(): os._exit(0)\n"
        "    os.setsid()\n"
    )
    await run(["env", "-i", sys.executable, "-ISc", program], tmp_path, run_id)
    await reports.wait_for_pids(1)

    await commands.end_run(run_id, grace_s=0)

    # One look could miss it, as it could miss the one who ended it.
    assert [found for _ in range(20) if (found := find_processes_with(token))] == []
    reports.close()
