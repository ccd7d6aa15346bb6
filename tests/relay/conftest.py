"""The stage of these tests: see `stage.py`."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.relay.stage", "tests.relay.seen")

from tests.relay.stage import relay_network as relay_network  # noqa: E402
from tests.relay.stage import shared_relay_network as shared_relay_network  # noqa: E402
from tests.relay.stage import unique_name as unique_name  # noqa: E402


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def without_shell_profile(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs begin with a login shell: what the profile of whoever tests would do takes time, and may not survive being killed."""
    monkeypatch.setenv("HOME", str(empty_home))
