"""A pi command whose answer dies with the node that decided: it happens once, and its asker hears of it."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.runtime.conftest import make_house as make_house
from tests.runtime.parts import House, MakeHouse

from switchtower.core import commands, errors, events, journal, tower
from switchtower.protocols.pi import asking
from switchtower.testing.sessions import OWNER, start_session

SESSION = "sess_1"


class Dying:
    """A tower whose next answers are lost on the way: before what was asked has happened, or after."""

    def __init__(self, runtime: tower.Tower, *losses: str) -> None:
        self._runtime = runtime
        self._losses = list(losses)
        self.asked: list[type] = []

    async def ask(self, command: commands.AnyCommand) -> tower.Outcome:
        self.asked.append(type(command))
        loss = "" if isinstance(command, commands.CancelRun) or not self._losses else self._losses.pop(0)
        if loss == "before":
            raise errors.OutcomeUnknown()
        outcome = await self._runtime.ask(command)
        if loss == "after":
            raise errors.OutcomeUnknown()
        return outcome

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)


def titled(*receipts: journal.Receipt, key: str = "k", state: str = "begun") -> commands.ConfigureSession:
    left = journal.Receipt("pi", key, "f" * 32, {"state": state}, 2**50, replaces=True)
    return commands.ConfigureSession(session_id=SESSION, actor=OWNER, title="new", receipts=receipts or (left,))


@pytest.fixture
async def make_tower(make_house: MakeHouse) -> Callable[..., Any]:
    house: House = await make_house()
    await house.ask(start_session(SESSION))
    return lambda *losses: Dying(house.runtime, *losses)


async def changes(tower_: Any) -> int:
    entries = await tower_.entries(SESSION, 0, 100)
    return [entry.kind for entry in entries].count(events.SessionConfigured.kind)


async def test_what_happened_before_the_answer_was_lost_is_not_asked_again(make_tower: Callable[..., Any]) -> None:
    dying = make_tower("after")
    assert await asking.Asking(dying).ask(titled()) == {}
    assert dying.asked == [commands.ConfigureSession, commands.CancelRun]
    assert await changes(dying) == 1


async def test_what_did_not_happen_is_asked_again(make_tower: Callable[..., Any]) -> None:
    dying = make_tower("before")
    assert "after_seq" in await asking.Asking(dying).ask(titled())
    assert await changes(dying) == 1


async def test_a_receipt_of_its_beginning_is_not_taken_for_one_of_its_end(make_tower: Callable[..., Any]) -> None:
    dying = make_tower("", "before")
    await asking.Asking(dying).ask(titled())
    assert "after_seq" in await asking.Asking(dying).ask(titled(state="finished"))
    assert await changes(dying) == 2


async def test_it_is_not_asked_for_ever(make_tower: Callable[..., Any]) -> None:
    dying = make_tower("before", "before", "before")
    with pytest.raises(errors.OutcomeUnknown):
        await asking.Asking(dying).ask(titled())
    assert await changes(dying) == 0


async def test_a_command_without_an_identity_is_not_asked_again(make_tower: Callable[..., Any]) -> None:
    dying = make_tower("before")
    with pytest.raises(errors.OutcomeUnknown):
        await asking.Asking(dying).ask(commands.ConfigureSession(session_id=SESSION, actor=OWNER, title="new"))
    assert dying.asked == [commands.ConfigureSession]


async def test_a_refusal_is_a_refusal(make_tower: Callable[..., Any]) -> None:
    with pytest.raises(errors.SessionNotFound):
        await asking.Asking(make_tower()).ask(commands.ConfigureSession(session_id="sess_none", actor=OWNER, title="x"))


async def test_who_may_not_serve_any_more_asks_nothing(make_tower: Callable[..., Any]) -> None:
    dying = make_tower("before")
    answers = iter([True, False])
    with pytest.raises(errors.ShuttingDown):
        await asking.Asking(dying, lambda: next(answers)).ask(titled())
    assert dying.asked == [commands.ConfigureSession]
    assert await changes(dying) == 0
