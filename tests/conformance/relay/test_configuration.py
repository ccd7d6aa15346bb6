"""The names by which the public programs are configured, and what is ours instead."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.conformance.relay.conftest import RelayDaemon
from tests.conformance.relay.fake_hub import FakeHub


@pytest.mark.requirement("relay:host:server-base-url")
def test_the_hub_is_found_under_the_public_hosts_name_for_it() -> None:
    hub = FakeHub()
    daemon = RelayDaemon({"SERVER_BASE_URL": hub.url})
    try:
        daemon.start()
        hub.until("host.heartbeat")
        assert urlsplit(hub.paths[0]).path == "/ws/host"
    finally:
        daemon.discard()
        hub.close()
