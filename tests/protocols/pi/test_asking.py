"""What a pi command asks of the tower: among several nodes it happens once, however many houses ask for it."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.runtime.conftest import make_house as make_house
from tests.runtime.parts import House, MakeHouse

from switchtower.core import commands, errors, events, journal
from switchtower.protocols.pi import asking
from switchtower.protocols.pi.order import ports
from switchtower.testing.sessions import OWNER, start_session

SESSION = "sess_1"
NAME = '["id","",null,"c1"]'


def titled(title: str = "new", *, name: str = NAME, fingerprint: str = "f", **outcome: Any) -> commands.ConfigureSession:
    facts = {
        "state": "begun",
        "command": "set_session_name",
        "sessionId": SESSION,
        "ids": ["c1"],
        "keys": [],
        "facts": {"data": 7},
    }
    receipt = journal.Receipt("pi", name, fingerprint, {**facts, **outcome}, 2**50, replaces=True)
    return commands.ConfigureSession(session_id=SESSION, actor=OWNER, title=title, receipts=(receipt,))


async def resolve(command: str, session_id: str | None, facts: dict[str, Any]) -> ports.Handled:
    return ports.Handled(data=(command, session_id, facts["data"]))


class Stage:
    def __init__(self, house: House) -> None:
        self.house = house

    def asker(self, holds: Callable[[], bool] | None = None) -> asking.Asking:
        made = asking.Asking(self.house.runtime, holds)
        made.resolve = resolve
        return made

    async def titles(self) -> list[str]:
        entries = await self.house.runtime.entries(SESSION, 0, 100)
        return [
            entry.data.decode().partition('"title":"')[2][:3] for entry in entries if entry.kind == events.SessionConfigured.kind
        ]


class Alive:
    """Of a tower's nodes this is enough: that there are some."""


@pytest.fixture
async def stage(make_house: MakeHouse) -> Stage:
    house = await make_house()
    await house.ask(start_session(SESSION))
    house.runtime.nodes = Alive()  # type: ignore[assignment]
    return Stage(house)


async def how_it_ended(asker: asking.Asking, command: commands.AnyCommand) -> ports.Handled:
    with pytest.raises(ports.BegunBefore) as before:
        await asker.ask(command)
    return await before.value.ended


async def test_the_second_house_that_asks_changes_nothing_and_is_told_what_the_first_began(stage: Stage) -> None:
    await stage.asker().ask(titled())
    second = await how_it_ended(stage.asker(), titled(facts={"data": 8}))
    assert second.data == ("set_session_name", SESSION, 7)
    assert await stage.titles() == ["new"]


async def test_a_command_that_the_first_house_has_ended_is_answered_as_there(stage: Stage) -> None:
    await stage.asker().ask(titled())
    response = {"type": "response", "command": "set_session_name", "success": True, "data": {"a": 1}}
    await stage.asker().ask(titled("end", state="finished", response=response))
    second = await how_it_ended(stage.asker(), titled())
    assert (bytes(second.data), second.settled) == (b'{"a":1}', True)


async def test_a_command_that_failed_there_fails_here(stage: Stage) -> None:
    await stage.asker().ask(titled())
    response = {"type": "response", "command": "set_session_name", "success": False, "error": "no"}
    await stage.asker().ask(titled("end", state="finished", response=response))
    with pytest.raises(ports.Refused, match="no"):
        await how_it_ended(stage.asker(), titled())


async def test_its_end_is_stored_once_and_tells_the_same(stage: Stage) -> None:
    response = {"type": "response", "command": "set_session_name", "success": True}
    first = await stage.asker().ask(titled("end", state="finished", response=response))
    second = await stage.asker().ask(titled("end", state="finished", response=response))
    assert second == {**first, "replayed": True}
    assert await stage.titles() == ["end"]


async def test_an_id_that_means_something_else_by_now_is_asked_for(stage: Stage) -> None:
    await stage.asker().ask(titled("one"))
    await stage.asker().ask(titled("two", fingerprint="g"))
    await stage.asker().ask(titled("tri", name='["id","x",null,"c1"]'))
    assert await stage.titles() == ["one", "two", "tri"]


async def test_what_has_no_receipt_is_asked_as_it_is(stage: Stage) -> None:
    for _ in range(2):
        await stage.asker().ask(commands.ConfigureSession(session_id=SESSION, actor=OWNER, title="new"))
    assert await stage.titles() == ["new", "new"]


async def test_alone_nothing_more_is_stored_for_it(stage: Stage) -> None:
    stage.house.runtime.nodes = None
    await stage.asker().ask(titled())
    assert [len(append.receipts) for append in stage.house.journal.appends][-1] == 1


async def test_who_may_not_serve_any_more_asks_nothing(stage: Stage) -> None:
    with pytest.raises(errors.ShuttingDown):
        await stage.asker(lambda: False).ask(titled())
    assert await stage.titles() == []


async def test_a_refusal_is_a_refusal(stage: Stage) -> None:
    with pytest.raises(errors.SessionNotFound):
        await stage.asker().ask(commands.ConfigureSession(session_id="sess_none", actor=OWNER, title="x"))
