"""Admission, phases, answers and versions: sections 4, 5, 7 and 10 of the document."""

import asyncio
import logging
from typing import Any

import msgspec
import pytest
from tests.protocols.pi.ensemble import UNLIMITED, DispatcherHarness

from switchtower.core import errors
from switchtower.protocols.pi import inbound, responses
from switchtower.protocols.pi.dispatch import ports, receipts
from switchtower.protocols.pi.dispatch.limits import DispatchLimits
from switchtower.protocols.pi.dispatch.outcomes import CompletedCommand
from switchtower.protocols.pi.errors import PiCommandError, SessionLimitReached


async def test_a_read_is_accepted_started_finished_and_answered_in_one_breath() -> None:
    ensemble = DispatcherHarness()
    ensemble.ledger.versions["s"] = 7
    client = ensemble.make_client()
    client.send("get_state", id="c", sessionId="s")
    told = {"commandId": "c", "commandType": "get_state", "sessionId": "s", "dependsOn": []}
    assert ensemble.heard == [
        ("command_accepted", told),
        ("command_started", told),
        ("command_finished", {**told, "success": True, "sessionVersion": 7}),
        (
            "response",
            {
                "type": "response",
                "command": "get_state",
                "success": True,
                "id": "c",
                "data": {"of": "c"},
                "sessionVersion": 7,
            },
        ),
    ]
    assert ensemble.ledger.settlements == []


async def test_lifecycle_events_carry_what_the_command_said() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    client.send("get_state", id="a", sessionId="s")
    await client.ask("abort", id="b", sessionId="s", dependsOn=["a"], ifSessionVersion=0, idempotencyKey="k")
    told = {
        "commandId": "b",
        "commandType": "abort",
        "sessionId": "s",
        "dependsOn": ["a"],
        "ifSessionVersion": 0,
        "idempotencyKey": "k",
    }
    assert [data for _, data in ensemble.heard if data.get("commandId") == "b"] == [
        told,
        told,
        {**told, "success": True, "sessionVersion": 1},
    ]


async def test_commands_without_id_get_their_own_in_the_lifecycle_and_none_in_the_answer() -> None:
    ensemble = DispatcherHarness(now_ms=42)
    client = ensemble.make_client()
    client.send("list_sessions")
    client.send("list_sessions")
    ids = [data["commandId"] for kind, data in ensemble.heard if kind == "command_accepted"]
    assert ids == ["anon:42:1", "anon:42:2"]
    assert all("id" not in response for response in client.responses)
    assert ensemble.conductor.collect_metrics(client).stores.replay.outcomeCount == 0


async def test_what_is_not_admitted_has_no_lifecycle() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    ensemble.conductor.receive(b"rubbish", client)
    client.send("fly", id="x")
    client.send("get_state", id="y")
    assert [kind for kind, _ in ensemble.heard] == ["response"] * 3
    assert client.responses[1] == {
        "type": "response",
        "command": "fly",
        "success": False,
        "id": "x",
        "error": "Unknown command type 'fly'",
    }
    assert ensemble.conductor.rejected.validation == 3


async def test_a_mutating_command_is_stored_before_it_is_told_to_have_finished() -> None:
    ensemble = DispatcherHarness()
    ensemble.ledger.gate = asyncio.Event()
    client = ensemble.make_client()
    client.send("set_session_name", id="c", sessionId="s", name="n")
    await asyncio.sleep(0)
    assert ensemble.list_phases("c") == ["command_accepted", "command_started"]
    ensemble.ledger.gate.set()
    await ensemble.wait_finished("c")
    assert ensemble.list_phases("c") == ["command_accepted", "command_started", "command_finished", "response"]
    assert client.responses[-1]["sessionVersion"] == 1
    [settlement] = ensemble.ledger.settlements
    assert (settlement.session_id, settlement.command, settlement.advances) == ("s", "set_session_name", True)
    [receipt] = settlement.receipts
    assert receipt.scope == "pi"
    assert receipt.outcome["state"] == "finished"
    assert receipt.outcome["response"]["sessionVersion"] == 1


