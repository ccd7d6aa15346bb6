"""Events are kept within bounds: the beginning and the end of them, in their order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.protocols.rep import driver


async def test_a_small_event_does_not_overtake_a_big_one() -> None:
    collected = driver.EventCollector(max_events=100, max_bytes=200)

    for name, size in [("a", 60), ("big", 90), ("b", 1)]:
        await collected.add([{"type": name}], size)

    assert [event["type"] for event in collected.list_kept()] == ["a", "big", "b"]
    assert collected.left_out == 0


@pytest.mark.requirement("rep:poll:bounded")
@given(sizes=st.lists(st.integers(0, 60), max_size=60))
async def test_what_is_kept_is_in_order_within_bounds_and_the_rest_is_counted(sizes: list[int]) -> None:
    collected = driver.EventCollector(max_events=20, max_bytes=200)

    for number, size in enumerate(sizes):
        await collected.add([{"type": "log", "number": number}], size)

    kept = [event["number"] for event in collected.list_kept()]
    assert kept == sorted(kept)
    assert len(kept) + collected.left_out == len(sizes)
    assert len(kept) <= 20
    assert sum(sizes[number] for number in kept) <= 200
    assert not sizes or kept[-1] == len(sizes) - 1
