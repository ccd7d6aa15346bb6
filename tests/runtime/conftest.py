"""A runtime over a real journal, with engines that each test scripts. The parts are in `parts.py`."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.runtime.parts import House, MakeHouse


@pytest.fixture
async def make_house() -> AsyncIterator[MakeHouse]:
    houses: list[House] = []

    async def make(*args: object, **options: object) -> House:
        house = House(*args, **options)  # type: ignore[arg-type]
        houses.append(house)
        await house.open()
        return house

    yield make
    for house in reversed(houses):
        await house.close()


@pytest.fixture
async def house(make_house: Callable[[], Awaitable[House]]) -> House:
    return await make_house()
