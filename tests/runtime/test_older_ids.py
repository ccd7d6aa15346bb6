"""Sessions that an older release stored under an id which a pi client chose: only a protocol that accepts such ids sees them."""

import pytest
from tests.runtime.parts import RuntimeHarness, start_session


@pytest.mark.requirement("pi:session:older-ids")
async def test_a_session_with_an_older_id_is_listed_only_where_any_id_is_accepted() -> None:
    house = RuntimeHarness()
    await house.open()
    try:
        for session_id in ("s1", "sess_01", "sess with a space"):
            await house.ask(start_session(session_id))
        assert [card.session_id for card in await house.runtime.list_cards(10)] == ["sess_01"]
        found = {card.session_id for card in await house.runtime.list_cards(10, any_id=True)}
        assert found == {"s1", "sess_01", "sess with a space"}
    finally:
        await house.close()
