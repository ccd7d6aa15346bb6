from collections.abc import AsyncIterator

import pytest
from tests.runtime.homes.town import Town


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    made = Town()
    yield made
    await made.close()
