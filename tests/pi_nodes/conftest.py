from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pi_nodes.stage import PiCluster

MakeStage = Callable[..., Awaitable[PiCluster]]


@pytest.fixture
async def make_pi_cluster(tmp_path: Path) -> AsyncIterator[MakeStage]:
    stages: list[PiCluster] = []

    async def make(*args: Any, **options: Any) -> PiCluster:
        stage = PiCluster(tmp_path, *args, **options)
        stages.append(stage)
        await stage.open()
        return stage

    yield make
    for stage in stages:
        await stage.close()


@pytest.fixture
async def pi_cluster(make_pi_cluster: MakeStage) -> PiCluster:
    return await make_pi_cluster()
