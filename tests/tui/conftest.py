"""Daemons for the app alone: what others leave undecided would come to the front here."""

import pytest
from tests.conformance.daemons import Daemon
from tests.conftest import StartDaemon

OURS = 86_399.0
"""An approval's time that no other test asks for, so that the daemon is nobody else's."""


@pytest.fixture
def pushd(start_daemon: StartDaemon) -> Daemon:
    return start_daemon(approval_timeout=OURS)


@pytest.fixture
def slow(start_daemon: StartDaemon) -> Daemon:
    """Its model takes its time."""
    return start_daemon(approval_timeout=OURS, demo_delay_ms=20)
