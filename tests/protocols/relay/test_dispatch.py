"""What is asked of runs on other hosts goes over the host's line as it was said, and what comes back is for who asked alone."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.protocols.relay.hall import HubHarness, MemoryHost, open_hub

from switchtower.core import commands, events
from switchtower.core import errors as core_errors
from switchtower.protocols.relay import errors, messages, wire_values
from switchtower.protocols.relay.hub import connected_hosts
from switchtower.protocols.relay.hub import dispatcher as dispatching
from switchtower.protocols.relay.hub.dispatcher import NO_SENDER, RequestSender
from switchtower.testing.session_driver import OWNER

ANN = events.Actor(name="ann", via="web")
SAID_BY_ANN = {"actor": "web", "by": "ann"}
STOP = messages.Stop()


@pytest.fixture
async def hub_harness() -> AsyncIterator[HubHarness]:
    async with open_hub() as hall:
        yield hall


class DispatchApp:
    """One who asks, and keeps what it is told of refusals."""

    def __init__(self, raw: bytes = b"{}") -> None:
        self.refusals: list[tuple[str, dict[str, Any]]] = []
        self.sender = RequestSender(msgspec.Raw(raw), lambda host_id, run_id, problem: self.refusals.append((run_id, problem)))


async def request_stop(hub_harness: HubHarness, host: MemoryHost, app: DispatchApp, run_id: str = "run-7") -> str:
    """The number that the host got with it."""
    await hub_harness.dispatch.send(host.host_id, "run.stop", run_id, STOP, ANN, app.sender)
    return str((await host.list_messages())["data"]["command_id"])


# Commands


async def test_a_command_arrives_with_all_that_was_said_and_with_who_said_it(hub_harness: HubHarness) -> None:
    host, app = (
        await hub_harness.connect_host("a"),
        DispatchApp(b'{"cols":"80","new":{"er":[1]},"actor":"root","by":"root","command_id":"1"}'),
    )
    await hub_harness.dispatch.send("a", "run.resize", "run-7", messages.Resize(cols=80, rows=24), ANN, app.sender)
    told = await host.list_messages()
    assert told.pop("ts").endswith("Z")
    assert told == {
        "type": "run.resize",
        "host_id": "a",
        "run_id": "run-7",
        "data": {"cols": 80, "rows": 24, "new": {"er": [1]}, **SAID_BY_ANN, "command_id": told["data"]["command_id"]},
    }


async def test_what_was_not_said_is_not_told(hub_harness: HubHarness) -> None:
    host = await hub_harness.connect_host("a")
    await hub_harness.dispatch.send("a", "run.permission.approve", "run-7", messages.Decide(request_id="q"), ANN, NO_SENDER)
    assert (await host.list_messages())["data"] == {"request_id": "q", **SAID_BY_ANN}


async def test_a_refusal_reaches_who_asked_once_and_nobody_else(hub_harness: HubHarness) -> None:
    host, asker, other = await hub_harness.connect_host("a"), DispatchApp(), DispatchApp()
    command_id = await request_stop(hub_harness, host, asker)
    await request_stop(hub_harness, host, other)
    for _ in range(2):
        host.send_message("run.error", "run-7", command="run.stop", error="run has exited", more=1, command_id=command_id)
    await host.drain()
    assert asker.refusals == [("run-7", {"command": "run.stop", "error": "run has exited", "more": 1})]
    assert other.refusals == []


async def test_a_host_cannot_refuse_what_was_asked_of_another(hub_harness: HubHarness) -> None:
    host, forger, app = await hub_harness.connect_host("a"), await hub_harness.connect_host("b"), DispatchApp()
    command_id = await request_stop(hub_harness, host, app)
    for number in range(100):
        forger.send_message("run.error", "run-7", error="forged", command_id=str(number))
    await forger.drain()
    assert app.refusals == []
    host.send_message("run.error", "run-7", error="true", command_id=command_id)
    await host.drain()
    assert app.refusals == [("run-7", {"error": "true"})]


async def test_a_refusal_is_of_the_run_that_it_was_asked_of_whatever_the_host_calls_it(hub_harness: HubHarness) -> None:
    host, app = await hub_harness.connect_host("a"), DispatchApp()
    command_id = await request_stop(hub_harness, host, app)
    host.send_message("run.error", "another's", error="no", command_id=command_id)
    await host.drain()
    assert app.refusals == [("run-7", {"error": "no"})]


@pytest.mark.parametrize("command_id", [None, 1, 1.0, True, "", "01", "x", [], ["1"], {}, {"1": "1"}], ids=repr)
async def test_a_refusal_without_our_number_is_nobodys(hub_harness: HubHarness, command_id: object) -> None:
    host, app = await hub_harness.connect_host("a"), DispatchApp()
    assert await request_stop(hub_harness, host, app) == "1"
    host.send_message("run.error", "run-7", error="no", command_id=command_id)
    host.send_message("run.error", "run-7", error="no")
    await host.drain()
    assert app.refusals == []


async def test_of_commands_that_no_host_answers_only_so_many_are_remembered(hub_harness: HubHarness) -> None:
    host, first, second, last = await hub_harness.connect_host("a"), DispatchApp(), DispatchApp(), DispatchApp()
    numbers = [await request_stop(hub_harness, host, first), await request_stop(hub_harness, host, second)]
    for _ in range(dispatching.MAX_PENDING_COMMANDS - 2):
        await hub_harness.dispatch.send("a", "run.stop", "run-7", STOP, ANN, DispatchApp().sender)
        await host.list_messages()
    numbers.append(await request_stop(hub_harness, host, last))
    for number in numbers:
        host.send_message("run.error", "run-7", error="no", command_id=number)
    await host.drain()
    assert first.refusals == [], "the oldest was forgotten"
    assert second.refusals == last.refusals == [("run-7", {"error": "no"})]


async def test_a_command_to_a_host_that_is_away_is_refused_at_once(hub_harness: HubHarness) -> None:
    host, app = await hub_harness.connect_host("a"), DispatchApp()
    host.stream.abort()
    await host.is_cut()
    with pytest.raises(errors.HostOffline, match="host offline"):
        await hub_harness.dispatch.send("a", "run.stop", "run-7", STOP, ANN, app.sender)
    with pytest.raises(errors.HostOffline, match="host offline"):
        await hub_harness.dispatch.call("a", "rpc.fs.read", "run-7", messages.FsRead("q", "x"), ANN, NO_SENDER)


# Calls


def start_call(hub_harness: HubHarness, request_id: str = "q", sender: RequestSender = NO_SENDER) -> "asyncio.Future[Any]":
    asked = messages.FsRead(request_id, "notes.txt")
    return asyncio.ensure_future(hub_harness.dispatch.call("a", "rpc.fs.read", "run-7", asked, ANN, sender))


async def test_a_call_has_the_hosts_result(hub_harness: HubHarness) -> None:
    host = await hub_harness.connect_host("a")
    call = start_call(hub_harness, sender=RequestSender(msgspec.Raw(b'{"encoding":"latin-1"}')))
    told = await host.list_messages()
    assert (told["type"], told["run_id"], told["host_id"]) == ("rpc.fs.read", "run-7", "a")
    assert told["data"] == {"request_id": "q", "path": "notes.txt", "encoding": "latin-1", **SAID_BY_ANN}
    host.respond(told, result={"content": "hello"})
    assert await call == {"content": "hello"}
    # Its id is free again.
    call = start_call(hub_harness)
    host.respond(await host.list_messages(), result=7, error=None)
    assert await call == 7


@pytest.mark.parametrize(
    ("told", "heard"), [("path must be relative", "path must be relative"), ("", "failed"), (None, "failed")]
)
async def test_a_call_that_the_host_refuses_is_refused_in_its_words(
    hub_harness: HubHarness, told: str | None, heard: str
) -> None:
    host = await hub_harness.connect_host("a")
    call = start_call(hub_harness)
    host.respond(await host.list_messages(), ok=False, error=told)
    with pytest.raises(errors.RelayError) as refusal:
        await call
    assert refusal.value.text == heard


async def test_who_waits_is_told_when_the_host_goes_or_comes_anew(hub_harness: HubHarness) -> None:
    host = await hub_harness.connect_host("a")
    gone = start_call(hub_harness)
    await host.list_messages()
    await hub_harness.connect_host("a")
    with pytest.raises(errors.HostOffline, match=errors.HOST_GONE):
        await gone
    host = await hub_harness.connect_host("a")
    gone = start_call(hub_harness)
    await host.list_messages()
    host.stream.abort()
    with pytest.raises(errors.HostOffline, match=errors.HOST_GONE):
        await gone


async def test_an_id_in_use_and_more_calls_than_a_host_answers_are_refused(hub_harness: HubHarness) -> None:
    host = await hub_harness.connect_host("a")
    waiting = [start_call(hub_harness, f"q{number}") for number in range(connected_hosts.MAX_PENDING_CALLS)]
    asked = [await host.list_messages() for _ in waiting]
    with pytest.raises(errors.RelayError, match="already in use"):
        await start_call(hub_harness, "q0")
    with pytest.raises(errors.RelayError, match="too many calls"):
        await start_call(hub_harness, "one more")
    for frame in asked:
        host.respond(frame, result=frame["data"]["request_id"])
    assert await asyncio.gather(*waiting) == [f"q{number}" for number in range(connected_hosts.MAX_PENDING_CALLS)]


async def test_another_hosts_answer_is_no_answer(hub_harness: HubHarness) -> None:
    host, forger = await hub_harness.connect_host("a"), await hub_harness.connect_host("b")
    call = start_call(hub_harness)
    told = await host.list_messages()
    forger.respond(told, result="forged")
    await forger.drain()
    host.respond(told, result="true")
    assert await call == "true"


# What other protocols ask

SESSION = wire_values.parse_run_id("run-7")
REQUEST = "00000000-0000-0000-0000-00000000002a"
APPROVAL = wire_values.parse_request_id(REQUEST)
SAID_BY_OWNER = {"actor": "cli", "by": "owner"}
RUN = wire_values.make_core_run_id(SESSION)


def make_command(kind: type[commands.Command], **fields: Any) -> Any:
    return kind(session_id=SESSION, actor=OWNER, **fields)


def make_decision(verdict: events.Verdict, **fields: Any) -> Any:
    return make_command(commands.DecideApproval, approval_id=APPROVAL, verdict=verdict, **fields)


FORWARDED = [
    (
        make_command(commands.SendMessage, text="hello", client_message_id="m1"),
        ("run.send_input", {"input_id": "m1", "text": "hello\r"}, {"run_id": RUN, "message_id": "m1"}),
    ),
    (
        make_command(commands.SendMessage, text="hello", client_message_id="m1", idempotency_key="k1"),
        ("run.send_input", {"input_id": "k1", "text": "hello\r"}, {"run_id": RUN, "message_id": "k1"}),
    ),
    (
        make_command(commands.QueueMessage, text="hello", delivery=events.Delivery.STEER, idempotency_key="k2"),
        ("run.send_input", {"input_id": "k2", "text": "hello\r"}, {"run_id": RUN, "message_id": "k2"}),
    ),
    (
        make_command(commands.TypeInput, input_id="i1", text="y\n", sha256="0"),
        ("run.send_input", {"input_id": "i1", "text": "y\n"}, {"run_id": RUN, "input_id": "i1"}),
    ),
    (make_command(commands.TypeKeys, text="\x03"), ("run.send_stdin", {"text": "\x03"}, {"run_id": RUN})),
    (make_command(commands.ResizeTerminal, cols=90, rows=30), ("run.resize", {"cols": 90, "rows": 30}, {})),
    (make_command(commands.CancelRun), ("run.stop", {"signal": "term"}, {})),
    (make_command(commands.CancelRun, force=True), ("run.stop", {"signal": "kill"}, {})),
    (
        make_decision(events.Verdict.APPROVE),
        ("run.permission.approve", {"request_id": REQUEST, "decision": "approve"}, {}),
    ),
    (
        make_decision(events.Verdict.APPROVE, always=True),
        ("run.permission.approve", {"request_id": REQUEST, "decision": "approve_for_session"}, {}),
    ),
    (
        make_decision(events.Verdict.DENY_CONTINUE, always=True),
        ("run.permission.deny", {"request_id": REQUEST, "decision": "deny"}, {}),
    ),
    (make_decision(events.Verdict.DENY_STOP), ("run.permission.deny", {"request_id": REQUEST, "decision": "abort"}, {})),
]


@pytest.mark.parametrize(("asked", "expected"), FORWARDED, ids=lambda value: type(value).__name__)
async def test_what_other_protocols_ask_goes_to_the_runs_host_in_relays_words(
    hub_harness: HubHarness, asked: Any, expected: Any
) -> None:
    host = await hub_harness.connect_host("a")
    await hub_harness.run("a", "run-7")
    outcome = await hub_harness.runtime.ask(asked)
    type_, data, answer = expected
    told = await host.list_messages()
    assert (told["type"], told["run_id"], told["host_id"]) == (type_, "run-7", "a")
    assert told["data"] == {**data, **SAID_BY_OWNER}
    assert outcome == {"after_seq": 0, **answer}


async def test_a_message_without_an_id_is_given_one(hub_harness: HubHarness) -> None:
    host = await hub_harness.connect_host("a")
    await hub_harness.run("a", "run-7")
    outcomes = [await hub_harness.runtime.ask(make_command(commands.SendMessage, text="hello")) for _ in range(2)]
    told = [(await host.list_messages())["data"]["input_id"] for _ in outcomes]
    assert [outcome["message_id"] for outcome in outcomes] == told
    assert len(set(told)) == 2


@pytest.mark.parametrize(("asked", "expected"), FORWARDED, ids=lambda value: type(value).__name__)
async def test_what_is_asked_while_the_host_is_away_is_refused_with_a_remedy(
    hub_harness: HubHarness, asked: Any, expected: Any
) -> None:
    await hub_harness.run("a", "run-7")
    with pytest.raises(core_errors.HostUnreachable) as refusal:
        await hub_harness.runtime.ask(asked)
    assert refusal.value.hint


@pytest.mark.parametrize(
    "asked",
    [
        make_command(commands.CompactContext),
        make_command(commands.StartRemoteCall, errand_id="e", tool="bash", args={}),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_relay_has_no_words_for_is_refused_with_a_remedy_and_the_host_hears_nothing(
    hub_harness: HubHarness, asked: Any
) -> None:
    host = await hub_harness.connect_host("a")
    await hub_harness.run("a", "run-7")
    with pytest.raises(core_errors.SessionOnOtherHost) as refusal:
        await hub_harness.runtime.ask(asked)
    assert refusal.value.hint
    await hub_harness.dispatch.send("a", "run.stop", "run-7", STOP, ANN, NO_SENDER)
    assert (await host.list_messages())["type"] == "run.stop"
