"""The stage of these tests: see `stage.py`."""

import pytest

pytest.register_assert_rewrite("tests.relay.stage")

from tests.relay.stage import shared as shared  # noqa: E402
from tests.relay.stage import stage as stage  # noqa: E402
from tests.relay.stage import unique as unique  # noqa: E402
