"""Daemons with all their doors open, for who wants more than push."""

from tests.daemon.conftest import home as home
from tests.daemon.conftest import start as start
from tests.daemon.pi_stage import stage as stage
