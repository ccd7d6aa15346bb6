"""A timeout is an outcome like any other: section 11 of the document."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.protocols.pi.ensemble import UNLIMITED, DispatcherHarness

from switchtower.protocols.pi import inbound
from switchtower.protocols.pi.dispatch import ports
from switchtower.protocols.pi.dispatch.limits import DispatchLimits
from switchtower.protocols.pi.errors import SessionBusy

SOON = msgspec.structs.replace(UNLIMITED, read_timeout_s=0.02, command_timeout_s=0.03)


def test_reads_are_short_and_creating_has_no_timeout() -> None:
    limits = DispatchLimits()
    assert limits.get_timeout("get_state") == limits.get_timeout("list_sessions") == 30
    assert limits.get_timeout("create_session") == 0
    assert limits.get_timeout("prompt") == limits.get_timeout("switch_session") == 300


@pytest.mark.parametrize(("command", "after_ms"), [("get_state", 20), ("abort", 30)])
@pytest.mark.parametrize("rest", [False, True])
async def test_a_timeout_is_told_stored_and_replayed_and_the_work_is_aborted(command: str, after_ms: int, rest: bool) -> None:
    ensemble = DispatcherHarness(SOON)
    client = ensemble.make_client()
    aborted = asyncio.Event()

    async def work() -> ports.HandlerResult:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            aborted.set()
        return ports.HandlerResult("never")

    ensemble.handles["c"] = lambda _: ports.HandlerResult(rest=work()) if rest else work()
    answer = await client.ask(command, id="c", sessionId="s")
    assert answer == {
        "type": "response",
        "command": command,
        "success": False,
        "id": "c",
        "error": f"Command '{command}' timed out after {after_ms}ms",
        "timedOut": True,
    }
    async with asyncio.timeout(60):
        await aborted.wait()
    assert await client.ask(command, id="c", sessionId="s") == {**answer, "replayed": True}
    stored = [settlement.receipts[0].outcome["response"] for settlement in ensemble.ledger.settlements]
    assert [response["timedOut"] for response in stored] == [True] * (command == "abort")
    assert ensemble.ledger.versions["s"] == 0
    # and the lane goes on
    assert (await client.ask("compact", sessionId="s"))["success"]


@pytest.mark.requirement("pi:timeout:run-not-covered")
async def test_a_run_is_not_covered_by_the_timeout_of_the_command_that_started_it() -> None:
    ensemble = DispatcherHarness(SOON)
    client = ensemble.make_client()
    run = ensemble.finish_handler("p", is_run=True)
    client.send("prompt", id="p", sessionId="s", message="m")
    # Another command's clock starts later and runs out: the prompt's would have, too.
    ensemble.stall_handler("other")
    assert (await client.ask("abort", id="other", sessionId="s"))["timedOut"]
    run.set_result(ports.HandlerResult())
    await ensemble.wait_until(lambda: len(client.responses) == 2)
    assert (client.responses[1]["id"], client.responses[1]["success"]) == ("p", True)


@pytest.mark.requirement("pi:timeout:waiting-for-people")
async def test_the_time_that_people_take_for_an_answer_does_not_count() -> None:
    ensemble = DispatcherHarness(SOON)
    client = ensemble.make_client()
    busy = asyncio.get_running_loop().create_future()
    tries = iter([True, False])

    def handle(_: inbound.PiRequest) -> ports.HandlerResult:
        if next(tries):
            raise SessionBusy(busy)
        return ports.HandlerResult("done")

    ensemble.handles["p"] = handle
    ensemble.ledger.waited["s"] = 100.0  # before the command came
    client.send("prompt", id="p", sessionId="s", message="m")
    ensemble.ledger.waited["s"] += 3_600.0  # while it waited behind a run that has a question open
    ensemble.ledger.versions["t"] = 0
    other = ensemble.make_client("other")
    for number in range(3):
        ensemble.stall_handler(f"other {number}")
        assert (await other.ask("abort", id=f"other {number}", sessionId="t"))["timedOut"]
    assert client.responses == []
    busy.set_result(None)
    await ensemble.wait_until(lambda: bool(client.responses))
    assert client.responses[0]["data"] == "done"


async def test_late_completion_cannot_overwrite_a_timeout() -> None:
    ensemble = DispatcherHarness(SOON)
    client = ensemble.make_client()
    ended = asyncio.Event()

    async def stubborn() -> ports.HandlerResult:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            ended.set()
        return ports.HandlerResult("too late")

    ensemble.handles["c"] = lambda _: stubborn()
    answer = await client.ask("abort", id="c", sessionId="s")
    async with asyncio.timeout(60):
        await ended.wait()
    assert answer["timedOut"] is True
    assert (await client.ask("abort", id="c", sessionId="s"))["timedOut"] is True
    assert ensemble.list_phases("c").count("command_started") == 1
    assert ensemble.ledger.versions["s"] == 0


async def test_waiting_at_the_head_counts_and_leaves_what_it_waited_for_alone() -> None:
    ensemble = DispatcherHarness(SOON)
    client = ensemble.make_client()
    until: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def busy(_: inbound.PiRequest) -> ports.HandlerResult:
        raise SessionBusy(until)

    ensemble.handles["c"] = busy
    answer = await client.ask("compact", id="c", sessionId="s")
    assert answer["timedOut"] is True
    assert not until.done()
    ensemble.handles.clear()
    assert (await client.ask("compact", sessionId="s"))["success"]


async def test_a_wait_that_is_our_own_ends_with_the_timeout() -> None:
    ensemble = DispatcherHarness(SOON)
    ended = asyncio.Event()

    async def until() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    def busy(_: inbound.PiRequest) -> ports.HandlerResult:
        raise SessionBusy(until())

    ensemble.handles["c"] = busy
    assert (await ensemble.make_client().ask("compact", id="c", sessionId="s"))["timedOut"] is True
    async with asyncio.timeout(60):
        await ended.wait()


async def test_time_in_the_queue_does_not_count() -> None:
    ensemble = DispatcherHarness(SOON)
    client = ensemble.make_client()
    ensemble.stall_handler("a")
    client.send("abort", id="a", sessionId="s")
    client.send("get_state", id="b", sessionId="s")  # its own timeout is shorter than the wait before it
    assert (await ensemble.wait_finished("b"))["success"]
    assert ensemble.list_phases("a")[-1] == "response"


async def test_storing_takes_as_long_as_it_takes() -> None:
    ensemble = DispatcherHarness(SOON)
    ensemble.ledger.gate = asyncio.Event()
    client = ensemble.make_client()
    client.send("abort", id="a", sessionId="s")
    # Two reads elsewhere time out one after the other: by then the command's own time would be over too.
    for id_ in ("first", "second"):
        ensemble.stall_handler(id_)
        client.send("get_state", id=id_, sessionId="elsewhere")
        assert not (await ensemble.wait_finished(id_))["success"]
    ensemble.ledger.gate.set()
    assert (await ensemble.wait_finished("a"))["success"]


async def test_no_timeout_where_none_is_set() -> None:
    ensemble = DispatcherHarness(msgspec.structs.replace(SOON, command_timeout_s=0))
    client = ensemble.make_client()
    works: list[Any] = [ensemble.stall_handler("a"), ensemble.stall_handler("m"), ensemble.stall_handler("r")]
    client.send("abort", id="a", sessionId="s")
    client.send("create_session", id="m")
    client.send("get_state", id="r", sessionId="t")
    await ensemble.wait_finished("r")
    assert ensemble.list_phases("a") == ensemble.list_phases("m") == ["command_accepted", "command_started"]
    for work in works[:2]:
        work.set_result(ports.HandlerResult())
    assert (await ensemble.wait_finished("a"))["success"]
    assert (await ensemble.wait_finished("m"))["success"]


async def test_work_that_is_cancelled_by_others_is_a_failure() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    work = ensemble.finish_handler("p")
    client.send("prompt", id="p", sessionId="s", message="m")
    work.cancel()
    assert (await ensemble.wait_finished("p"))["error"] == "Command was cancelled"
