"""A runtime over a real journal, with engines that each test scripts. The parts are in `parts.py`."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.runtime.parts import MakeRuntime, RuntimeHarness


@pytest.fixture
async def make_runtime() -> AsyncIterator[MakeRuntime]:
    houses: list[RuntimeHarness] = []

    async def make(*args: object, **options: object) -> RuntimeHarness:
        house = RuntimeHarness(*args, **options)  # type: ignore[arg-type]
        houses.append(house)
        await house.open()
        return house

    yield make
    for house in reversed(houses):
        await house.close()


@pytest.fixture
async def runtime_harness(make_runtime: Callable[[], Awaitable[RuntimeHarness]]) -> RuntimeHarness:
    return await make_runtime()
