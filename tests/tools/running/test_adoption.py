"""The daemon as the parent of orphans: it ends those that dropped every mark, collects the dead, and leaves alone what is not
a run's."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from tests.tools.running.watching import find_processes_with

from switchtower.tools.processes import commands

ROOT = Path(__file__).parents[3]
TIMEOUT = 90

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")


def play(scene: str, *arguments: object) -> None:
    """In a process of its own."""
    words = [sys.executable, "-m", "tests.tools.running.adoption_scenes", scene, *map(str, arguments)]
    played = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert played.returncode == 0, played.stderr


def test_what_drops_every_mark_ends_with_the_run_that_it_came_from(tmp_path: Path) -> None:
    token = f"token-{uuid4().hex}"
    play("outcasts", tmp_path, token)
    assert {pid: words for pid, words in find_processes_with(token).items() if "hostile.py" in words} == {}


def test_what_the_daemon_starts_for_itself_is_left_alone(tmp_path: Path) -> None:
    play("own_children", tmp_path)


def test_commands_keep_their_exit_codes_while_the_dead_are_collected(tmp_path: Path) -> None:
    play("exit_codes", tmp_path)


def test_the_dead_do_not_pile_up_while_a_run_goes_on(tmp_path: Path) -> None:
    play("the_dead", tmp_path)


async def test_a_daemon_in_another_daemons_run_marks_its_own_and_keeps_the_others_mark(tmp_path: Path) -> None:
    run_id = f"run_{uuid4().hex}"
    try:
        played = await commands.run_command(
            [sys.executable, "-m", "tests.tools.running.adoption_scenes", "nested", str(tmp_path)],
            cwd=str(ROOT),
            run_id=run_id,
            timeout_s=TIMEOUT,
            environment=os.environ,
        )
    finally:
        await asyncio.to_thread(commands.kill_marked, run_id)
    assert played.exit_code == 0, played.output