@pytest.mark.parametrize("command", ["switch_session", "get_messages", "list_session_files"])
async def test_what_changes_nothing_tells_the_version_and_keeps_it(command: str) -> None:
    ensemble = DispatcherHarness()
    answer = await ensemble.make_client().ask(command, sessionId="s")
    assert answer["sessionVersion"] == 0
    assert ensemble.ledger.settlements == []


async def test_an_answer_to_an_extension_leaves_the_version_alone() -> None:
    ensemble = DispatcherHarness()
    answer = await ensemble.make_client().ask(
        "extension_ui_response", id="c", sessionId="s", requestId="r", response={"method": "cancelled"}
    )
    assert (answer["success"], answer["sessionVersion"]) == (True, 0)


async def test_each_success_that_changes_something_moves_the_version_by_one_with_or_without_id() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    versions = [
        (await client.ask("abort", sessionId="s"))["sessionVersion"],
        (await client.ask("prompt", id="p", sessionId="s", message="m"))["sessionVersion"],
        (await client.ask("get_state", sessionId="s"))["sessionVersion"],
    ]
    assert versions == [1, 2, 2]


async def test_runs_that_end_together_are_stored_with_the_versions_that_are_told() -> None:
    ensemble = DispatcherHarness()
    ensemble.ledger.gate = asyncio.Event()
    client = ensemble.make_client()
    runs = [ensemble.finish_handler(id_) for id_ in "abc"]
    for id_ in "abc":
        client.send("bash", id=id_, sessionId="s", command="ls")
    for run in runs:
        run.set_result(ports.HandlerResult())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ensemble.ledger.gate.set()
    told = {id_: (await ensemble.wait_finished(id_))["sessionVersion"] for id_ in "abc"}
    assert told == {"a": 1, "b": 2, "c": 3}
    receipts = ensemble.ledger.receipts.values()
    assert {receipt.outcome["ids"][0]: receipt.outcome["response"]["sessionVersion"] for receipt in receipts} == told


@pytest.mark.parametrize("command", ["list_sessions", "get_metrics", "health_check", "list_stored_sessions"])
async def test_answers_about_the_server_tell_no_version(command: str) -> None:
    ensemble = DispatcherHarness()
    assert "sessionVersion" not in await ensemble.make_client().ask(command, sessionId="s")


async def test_created_sessions_begin_at_version_zero_and_are_announced_after_the_answer() -> None:
    ensemble = DispatcherHarness()

    def create(_: inbound.PiRequest) -> ports.HandlerResult:
        ensemble.ledger.versions["new"] = 0
        return ports.HandlerResult({"sessionId": "new"}, session_id="new", announcements=(b"session_created",))

    ensemble.handles["create_session"] = create
    answer = await ensemble.make_client().ask("create_session", id="c")
    assert answer["sessionVersion"] == 0
    await ensemble.wait_until(lambda: bool(ensemble.announced))
    assert [kind for kind, _ in ensemble.heard][-3:] == ["command_finished", "response", "announcement"]
    [settlement] = ensemble.ledger.settlements
    assert (settlement.session_id, settlement.advances, len(settlement.receipts)) == ("new", False, 1)


async def test_a_loaded_session_tells_the_version_that_it_has() -> None:
    ensemble = DispatcherHarness()
    ensemble.ledger.versions["old"] = 9
    ensemble.handles["load_session"] = lambda _: ports.HandlerResult(session_id="old")
    answer = await ensemble.make_client().ask("load_session", id="c", sessionPath="/x")
    assert answer["sessionVersion"] == 9
    assert ensemble.ledger.versions["old"] == 9


