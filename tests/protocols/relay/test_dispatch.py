"""What is asked of runs on other hosts goes over the host's line as it was said, and what comes back is for who asked alone."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.protocols.relay.hall import FarHost, Hall, opened

from switchtower.core import commands, events
from switchtower.core import errors as core_errors
from switchtower.protocols.relay import errors, messages, names
from switchtower.protocols.relay.hub import dispatch as dispatching
from switchtower.protocols.relay.hub import roster
from switchtower.protocols.relay.hub.dispatch import NOBODY, Sender
from switchtower.testing.sessions import OWNER

ANN = events.Actor(name="ann", via="web")
SAID_BY_ANN = {"actor": "web", "by": "ann"}
STOP = messages.Stop()


@pytest.fixture
async def hall() -> AsyncIterator[Hall]:
    async with opened() as hall:
        yield hall


class App:
    """One who asks, and keeps what it is told of refusals."""

    def __init__(self, raw: bytes = b"{}") -> None:
        self.refusals: list[tuple[str, dict[str, Any]]] = []
        self.sender = Sender(msgspec.Raw(raw), lambda host_id, run_id, problem: self.refusals.append((run_id, problem)))


async def asked_to_stop(hall: Hall, host: FarHost, app: App, run_id: str = "run-7") -> str:
    """The number that the host got with it."""
    await hall.dispatch.send(host.host_id, "run.stop", run_id, STOP, ANN, app.sender)
    return str((await host.told())["data"]["command_id"])


# Commands


async def test_a_command_arrives_with_all_that_was_said_and_with_who_said_it(hall: Hall) -> None:
    host, app = await hall.host("a"), App(b'{"cols":"80","new":{"er":[1]},"actor":"root","by":"root","command_id":"1"}')
    await hall.dispatch.send("a", "run.resize", "run-7", messages.Resize(cols=80, rows=24), ANN, app.sender)
    told = await host.told()
    assert told.pop("ts").endswith("Z")
    assert told == {
        "type": "run.resize",
        "host_id": "a",
        "run_id": "run-7",
        "data": {"cols": 80, "rows": 24, "new": {"er": [1]}, **SAID_BY_ANN, "command_id": told["data"]["command_id"]},
    }


async def test_what_was_not_said_is_not_told(hall: Hall) -> None:
    host = await hall.host("a")
    await hall.dispatch.send("a", "run.permission.approve", "run-7", messages.Decide(request_id="q"), ANN, NOBODY)
    assert (await host.told())["data"] == {"request_id": "q", **SAID_BY_ANN}


async def test_a_refusal_reaches_who_asked_once_and_nobody_else(hall: Hall) -> None:
    host, asker, other = await hall.host("a"), App(), App()
    command_id = await asked_to_stop(hall, host, asker)
    await asked_to_stop(hall, host, other)
    for _ in range(2):
        host.say("run.error", "run-7", command="run.stop", error="run has exited", more=1, command_id=command_id)
    await host.heard()
    assert asker.refusals == [("run-7", {"command": "run.stop", "error": "run has exited", "more": 1})]
    assert other.refusals == []


async def test_a_host_cannot_refuse_what_was_asked_of_another(hall: Hall) -> None:
    host, forger, app = await hall.host("a"), await hall.host("b"), App()
    command_id = await asked_to_stop(hall, host, app)
    for number in range(100):
        forger.say("run.error", "run-7", error="forged", command_id=str(number))
    await forger.heard()
    assert app.refusals == []
    host.say("run.error", "run-7", error="true", command_id=command_id)
    await host.heard()
    assert app.refusals == [("run-7", {"error": "true"})]


async def test_a_refusal_is_of_the_run_that_it_was_asked_of_whatever_the_host_calls_it(hall: Hall) -> None:
    host, app = await hall.host("a"), App()
    command_id = await asked_to_stop(hall, host, app)
    host.say("run.error", "another's", error="no", command_id=command_id)
    await host.heard()
    assert app.refusals == [("run-7", {"error": "no"})]


@pytest.mark.parametrize("command_id", [None, 1, 1.0, True, "", "01", "x", [], ["1"], {}, {"1": "1"}], ids=repr)
async def test_a_refusal_without_our_number_is_nobodys(hall: Hall, command_id: object) -> None:
    host, app = await hall.host("a"), App()
    assert await asked_to_stop(hall, host, app) == "1"
    host.say("run.error", "run-7", error="no", command_id=command_id)
    host.say("run.error", "run-7", error="no")
    await host.heard()
    assert app.refusals == []


async def test_of_commands_that_no_host_answers_only_so_many_are_remembered(hall: Hall) -> None:
    host, first, second, last = await hall.host("a"), App(), App(), App()
    numbers = [await asked_to_stop(hall, host, first), await asked_to_stop(hall, host, second)]
    for _ in range(dispatching.MOST_UNANSWERED - 2):
        await hall.dispatch.send("a", "run.stop", "run-7", STOP, ANN, App().sender)
        await host.told()
    numbers.append(await asked_to_stop(hall, host, last))
    for number in numbers:
        host.say("run.error", "run-7", error="no", command_id=number)
    await host.heard()
    assert first.refusals == [], "the oldest was forgotten"
    assert second.refusals == last.refusals == [("run-7", {"error": "no"})]


async def test_a_command_to_a_host_that_is_away_is_refused_at_once(hall: Hall) -> None:
    host, app = await hall.host("a"), App()
    host.stream.abort()
    await host.is_cut()
    with pytest.raises(errors.HostOffline, match="host offline"):
        await hall.dispatch.send("a", "run.stop", "run-7", STOP, ANN, app.sender)
    with pytest.raises(errors.HostOffline, match="host offline"):
        await hall.dispatch.call("a", "rpc.fs.read", "run-7", messages.FsRead("q", "x"), ANN, NOBODY)


# Calls


def calling(hall: Hall, request_id: str = "q", sender: Sender = NOBODY) -> "asyncio.Future[Any]":
    asked = messages.FsRead(request_id, "notes.txt")
    return asyncio.ensure_future(hall.dispatch.call("a", "rpc.fs.read", "run-7", asked, ANN, sender))


async def test_a_call_has_the_hosts_result(hall: Hall) -> None:
    host = await hall.host("a")
    call = calling(hall, sender=Sender(msgspec.Raw(b'{"encoding":"latin-1"}')))
    told = await host.told()
    assert (told["type"], told["run_id"], told["host_id"]) == ("rpc.fs.read", "run-7", "a")
    assert told["data"] == {"request_id": "q", "path": "notes.txt", "encoding": "latin-1", **SAID_BY_ANN}
    host.respond(told, result={"content": "hello"})
    assert await call == {"content": "hello"}
    # Its id is free again.
    call = calling(hall)
    host.respond(await host.told(), result=7, error=None)
    assert await call == 7


@pytest.mark.parametrize(
    ("told", "heard"), [("path must be relative", "path must be relative"), ("", "failed"), (None, "failed")]
)
async def test_a_call_that_the_host_refuses_is_refused_in_its_words(hall: Hall, told: str | None, heard: str) -> None:
    host = await hall.host("a")
    call = calling(hall)
    host.respond(await host.told(), ok=False, error=told)
    with pytest.raises(errors.Refused) as refusal:
        await call
    assert refusal.value.text == heard


async def test_who_waits_is_told_when_the_host_goes_or_comes_anew(hall: Hall) -> None:
    host = await hall.host("a")
    gone = calling(hall)
    await host.told()
    await hall.host("a")
    with pytest.raises(errors.HostOffline, match=errors.HOST_GONE):
        await gone
    host = await hall.host("a")
    gone = calling(hall)
    await host.told()
    host.stream.abort()
    with pytest.raises(errors.HostOffline, match=errors.HOST_GONE):
        await gone


async def test_an_id_in_use_and_more_calls_than_a_host_answers_are_refused(hall: Hall) -> None:
    host = await hall.host("a")
    waiting = [calling(hall, f"q{number}") for number in range(roster.MOST_PENDING)]
    asked = [await host.told() for _ in waiting]
    with pytest.raises(errors.Refused, match="already in use"):
        await calling(hall, "q0")
    with pytest.raises(errors.Refused, match="too many calls"):
        await calling(hall, "one more")
    for frame in asked:
        host.respond(frame, result=frame["data"]["request_id"])
    assert await asyncio.gather(*waiting) == [f"q{number}" for number in range(roster.MOST_PENDING)]


async def test_another_hosts_answer_is_no_answer(hall: Hall) -> None:
    host, forger = await hall.host("a"), await hall.host("b")
    call = calling(hall)
    told = await host.told()
    forger.respond(told, result="forged")
    await forger.heard()
    host.respond(told, result="true")
    assert await call == "true"


# What other protocols ask

SESSION = names.session_of("run-7")
REQUEST = "00000000-0000-0000-0000-00000000002a"
APPROVAL = names.approval_of(REQUEST)
SAID_BY_OWNER = {"actor": "cli", "by": "owner"}
RUN = names.core_run_of(SESSION)


def command(kind: type[commands.Command], **fields: Any) -> Any:
    return kind(session_id=SESSION, actor=OWNER, **fields)


def decision(verdict: events.Verdict, **fields: Any) -> Any:
    return command(commands.DecideApproval, approval_id=APPROVAL, verdict=verdict, **fields)


FORWARDED = [
    (
        command(commands.SendMessage, text="hello", client_message_id="m1"),
        ("run.send_input", {"input_id": "m1", "text": "hello\r"}, {"run_id": RUN, "message_id": "m1"}),
    ),
    (
        command(commands.SendMessage, text="hello", client_message_id="m1", idempotency_key="k1"),
        ("run.send_input", {"input_id": "k1", "text": "hello\r"}, {"run_id": RUN, "message_id": "k1"}),
    ),
    (
        command(commands.QueueMessage, text="hello", delivery=events.Delivery.STEER, idempotency_key="k2"),
        ("run.send_input", {"input_id": "k2", "text": "hello\r"}, {"run_id": RUN, "message_id": "k2"}),
    ),
    (
        command(commands.TypeInput, input_id="i1", text="y\n", sha256="0"),
        ("run.send_input", {"input_id": "i1", "text": "y\n"}, {"run_id": RUN, "input_id": "i1"}),
    ),
    (command(commands.TypeKeys, text="\x03"), ("run.send_stdin", {"text": "\x03"}, {"run_id": RUN})),
    (command(commands.ResizeTerminal, cols=90, rows=30), ("run.resize", {"cols": 90, "rows": 30}, {})),
    (command(commands.CancelRun), ("run.stop", {"signal": "term"}, {})),
    (command(commands.CancelRun, force=True), ("run.stop", {"signal": "kill"}, {})),
    (
        decision(events.Verdict.APPROVE),
        ("run.permission.approve", {"request_id": REQUEST, "decision": "approve"}, {}),
    ),
    (
        decision(events.Verdict.APPROVE, always=True),
        ("run.permission.approve", {"request_id": REQUEST, "decision": "approve_for_session"}, {}),
    ),
    (
        decision(events.Verdict.DENY_CONTINUE, always=True),
        ("run.permission.deny", {"request_id": REQUEST, "decision": "deny"}, {}),
    ),
    (decision(events.Verdict.DENY_STOP), ("run.permission.deny", {"request_id": REQUEST, "decision": "abort"}, {})),
]


@pytest.mark.parametrize(("asked", "expected"), FORWARDED, ids=lambda value: type(value).__name__)
async def test_what_other_protocols_ask_goes_to_the_runs_host_in_relays_words(hall: Hall, asked: Any, expected: Any) -> None:
    host = await hall.host("a")
    await hall.run("a", "run-7")
    outcome = await hall.house.ask(asked)
    type_, data, answer = expected
    told = await host.told()
    assert (told["type"], told["run_id"], told["host_id"]) == (type_, "run-7", "a")
    assert told["data"] == {**data, **SAID_BY_OWNER}
    assert outcome == {"after_seq": 0, **answer}


async def test_a_message_without_an_id_is_given_one(hall: Hall) -> None:
    host = await hall.host("a")
    await hall.run("a", "run-7")
    outcomes = [await hall.house.ask(command(commands.SendMessage, text="hello")) for _ in range(2)]
    told = [(await host.told())["data"]["input_id"] for _ in outcomes]
    assert [outcome["message_id"] for outcome in outcomes] == told
    assert len(set(told)) == 2


@pytest.mark.parametrize(("asked", "expected"), FORWARDED, ids=lambda value: type(value).__name__)
async def test_what_is_asked_while_the_host_is_away_is_refused_with_a_remedy(hall: Hall, asked: Any, expected: Any) -> None:
    await hall.run("a", "run-7")
    with pytest.raises(core_errors.HostUnreachable) as refusal:
        await hall.house.ask(asked)
    assert refusal.value.hint


@pytest.mark.parametrize(
    "asked",
    [
        command(commands.CompactContext),
        command(commands.StartErrand, errand_id="e", tool="bash", args={}),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_relay_has_no_words_for_is_refused_with_a_remedy_and_the_host_hears_nothing(hall: Hall, asked: Any) -> None:
    host = await hall.host("a")
    await hall.run("a", "run-7")
    with pytest.raises(core_errors.LivesElsewhere) as refusal:
        await hall.house.ask(asked)
    assert refusal.value.hint
    await hall.dispatch.send("a", "run.stop", "run-7", STOP, ANN, NOBODY)
    assert (await host.told())["type"] == "run.stop"
