"""Daemons for the app alone: what others leave undecided would come to the front here."""

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import StartDaemon

OURS = 86_399.0
"""An approval's time that no other test asks for, so that the daemon is nobody else's."""


@pytest.fixture
def push_daemon(start_daemon: StartDaemon) -> ManagedDaemon:
    return start_daemon(approval_timeout=OURS)


@pytest.fixture
def slow_daemon(start_daemon: StartDaemon) -> ManagedDaemon:
    """Its model takes its time."""
    return start_daemon(approval_timeout=OURS, demo_delay_ms=20)
