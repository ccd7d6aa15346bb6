"""The marks on a run's processes: there before the program begins, as far as the system can, and never in its way."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.tools.processes import commands, marks, orphans

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows limits and environments of processes")


@pytest.fixture
def run_id() -> Iterator[str]:
    run_id = f"run_{uuid4().hex}"
    yield run_id
    commands.kill_marked(run_id)


@given(st.text(min_size=1), st.integers(min_value=0, max_value=99_999))
def test_a_number_is_always_between_nothing_and_the_daemons_own(run_id: str, command: int) -> None:
    number = marks.ProcessMark(run_id, command).make_number()

    assert marks.is_run_number(number)
    assert 7 * 10**18 <= number < marks.UNCLAIMED
    table = f"Max file locks            {number}  {number}  locks     ".encode()
    assert marks.ProcessMark(run_id).make_signature().in_limits in table
    assert marks.ProcessMark(run_id, command).make_signature().in_limits in table
    assert marks.ProcessMark(run_id, (command + 1) % 100_000).make_signature().in_limits not in table
    assert marks.ProcessMark(f"{run_id}!").make_signature().in_limits not in table


async def test_a_program_begins_with_its_number(run_id: str, tmp_path: Path) -> None:
    finished = await commands.run_command(["cat", "/proc/self/limits"], cwd=str(tmp_path), run_id=run_id, timeout_s=10)

    limit = marks.find_free_limit()
    assert limit is not None
    number = limit.parse_limit(finished.output.encode())
    assert marks.is_run_number(number)
    assert str(number).startswith(marks.ProcessMark(run_id).make_signature().in_limits.decode().strip())


SCENE = """
import asyncio, sys
from switchtower.tools.processes import marks, orphans, commands as processes
run_id, folder, expected = sys.argv[1:]
async def main():
    scrub = "env -i" if expected == "marked" else ""
    done = await processes.run_command(
        f"{scrub} setsid sleep 1000 >/dev/null 2>&1 & echo hello", cwd=folder, run_id=run_id, timeout_s=10
    )
    assert done.output == "hello\\n", done
    assert (marks.wrap_with_mark(["true"], marks.ProcessMark(run_id, 0)) != ["true"]) == (expected == "marked")
    held = orphans.hold_marked(run_id)
    assert len(held) == 1, held
    await processes.end_run(run_id, grace_s=0.1)
    assert not orphans.has_marked_processes(run_id)
asyncio.run(main())
"""


def play(run_id: str, folder: Path, expected: str, *before: str, **variables: str) -> None:
    played = subprocess.run(
        [*before, sys.executable, "-c", SCENE, run_id, str(folder), expected],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert played.returncode == 0, played.stderr


def test_where_there_is_no_prlimit_programs_are_marked_all_the_same(run_id: str, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "cat", "env", "setsid", "sleep"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)

    play(run_id, tmp_path, "marked", PATH=str(tools))


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="`prlimit` is needed to take all limits")
def test_where_every_limit_is_taken_commands_run_and_are_found_by_their_environment(run_id: str, tmp_path: Path) -> None:
    taken = ["prlimit", "--locks=1000000", "--rttime=1000000000", "--rss=1000000000000", "--"]

    play(run_id, tmp_path, "unmarked", *taken)


def test_a_stranger_with_an_empty_mark_is_nobodys() -> None:
    with pytest.raises(AssertionError):
        orphans.has_marked_processes("")
