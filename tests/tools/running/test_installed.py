"""The programs that we run ourselves are those of the system, wherever the daemon happens to stand."""

from pathlib import Path

import pytest

from switchtower.tools.processes import marks


def write_program(path: Path) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("search_path", [".:{bin}", ":{bin}", "workspace:{bin}", "{bin}:."])
def test_a_program_of_the_current_folder_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search_path: str
) -> None:
    write_program(tmp_path / "tool")
    write_program(tmp_path / "workspace/tool")
    real = write_program(tmp_path / "bin/tool")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", search_path.format(bin=tmp_path / "bin"))

    assert marks.find_program("tool") == real


@pytest.mark.parametrize("search_path", ["", ".", "{empty}"])
def test_a_program_that_is_nowhere_else_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search_path: str
) -> None:
    write_program(tmp_path / "tool")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", search_path.format(empty=tmp_path / "empty"))

    assert marks.find_program("tool") is None
