"""Daemons in processes of their own, and requests to them as bytes: what a browser would never send can be sent here."""

import pytest

pytest.register_assert_rewrite("tests.web_server.site", "tests.web_server.receiver")

from collections.abc import AsyncIterator  # noqa: E402

from tests.daemon.conftest import connect as connect  # noqa: E402
from tests.daemon.conftest import home as home  # noqa: E402
from tests.daemon.conftest import run_tower as run_tower  # noqa: E402
from tests.daemon.conftest import start_daemon_process as start_daemon_process  # noqa: E402
from tests.daemon.conftest import workspace as workspace  # noqa: E402
from tests.web_server.receiver import WebhookReceiver, open_receiver  # noqa: E402
from tests.web_server.site import built_page as built_page  # noqa: E402
from tests.web_server.site import http_port as http_port  # noqa: E402


@pytest.fixture
async def receiver() -> AsyncIterator[WebhookReceiver]:
    async with open_receiver() as made:
        yield made
