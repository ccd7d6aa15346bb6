from collections.abc import AsyncIterator

import pytest
from tests.runtime.homes.town import RuntimeCluster


@pytest.fixture
async def runtime_cluster() -> AsyncIterator[RuntimeCluster]:
    made = RuntimeCluster()
    yield made
    await made.close()
