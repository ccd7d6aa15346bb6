"""Whether somebody is part of a run that is under way, and of which."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from switchtower.tools.processes import membership

ROOT = Path(__file__).parents[3]
TIMEOUT = 90

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")


def play(scene: str, folder: Path) -> None:
    words = [sys.executable, "-m", "tests.tools.running.membership_scenes", scene, str(folder)]
    played = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert played.returncode == 0, played.stderr


def test_a_process_is_of_the_run_that_it_was_started_in_and_of_no_other(tmp_path: Path) -> None:
    play("of_a_run", tmp_path)


def test_a_socket_is_a_runs_as_long_as_one_of_its_processes_has_it(tmp_path: Path) -> None:
    play("of_a_socket", tmp_path)


def test_no_change_of_its_number_makes_a_runs_process_the_owners(tmp_path: Path) -> None:
    play("of_a_changed_mark", tmp_path)


def test_an_orphan_with_the_only_runs_number_is_of_that_run(tmp_path: Path) -> None:
    play("of_an_orphan", tmp_path)


def test_where_no_runs_are_known_nobody_is_of_one() -> None:
    assert membership.find_run(os.getpid()) is None
    assert membership.find_run(1) is None
