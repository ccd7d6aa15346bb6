"""Nodes without their doors (`parts.py`), and nodes as processes on a real PostgreSQL."""

import pytest

pytest.register_assert_rewrite("tests.relay_nodes.parts", "tests.relay.stage")

from tests.nodes.conftest import shared_server as shared_server  # noqa: E402
from tests.relay.conftest import no_profile as no_profile  # noqa: E402
from tests.relay.conftest import nobodys_home as nobodys_home  # noqa: E402
from tests.relay.stage import stage as stage  # noqa: E402
