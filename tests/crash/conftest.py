"""Crash tests: as many rounds as asked for. `--crash-rounds N` and `--crash-seed S`, or CRASH_ROUNDS and CRASH_SEED.

The flags are known when this folder is named on the command line; the variables always are.
"""

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.crash.story", "tests.crash.world")

ROUNDS = 200


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("crash")
    group.addoption("--crash-rounds", type=int, help=f"how often a daemon is killed and started again [default: {ROUNDS}]")
    group.addoption("--crash-seed", type=int, help="where the randomness of the crash tests begins")


@pytest.fixture(scope="session")
def crash_rounds(pytestconfig: pytest.Config) -> int:
    return int(pytestconfig.getoption("crash_rounds", None) or os.environ.get("CRASH_ROUNDS") or ROUNDS)


@pytest.fixture(scope="session")
def crash_seed(pytestconfig: pytest.Config) -> int:
    given = pytestconfig.getoption("crash_seed", None) or os.environ.get("CRASH_SEED")
    return int(given) if given else random.SystemRandom().randrange(1_000_000)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A home with a short name, because the paths of sockets must be short."""
    made = Path(tempfile.mkdtemp(prefix="tw-", dir="/tmp"))
    yield made
    if (log := made / "logs" / "tower.log").exists():
        print("The end of the daemon's log:", *log.read_text().splitlines()[-30:], sep="\n")
    shutil.rmtree(made)
