"""The stage of these tests: see `stage.py`."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.relay.stage", "tests.relay.seen")

from tests.relay.stage import shared as shared  # noqa: E402
from tests.relay.stage import stage as stage  # noqa: E402
from tests.relay.stage import unique as unique  # noqa: E402


@pytest.fixture(scope="session")
def nobodys_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def no_profile(nobodys_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs begin with a login shell: what the profile of whoever tests would do takes time, and may not survive being killed."""
    monkeypatch.setenv("HOME", str(nobodys_home))
