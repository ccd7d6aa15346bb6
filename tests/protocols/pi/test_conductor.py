"""Admission, phases, answers and versions: sections 4, 5, 7 and 10 of the document."""

import asyncio
import logging
from typing import Any

import msgspec
import pytest
from tests.protocols.pi.ensemble import UNLIMITED, Ensemble

from switchtower.core import errors
from switchtower.protocols.pi.order import inbound, lifecycle, ports, receipts
from switchtower.protocols.pi.order.limits import Limits
from switchtower.protocols.pi.order.outcomes import Ended


async def test_a_read_is_accepted_started_finished_and_answered_in_one_breath() -> None:
    ensemble = Ensemble()
    ensemble.ledger.versions["s"] = 7
    client = ensemble.client()
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
    ensemble = Ensemble()
    client = ensemble.client()
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
    ensemble = Ensemble(now_ms=42)
    client = ensemble.client()
    client.send("list_sessions")
    client.send("list_sessions")
    ids = [data["commandId"] for kind, data in ensemble.heard if kind == "command_accepted"]
    assert ids == ["anon:42:1", "anon:42:2"]
    assert all("id" not in response for response in client.responses)
    assert ensemble.conductor.measure(client).stores.replay.outcomeCount == 0


async def test_what_is_not_admitted_has_no_lifecycle() -> None:
    ensemble = Ensemble()
    client = ensemble.client()
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
    ensemble = Ensemble()
    ensemble.ledger.gate = asyncio.Event()
    client = ensemble.client()
    client.send("set_session_name", id="c", sessionId="s", name="n")
    await asyncio.sleep(0)
    assert ensemble.phases("c") == ["command_accepted", "command_started"]
    ensemble.ledger.gate.set()
    await ensemble.finished("c")
    assert ensemble.phases("c") == ["command_accepted", "command_started", "command_finished", "response"]
    assert client.responses[-1]["sessionVersion"] == 1
    [settlement] = ensemble.ledger.settlements
    assert (settlement.session_id, settlement.command, settlement.advances) == ("s", "set_session_name", True)
    [receipt] = settlement.receipts
    assert receipt.scope == "pi"
    assert receipt.outcome["state"] == "finished"
    assert receipt.outcome["response"]["sessionVersion"] == 1


@pytest.mark.parametrize("command", ["switch_session", "get_messages", "list_session_files"])
async def test_what_changes_nothing_tells_the_version_and_keeps_it(command: str) -> None:
    ensemble = Ensemble()
    answer = await ensemble.client().ask(command, sessionId="s")
    assert answer["sessionVersion"] == 0
    assert ensemble.ledger.settlements == []


async def test_an_answer_to_an_extension_leaves_the_version_alone() -> None:
    ensemble = Ensemble()
    answer = await ensemble.client().ask(
        "extension_ui_response", id="c", sessionId="s", requestId="r", response={"method": "cancelled"}
    )
    assert (answer["success"], answer["sessionVersion"]) == (True, 0)


async def test_each_success_that_changes_something_moves_the_version_by_one_with_or_without_id() -> None:
    ensemble = Ensemble()
    client = ensemble.client()
    versions = [
        (await client.ask("abort", sessionId="s"))["sessionVersion"],
        (await client.ask("prompt", id="p", sessionId="s", message="m"))["sessionVersion"],
        (await client.ask("get_state", sessionId="s"))["sessionVersion"],
    ]
    assert versions == [1, 2, 2]


async def test_runs_that_end_together_are_stored_with_the_versions_that_are_told() -> None:
    ensemble = Ensemble()
    ensemble.ledger.gate = asyncio.Event()
    client = ensemble.client()
    runs = [ensemble.resting(id_) for id_ in "abc"]
    for id_ in "abc":
        client.send("bash", id=id_, sessionId="s", command="ls")
    for run in runs:
        run.set_result(ports.Handled())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ensemble.ledger.gate.set()
    told = {id_: (await ensemble.finished(id_))["sessionVersion"] for id_ in "abc"}
    assert told == {"a": 1, "b": 2, "c": 3}
    receipts = ensemble.ledger.receipts.values()
    assert {receipt.outcome["ids"][0]: receipt.outcome["response"]["sessionVersion"] for receipt in receipts} == told


@pytest.mark.parametrize("command", ["list_sessions", "get_metrics", "health_check", "list_stored_sessions"])
async def test_answers_about_the_server_tell_no_version(command: str) -> None:
    ensemble = Ensemble()
    assert "sessionVersion" not in await ensemble.client().ask(command, sessionId="s")


