"""Models as sessions get them: through a catalog, over HTTP on loopback, from a server that follows a script."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.models.parts import SECRET_KEY, ScriptedProvider

from switchtower.models import connection
from switchtower.models.catalog import Catalog
from switchtower.testing import model_script as script
from switchtower.testing.model_server import ModelServer


@pytest.fixture
async def provide_model() -> AsyncIterator[Any]:
    """`await provide(answer, …)`: a provider that gives these answers, one a request, and a model that asks it.

    `dialect` is the API it speaks; anything else by name is a key of the `[models.work]` table.
    """
    async with AsyncExitStack() as stack:

        async def make(
            *answers: script.ScriptedAnswer,
            dialect: str = "openai",
            patience: connection.ConnectionTimeouts = connection.ConnectionTimeouts(),  # noqa: B008
            clock: Callable[[], float] = time.monotonic,
            **table: Any,
        ) -> ScriptedProvider:
            server = await stack.enter_async_context(ModelServer(answers))
            entry = {
                "provider": dialect,
                "base_url": server.url if dialect not in ("anthropic", "google") else server.origin,
                "model": "scripted",
                "key_env": "WORK_KEY",
                **table,
            }
            catalog = Catalog({"work": entry}, {"WORK_KEY": SECRET_KEY}, timeouts=patience, clock=clock)
            stack.push_async_callback(catalog.close)
            return ScriptedProvider(server, catalog, await catalog.open_model("work", None))

        yield make
