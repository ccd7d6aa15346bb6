"""Daemons in processes of their own, and requests to them as bytes: what a browser would never send can be sent here."""

import pytest

pytest.register_assert_rewrite("tests.web_server.site", "tests.web_server.receiver")

from collections.abc import AsyncIterator  # noqa: E402

from tests.daemon.conftest import connect as connect  # noqa: E402
from tests.daemon.conftest import home as home  # noqa: E402
from tests.daemon.conftest import start as start  # noqa: E402
from tests.daemon.conftest import tower as tower  # noqa: E402
from tests.daemon.conftest import workspace as workspace  # noqa: E402
from tests.web_server.receiver import Receiver, receiving  # noqa: E402
from tests.web_server.site import built as built  # noqa: E402
from tests.web_server.site import site as site  # noqa: E402


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made