async def test_created_sessions_begin_at_version_zero_and_are_announced_after_the_answer() -> None:
    ensemble = Ensemble()

    def create(_: inbound.Request) -> ports.Handled:
        ensemble.ledger.versions["new"] = 0
        return ports.Handled({"sessionId": "new"}, session_id="new", announcements=(b"session_created",))

    ensemble.handles["create_session"] = create
    answer = await ensemble.client().ask("create_session", id="c")
    assert answer["sessionVersion"] == 0
    await ensemble.until(lambda: bool(ensemble.announced))
    assert [kind for kind, _ in ensemble.heard][-3:] == ["command_finished", "response", "announcement"]
    [settlement] = ensemble.ledger.settlements
    assert (settlement.session_id, settlement.advances, len(settlement.receipts)) == ("new", False, 1)


async def test_a_loaded_session_tells_the_version_that_it_has() -> None:
    ensemble = Ensemble()
    ensemble.ledger.versions["old"] = 9
    ensemble.handles["load_session"] = lambda _: ports.Handled(session_id="old")
    answer = await ensemble.client().ask("load_session", id="c", sessionPath="/x")
    assert answer["sessionVersion"] == 9
    assert ensemble.ledger.versions["old"] == 9


async def test_a_fork_moves_the_version_of_the_session_that_was_forked() -> None:
    ensemble = Ensemble()
    ensemble.ledger.versions["child"] = 0
    ensemble.handles["fork"] = lambda _: ports.Handled({"sessionId": "child"}, session_id="child")
    assert (await ensemble.client().ask("fork", id="c", sessionId="s", entryId="e"))["sessionVersion"] == 1
    assert ensemble.ledger.versions == {"s": 1, "child": 0}


async def test_a_session_that_went_away_meanwhile_tells_no_version() -> None:
    ensemble = Ensemble()
    run = ensemble.resting("p")
    client = ensemble.client()
    client.send("prompt", id="p", sessionId="s", message="m")
    del ensemble.ledger.versions["s"]
    run.set_result(ports.Handled())
    finished = await ensemble.finished("p")
    assert finished["success"] is True
    assert "sessionVersion" not in finished
    assert ensemble.ledger.settlements == []


async def test_a_handler_may_settle_for_itself() -> None:
    ensemble = Ensemble()
    client = ensemble.client()

    def delete(request: inbound.Request) -> ports.Handled:
        handled = ports.Handled({"deleted": True}, settled=True)
        ensemble.ledger.keep(ensemble.conductor.ended(request, client, handled))
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
        (ports.Refused("Model not found: p/m"), "Model not found: p/m"),
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
    ensemble = Ensemble()

    async def fail_later() -> ports.Handled:
        raise problem

    def fail(_: inbound.Request) -> ports.Handled:
        raise problem

    ensemble.handles["c"] = (lambda _: fail_later()) if late else fail
    with caplog.at_level(logging.ERROR):
        answer = await ensemble.client().ask(command, id="c", sessionId="s")
    assert answer == {"type": "response", "command": command, "success": False, "id": "c", "error": error}
    assert bool(caplog.records) == (error == "Internal error")
    assert ensemble.ledger.versions["s"] == 0


@pytest.mark.parametrize("command", ["get_state", "abort"])
async def test_an_answer_that_cannot_be_encoded_is_an_internal_error(command: str) -> None:
    ensemble = Ensemble()
    ensemble.handles["c"] = lambda _: ports.Handled(object())
    answer = await ensemble.client().ask(command, id="c", sessionId="s")
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
    ensemble = Ensemble()
    ensemble.refusing(command, "no")
    answer = await ensemble.client().ask(command, **fields)
    assert not answer["success"]
    assert "sessionVersion" not in answer
    assert [settlement.advances for settlement in ensemble.ledger.settlements] == [False] * stored


async def test_what_cannot_be_stored_is_told_as_a_failure() -> None:
    ensemble = Ensemble()
    ensemble.ledger.broken = True
    answer = await ensemble.client().ask("abort", id="c", sessionId="s")
    assert not answer["success"]
    assert "could not store" in answer["error"]
    ensemble.refusing("d", "the first reason")
    assert (await ensemble.client().ask("abort", id="d", sessionId="s"))["error"] == "the first reason"


async def test_the_expected_version_must_be_the_sessions() -> None:
    ensemble = Ensemble()
    ensemble.ledger.versions["s"] = 5
    client = ensemble.client()
    wrong = await client.ask("abort", id="a", sessionId="s", ifSessionVersion=4)
    assert wrong["error"] == "Session version mismatch: expected 4, got 5"
    missing = await client.ask("get_state", id="b", sessionId="nowhere", ifSessionVersion=0)
    assert missing["error"] == "Session nowhere not found"
    assert (await client.ask("abort", id="c", sessionId="s", ifSessionVersion=5))["sessionVersion"] == 6
    assert ensemble.began == ["c"]


