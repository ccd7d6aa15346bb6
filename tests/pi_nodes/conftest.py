from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pi_nodes.stage import Stage

MakeStage = Callable[..., Awaitable[Stage]]


@pytest.fixture
async def make_stage(tmp_path: Path) -> AsyncIterator[MakeStage]:
    stages: list[Stage] = []

    async def make(*args: Any, **options: Any) -> Stage:
        stage = Stage(tmp_path, *args, **options)
        stages.append(stage)
        await stage.open()
        return stage

    yield make
    for stage in stages:
        await stage.close()


@pytest.fixture
async def stage(make_stage: MakeStage) -> Stage:
    return await make_stage()