async def test_a_fork_moves_the_version_of_the_session_that_was_forked() -> None:
    ensemble = DispatcherHarness()
    ensemble.ledger.versions["child"] = 0
    ensemble.handles["fork"] = lambda _: ports.HandlerResult({"sessionId": "child"}, session_id="child")
    assert (await ensemble.make_client().ask("fork", id="c", sessionId="s", entryId="e"))["sessionVersion"] == 1
    assert ensemble.ledger.versions == {"s": 1, "child": 0}


async def test_the_last_known_version_of_a_session_that_was_deleted_meanwhile_is_reported() -> None:
    ensemble = DispatcherHarness()
    run = ensemble.finish_handler("p")
    client = ensemble.make_client()
    client.send("prompt", id="p", sessionId="s", message="m")
    version = ensemble.ledger.versions.pop("s")
    run.set_result(ports.HandlerResult())
    finished = await ensemble.wait_finished("p")
    assert finished["success"] is True
    assert finished["sessionVersion"] == version
    assert ensemble.ledger.settlements == []


async def test_a_handler_may_settle_for_itself() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()

    def delete(request: inbound.PiRequest) -> ports.HandlerResult:
        handled = ports.HandlerResult({"deleted": True}, settled=True)
        ensemble.ledger.keep(ensemble.conductor.make_end_receipts(request, client, handled))
        del ensemble.ledger.versions["s"]
        return handled

    ensemble.handles["delete_session"] = delete
    answer = await client.ask("delete_session", id="c", sessionId="s")
    assert answer == {"type": "response", "command": "delete_session", "success": True, "id": "c", "data": {"deleted": True}}
    assert ensemble.ledger.settlements == []
    assert len(ensemble.ledger.receipts) == 1


