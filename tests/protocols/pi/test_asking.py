"""What a pi command asks of the tower: among several nodes it happens once, however many houses ask for it."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.runtime.conftest import make_runtime as make_runtime
from tests.runtime.parts import MakeRuntime, RuntimeHarness

from switchtower.core import commands, errors, events
from switchtower.core.ports import journal
from switchtower.protocols.pi.dispatch import ports, receipts
from switchtower.protocols.pi.errors import PiCommandError
from switchtower.testing.session_driver import OWNER, start_session

SESSION = "sess_1"
NAME = '["id","",null,"c1"]'


def make_rename(title: str = "new", *, name: str = NAME, fingerprint: str = "f", **outcome: Any) -> commands.ConfigureSession:
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


async def resolve(command: str, session_id: str | None, facts: dict[str, Any]) -> ports.HandlerResult:
    return ports.HandlerResult(data=(command, session_id, facts["data"]))


class ExactlyOnceHarness:
    def __init__(self, runtime_harness: RuntimeHarness) -> None:
        self.runtime = runtime_harness

    def make_submission(self, holds: Callable[[], bool] | None = None) -> receipts.CommandSubmitter:
        made = receipts.CommandSubmitter(self.runtime.runtime, holds)
        made.resolve = resolve
        return made

    async def list_titles(self) -> list[str]:
        entries = await self.runtime.runtime.read_entries(SESSION, 0, 100)
        return [
            entry.data.decode().partition('"title":"')[2][:3] for entry in entries if entry.kind == events.SessionConfigured.kind
        ]


class ClusterStub:
    """Of a tower's nodes this is enough: that there are some."""


@pytest.fixture
async def exactly_once_harness(make_runtime: MakeRuntime) -> ExactlyOnceHarness:
    house = await make_runtime()
    await house.ask(start_session(SESSION))
    house.runtime.nodes = ClusterStub()  # type: ignore[assignment]
    return ExactlyOnceHarness(house)


async def wait_for_outcome(asker: receipts.CommandSubmitter, command: commands.AnyCommand) -> ports.HandlerResult:
    with pytest.raises(ports.CommandAlreadyStarted) as before:
        await asker.submit(command)
    return await before.value.ended


async def test_the_second_house_that_asks_changes_nothing_and_is_told_what_the_first_began(
    exactly_once_harness: ExactlyOnceHarness,
) -> None:
    await exactly_once_harness.make_submission().submit(make_rename())
    second = await wait_for_outcome(exactly_once_harness.make_submission(), make_rename(facts={"data": 8}))
    assert second.data == ("set_session_name", SESSION, 7)
    assert await exactly_once_harness.list_titles() == ["new"]


async def test_a_command_that_the_first_house_has_ended_is_answered_as_there(exactly_once_harness: ExactlyOnceHarness) -> None:
    await exactly_once_harness.make_submission().submit(make_rename())
    response = {"type": "response", "command": "set_session_name", "success": True, "data": {"a": 1}}
    await exactly_once_harness.make_submission().submit(make_rename("end", state="finished", response=response))
    second = await wait_for_outcome(exactly_once_harness.make_submission(), make_rename())
    assert (bytes(second.data), second.settled) == (b'{"a":1}', True)


async def test_a_command_that_failed_there_fails_here(exactly_once_harness: ExactlyOnceHarness) -> None:
    await exactly_once_harness.make_submission().submit(make_rename())
    response = {"type": "response", "command": "set_session_name", "success": False, "error": "no"}
    await exactly_once_harness.make_submission().submit(make_rename("end", state="finished", response=response))
    with pytest.raises(PiCommandError, match="no"):
        await wait_for_outcome(exactly_once_harness.make_submission(), make_rename())


async def test_its_end_is_stored_once_and_tells_the_same(exactly_once_harness: ExactlyOnceHarness) -> None:
    response = {"type": "response", "command": "set_session_name", "success": True}
    first = await exactly_once_harness.make_submission().submit(make_rename("end", state="finished", response=response))
    second = await exactly_once_harness.make_submission().submit(make_rename("end", state="finished", response=response))
    assert second == {**first, "replayed": True}
    assert await exactly_once_harness.list_titles() == ["end"]


async def test_an_id_that_means_something_else_by_now_is_asked_for(exactly_once_harness: ExactlyOnceHarness) -> None:
    await exactly_once_harness.make_submission().submit(make_rename("one"))
    await exactly_once_harness.make_submission().submit(make_rename("two", fingerprint="g"))
    await exactly_once_harness.make_submission().submit(make_rename("tri", name='["id","x",null,"c1"]'))
    assert await exactly_once_harness.list_titles() == ["one", "two", "tri"]


async def test_what_has_no_receipt_is_asked_as_it_is(exactly_once_harness: ExactlyOnceHarness) -> None:
    for _ in range(2):
        await exactly_once_harness.make_submission().submit(
            commands.ConfigureSession(session_id=SESSION, actor=OWNER, title="new")
        )
    assert await exactly_once_harness.list_titles() == ["new", "new"]


async def test_alone_nothing_more_is_stored_for_it(exactly_once_harness: ExactlyOnceHarness) -> None:
    exactly_once_harness.runtime.runtime.nodes = None
    await exactly_once_harness.make_submission().submit(make_rename())
    assert [len(append.receipts) for append in exactly_once_harness.runtime.journal.appends][-1] == 1


async def test_who_may_not_serve_any_more_asks_nothing(exactly_once_harness: ExactlyOnceHarness) -> None:
    with pytest.raises(errors.ShuttingDown):
        await exactly_once_harness.make_submission(lambda: False).submit(make_rename())
    assert await exactly_once_harness.list_titles() == []


async def test_a_refusal_is_a_refusal(exactly_once_harness: ExactlyOnceHarness) -> None:
    with pytest.raises(errors.SessionNotFound):
        await exactly_once_harness.make_submission().submit(
            commands.ConfigureSession(session_id="sess_none", actor=OWNER, title="x")
        )
