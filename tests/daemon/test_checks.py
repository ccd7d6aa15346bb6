"""Acceptance checks as the daemon runs them: in the workspace, within a time, with a bounded output."""

from pathlib import Path
from uuid import uuid4

from switchtower.core import events
from switchtower.host_services import local


async def _check(command: str, folder: Path, *, timeout_s: float = 30, exit_code: int = 0) -> events.CriterionResult:
    criterion = events.Criterion("it", command, exit_code)
    return await local.check_criterion(criterion, events.Workspace(str(folder)), f"run_{uuid4().hex}", timeout_s)


async def test_a_check_runs_in_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    assert await _check("ls", tmp_path) == events.CriterionResult("it", passed=True, exit_code=0, output="here\n")


async def test_a_check_passes_with_the_exit_code_that_is_wanted(tmp_path: Path) -> None:
    assert (await _check("exit 3", tmp_path, exit_code=3)).passed
    assert not (await _check("exit 3", tmp_path)).passed


async def test_a_check_that_takes_too_long_has_not_passed_and_says_so(tmp_path: Path) -> None:
    result = await _check("echo begun; sleep 600", tmp_path, timeout_s=0.3)
    assert not result.passed
    assert result.output.startswith("not finished after 0.3 s\nbegun")


async def test_a_check_whose_folder_is_gone_has_not_passed(tmp_path: Path) -> None:
    result = await _check("true", tmp_path / "gone")
    assert (result.passed, result.exit_code) == (False, 126)
