"""Daemons with all their doors open, for who wants more than push."""

from tests.daemon.conftest import home as home
from tests.daemon.conftest import start_daemon_process as start_daemon_process
from tests.daemon.pi_stage import pi_harness as pi_harness