@pytest.mark.parametrize(
    ("problem", "error"),
    [
        (PiCommandError("Model not found: p/m"), "Model not found: p/m"),
        (errors.RunInProgress(), "A run is already active in this session"),
        (RuntimeError("secret=hunter2"), "Internal error"),
        (RecursionError(), "Internal error"),
    ],
)
@pytest.mark.parametrize("command", ["get_state", "abort"])
@pytest.mark.parametrize("late", [False, True])
async def test_refusals_are_told_and_bugs_are_not(
    problem: Exception, error: str, command: str, late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ensemble = DispatcherHarness()

    async def fail_later() -> ports.HandlerResult:
        raise problem

    def fail(_: inbound.PiRequest) -> ports.HandlerResult:
        raise problem

    ensemble.handles["c"] = (lambda _: fail_later()) if late else fail
    with caplog.at_level(logging.ERROR):
        answer = await ensemble.make_client().ask(command, id="c", sessionId="s")
    assert answer == {"type": "response", "command": command, "success": False, "id": "c", "error": error}
    assert bool(caplog.records) == (error == "Internal error")
    assert ensemble.ledger.versions["s"] == 0


@pytest.mark.parametrize("command", ["get_state", "abort"])
async def test_an_answer_that_cannot_be_encoded_is_an_internal_error(command: str) -> None:
    ensemble = DispatcherHarness()
    ensemble.handles["c"] = lambda _: ports.HandlerResult(object())
    answer = await ensemble.make_client().ask(command, id="c", sessionId="s")
    assert (answer["success"], answer["error"]) == (False, "Internal error")


@pytest.mark.parametrize(
    ("command", "fields", "stored"),
    [
        ("abort", {"id": "c", "sessionId": "s"}, True),
        ("abort", {"sessionId": "s"}, False),
        ("abort", {"id": "c", "sessionId": "gone"}, False),
        ("get_state", {"id": "c", "sessionId": "s"}, False),
        ("create_session", {"id": "c", "sessionId": "s"}, False),
    ],
)
async def test_a_failure_is_stored_when_it_has_an_identity_and_a_session(
    command: str, fields: dict[str, str], stored: bool
) -> None:
    ensemble = DispatcherHarness()
    ensemble.refuse_handler(command, "no")
    answer = await ensemble.make_client().ask(command, **fields)
    assert not answer["success"]
    assert "sessionVersion" not in answer
    assert [settlement.advances for settlement in ensemble.ledger.settlements] == [False] * stored


async def test_what_cannot_be_stored_is_told_as_a_failure() -> None:
    ensemble = DispatcherHarness()
    ensemble.ledger.broken = True
    answer = await ensemble.make_client().ask("abort", id="c", sessionId="s")
    assert not answer["success"]
    assert "could not store" in answer["error"]
    ensemble.refuse_handler("d", "the first reason")
    assert (await ensemble.make_client().ask("abort", id="d", sessionId="s"))["error"] == "the first reason"


async def test_the_expected_version_must_be_the_sessions() -> None:
    ensemble = DispatcherHarness()
    ensemble.ledger.versions["s"] = 5
    client = ensemble.make_client()
    wrong = await client.ask("abort", id="a", sessionId="s", ifSessionVersion=4)
    assert wrong["error"] == "Session version mismatch: expected 4, got 5"
    missing = await client.ask("get_state", id="b", sessionId="nowhere", ifSessionVersion=0)
    assert missing["error"] == "Session nowhere not found"
    assert (await client.ask("abort", id="c", sessionId="s", ifSessionVersion=5))["sessionVersion"] == 6
    assert ensemble.began == ["c"]


async def test_too_many_in_flight_are_rejected_and_not_remembered() -> None:
    ensemble = DispatcherHarness(msgspec.structs.replace(UNLIMITED, in_flight=2))
    first = ensemble.stall_handler("get_state")
    client = ensemble.make_client()
    client.send("get_state", id="a", sessionId="s")
    client.send("get_state", id="b", sessionId="s")
    client.send("list_sessions", id="c")
    client.send("get_state", id="a", sessionId="s")  # a duplicate that would wait counts too
    assert [(answer["id"], answer["error"][:34]) for answer in client.responses] == [
        ("c", "Too many commands in flight (2); h"),
        ("a", "Too many commands in flight (2); h"),
    ]
    assert ensemble.list_phases("c") == ["command_accepted", "command_finished", "response"]
    first.set_result(ports.HandlerResult())
    await ensemble.wait_until(lambda: len(client.responses) == 4)
    assert (await client.ask("list_sessions", id="c"))["success"]


async def test_shutdown_refuses_before_anything_else_and_lets_work_finish() -> None:
    ensemble = DispatcherHarness()
    work = ensemble.stall_handler("a")
    client = ensemble.make_client()
    client.send("abort", id="a", sessionId="s")
    ensemble.conductor.shut_down()
    client.send("list_sessions", id="b")
    ensemble.conductor.receive(b"rubbish", client)
    assert [answer["error"] for answer in client.responses] == ["Server is shutting down"] * 2
    assert ensemble.list_phases("b") == ["response"]
    assert not await ensemble.conductor.wait_until_drained(0.01)
    work.set_result(ports.HandlerResult())
    assert await ensemble.conductor.wait_until_drained(10)
    assert ensemble.list_phases("a")[-1] == "response"
    assert await ensemble.conductor.wait_until_drained(0)


def restart_dispatcher(dispatcher_harness: DispatcherHarness) -> dict[str, dict[str, Any]]:
    """The answers by id, as the next process would replay them."""
    return {
        name.value: msgspec.json.decode(responses.encode_response(kept.outcome, name.value))
        for name, kept, _ in receipts.decode_receipts(dispatcher_harness.ledger.receipts.values(), now_ms=0)
        if isinstance(kept, CompletedCommand)
    }


@pytest.mark.requirement("pi:replay:shutdown")
async def test_closing_stores_the_failure_of_what_is_left_before_a_client_gets_it() -> None:
    ensemble = DispatcherHarness()
    work, run = ensemble.stall_handler("a"), ensemble.finish_handler("r", is_run=True)
    client = ensemble.make_client()
    ensemble.ledger.versions["t"] = 0
    client.send("prompt", id="r", sessionId="t", message="m")
    client.send("abort", id="a", sessionId="s")
    client.send("abort", id="queued", sessionId="s")
    client.send("abort", id="a", sessionId="s")
    ensemble.ledger.gate = asyncio.Event()
    ensemble.ledger.versions["u"] = 0
    client.send("abort", id="settling", sessionId="u")
    client.send("abort", id="queued too", sessionId="u")
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(ensemble.ledger.gate.set)
    await ensemble.conductor.close()
    assert work.cancelled()
    assert run.cancelled()
    assert sorted((answer["id"], answer["success"]) for answer in client.responses) == [
        ("a", False),
        ("a", False),
        ("queued", False),
        ("queued too", False),
        ("r", False),
        ("settling", True),
    ]
    assert ensemble.began == ["r", "a", "settling"]
    assert sorted(settlement.session_id for settlement in ensemble.ledger.settlements) == ["s", "s", "t", "u", "u"]
    told = {answer["id"]: answer for answer in client.responses if not answer["success"]}
    after = restart_dispatcher(ensemble)
    for id_ in ("a", "r", "queued", "queued too"):
        assert after[id_] == {**told[id_], "type": "response"}, "the next process has what was sent"
    finished = [data["commandId"] for kind, data in ensemble.heard if kind == "command_finished"]
    assert sorted(finished) == ["a", "a", "queued", "queued too", "r", "settling"]


@pytest.mark.requirement("pi:replay:shutdown")
async def test_closing_sends_no_outcome_of_what_continues_or_cannot_be_stored() -> None:
    ensemble = DispatcherHarness()
    run, making = ensemble.finish_handler("r", is_run=True), ensemble.stall_handler("c")
    ensemble.stall_handler("anonymous")
    client = ensemble.make_client()
    client.send("prompt", id="r", sessionId="s", message="m")
    client.send("create_session", id="c")
    ensemble.ledger.outliving.add("s")
    await ensemble.conductor.close()
    assert (run.cancelled(), making.cancelled()) == (True, True)
    assert (client.responses, ensemble.ledger.settlements) == ([], [])

    broken = DispatcherHarness()
    broken.stall_handler("a")
    broken.ledger.broken = True
    other = broken.make_client()
    other.send("abort", id="a", sessionId="s")
    await broken.conductor.close()
    assert other.responses == []


async def test_another_node_takes_over_without_a_word_from_this_one() -> None:
    ensemble = DispatcherHarness()
    ensemble.stall_handler("a")
    client = ensemble.make_client()
    client.send("abort", id="a", sessionId="s")
    await ensemble.conductor.close(answer=False)
    assert (client.responses, ensemble.ledger.settlements) == ([], [])


async def test_metrics_count_what_was_executed_and_refused() -> None:
    ensemble = DispatcherHarness(DispatchLimits(session_rate=2, client_rate=3))

    def full(_: inbound.PiRequest) -> ports.HandlerResult:
        raise SessionLimitReached("Session limit reached (1 sessions)")

    ensemble.handles["create_session"] = full
    client = ensemble.make_client()
    await client.ask("create_session", id="a", idempotencyKey="k")
    await client.ask("get_state", sessionId="s")
    await client.ask("get_state", sessionId="s")
    await client.ask("get_state", sessionId="s")
    await client.ask("list_sessions")
    measured = ensemble.conductor.collect_metrics(client)
    assert measured.totalCommandsExecuted == 3
    rejected = measured.commandsRejected
    assert (rejected.sessionLimit, rejected.rateLimit, rejected.globalRateLimit) == (1, 1, 1)
    assert measured.rateLimitUsage.globalCount == 3
    replay = measured.stores.replay
    assert (replay.inFlightCount, replay.outcomeCount, replay.idempotencyCacheSize) == (0, 1, 1)
    assert measured.stores.execution.laneCount == 0
    assert msgspec.to_builtins(measured)["commandsRejected"]["messageSize"] == 0