async def test_too_many_in_flight_are_rejected_and_not_remembered() -> None:
    ensemble = Ensemble(msgspec.structs.replace(UNLIMITED, in_flight=2))
    first = ensemble.stalled("get_state")
    client = ensemble.client()
    client.send("get_state", id="a", sessionId="s")
    client.send("get_state", id="b", sessionId="s")
    client.send("list_sessions", id="c")
    client.send("get_state", id="a", sessionId="s")  # a duplicate that would wait counts too
    assert [(answer["id"], answer["error"][:34]) for answer in client.responses] == [
        ("c", "Too many commands in flight (2); h"),
        ("a", "Too many commands in flight (2); h"),
    ]
    assert ensemble.phases("c") == ["command_accepted", "command_finished", "response"]
    first.set_result(ports.Handled())
    await ensemble.until(lambda: len(client.responses) == 4)
    assert (await client.ask("list_sessions", id="c"))["success"]


async def test_shutdown_refuses_before_anything_else_and_lets_work_finish() -> None:
    ensemble = Ensemble()
    work = ensemble.stalled("a")
    client = ensemble.client()
    client.send("abort", id="a", sessionId="s")
    ensemble.conductor.shut_down()
    client.send("list_sessions", id="b")
    ensemble.conductor.receive(b"rubbish", client)
    assert [answer["error"] for answer in client.responses] == ["Server is shutting down"] * 2
    assert ensemble.phases("b") == ["response"]
    assert not await ensemble.conductor.drained(0.01)
    work.set_result(ports.Handled())
    assert await ensemble.conductor.drained(10)
    assert ensemble.phases("a")[-1] == "response"
    assert await ensemble.conductor.drained(0)


def restarted(ensemble: Ensemble) -> dict[str, dict[str, Any]]:
    """The answers by id, as the next process would replay them."""
    return {
        name.value: msgspec.json.decode(lifecycle.response(kept.outcome, name.value))
        for name, kept, _ in receipts.read(ensemble.ledger.receipts.values(), now_ms=0)
        if isinstance(kept, Ended)
    }


@pytest.mark.requirement("pi:replay:shutdown")
async def test_closing_stores_the_failure_of_what_is_left_before_a_client_gets_it() -> None:
    ensemble = Ensemble()
    work, run = ensemble.stalled("a"), ensemble.resting("r", is_run=True)
    client = ensemble.client()
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
    after = restarted(ensemble)
    for id_ in ("a", "r", "queued", "queued too"):
        assert after[id_] == {**told[id_], "type": "response"}, "the next process has what was sent"
    finished = [data["commandId"] for kind, data in ensemble.heard if kind == "command_finished"]
    assert sorted(finished) == ["a", "a", "queued", "queued too", "r", "settling"]


@pytest.mark.requirement("pi:replay:shutdown")
async def test_closing_sends_no_outcome_of_what_continues_or_cannot_be_stored() -> None:
    ensemble = Ensemble()
    run, making = ensemble.resting("r", is_run=True), ensemble.stalled("c")
    ensemble.stalled("anonymous")
    client = ensemble.client()
    client.send("prompt", id="r", sessionId="s", message="m")
    client.send("create_session", id="c")
    ensemble.ledger.outliving.add("s")
    await ensemble.conductor.close()
    assert (run.cancelled(), making.cancelled()) == (True, True)
    assert (client.responses, ensemble.ledger.settlements) == ([], [])

    broken = Ensemble()
    broken.stalled("a")
    broken.ledger.broken = True
    other = broken.client()
    other.send("abort", id="a", sessionId="s")
    await broken.conductor.close()
    assert other.responses == []


async def test_another_node_takes_over_without_a_word_from_this_one() -> None:
    ensemble = Ensemble()
    ensemble.stalled("a")
    client = ensemble.client()
    client.send("abort", id="a", sessionId="s")
    await ensemble.conductor.close(answer=False)
    assert (client.responses, ensemble.ledger.settlements) == ([], [])


async def test_metrics_count_what_was_executed_and_refused() -> None:
    ensemble = Ensemble(Limits(session_rate=2, client_rate=3))

    def full(_: inbound.Request) -> ports.Handled:
        raise ports.SessionLimit("Session limit reached (1 sessions)")

    ensemble.handles["create_session"] = full
    client = ensemble.client()
    await client.ask("create_session", id="a", idempotencyKey="k")
    await client.ask("get_state", sessionId="s")
    await client.ask("get_state", sessionId="s")
    await client.ask("get_state", sessionId="s")
    await client.ask("list_sessions")
    measured = ensemble.conductor.measure(client)
    assert measured.totalCommandsExecuted == 3
    rejected = measured.commandsRejected
    assert (rejected.sessionLimit, rejected.rateLimit, rejected.globalRateLimit) == (1, 1, 1)
    assert measured.rateLimitUsage.globalCount == 3
    replay = measured.stores.replay
    assert (replay.inFlightCount, replay.outcomeCount, replay.idempotencyCacheSize) == (0, 1, 1)
    assert measured.stores.execution.laneCount == 0
    assert msgspec.to_builtins(measured)["commandsRejected"]["messageSize"] == 0
