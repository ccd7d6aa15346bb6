"""Nodes without their doors (`parts.py`), and nodes as processes on a real PostgreSQL."""

import pytest

pytest.register_assert_rewrite("tests.relay_nodes.parts", "tests.relay.stage")

from tests.nodes.conftest import shared_server as shared_server  # noqa: E402
from tests.relay.conftest import empty_home as empty_home  # noqa: E402
from tests.relay.conftest import without_shell_profile as without_shell_profile  # noqa: E402
from tests.relay.stage import relay_network as relay_network  # noqa: E402
