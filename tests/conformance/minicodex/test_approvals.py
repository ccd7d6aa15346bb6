"""Approvals: asked once, decided once, by whichever client is first; and what a denial does."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.conformance.daemons import Daemon
from tests.conformance.minicodex.conftest import Enter
from tests.conformance.minicodex.shorthand import without_pieces

from switchtower.testing.minicodex_client import Frame, MiniCodexClient


async def asked(client: MiniCodexClient, text: str = "run: touch ran") -> Frame:
    await client.do("send", text=text)
    pending = await client.next_of("approval_pending")
    await client.status("awaiting_approval")
    return pending


@pytest.mark.requirement("minicodex:matrix:approval", "minicodex:approval:pending", "minicodex:approval:same-call-id")
async def test_an_approved_call_runs_and_the_run_finishes(mini: MiniCodexClient, workspace: Path) -> None:
    pending = await asked(mini)
    [call] = [item for item in mini.ledger.transcript if item["type"] == "tool_call"]
    assert pending["call_id"] == call["call_id"]
    assert pending["tool_key"] == call["name"] == "run"
    assert json.loads(pending["args_json"]) == call["args"] == {"command": "touch ran"}
    brief = {"call_id": call["call_id"], "tool_key": "run", "args": {"command": "touch ran"}}
    assert (await mini.snapshot())["run_state"]["pending_approvals"] == [brief]
    assert not (workspace / "ran").exists()
    await mini.do("approve", call_id=pending["call_id"])
    await mini.ended()
    assert (workspace / "ran").exists()
    assert without_pieces(mini.frames) == [
        *("starting", "user_text", "running", "tool_call", "approval_pending", "awaiting_approval"),
        *("approve", "running", "function_call_output", "finished"),
    ]
    assert mini.ledger.transcript[-1]["type"] == "assistant_text"


@pytest.mark.requirement("minicodex:approval:deny-continue")
async def test_a_denial_goes_on_without_the_call(mini: MiniCodexClient, workspace: Path) -> None:
    pending = await asked(mini, "run: touch ran\nsay: all the same")
    await mini.do("deny", call_id=pending["call_id"])
    assert (await mini.ended())["status"] == "finished"
    told = without_pieces(mini.frames)
    assert told[told.index("awaiting_approval") :] == [
        *("awaiting_approval", "deny_continue", "running", "function_call_output", "finished")
    ]
    [output] = [item for item in mini.ledger.transcript if item["type"] == "function_call_output"]
    assert output["result"]["isError"] is True
    assert "all the same" in mini.ledger.said
    assert not (workspace / "ran").exists()


@pytest.mark.requirement("minicodex:approval:deny-abort", "minicodex:handshake:capabilities")
async def test_a_denial_that_aborts_needs_the_capability(enter: Enter, pushd: Daemon, workspace: Path) -> None:
    plain, able = await enter(pushd, cwd=workspace), await enter(pushd, cwd=workspace)
    await plain.hello("reasoning", "who knows")
    await able.hello("deny_abort", "who knows")
    for client in (plain, able):
        pending = await asked(client)
        if client is plain:
            before = await client.snapshot()
            for abort in (True, False):
                assert await client.refused("deny", call_id=pending["call_id"], abort=abort) == "BAD_ARGUMENT"
            assert await client.snapshot() == before
            await client.do("abort")
        else:
            await client.do("deny", call_id=pending["call_id"], abort=True)
        await client.ended()
    told = without_pieces(able.frames)
    assert "deny_abort" in told
    assert told[-2:] == ["ABORTED", "finished"]
    [output] = [item for item in able.ledger.transcript if item["type"] == "function_call_output"]
    assert output["result"]["isError"] is True
    assert await able.snapshot() == able.ledger.as_snapshot()
    assert not (workspace / "ran").exists()


@pytest.mark.requirement("minicodex:approval:deny-abort")
async def test_a_denial_may_say_that_it_does_not_abort(enter: Enter, pushd: Daemon, workspace: Path) -> None:
    client = await enter(pushd, cwd=workspace)
    await client.hello("deny_abort")
    await client.do("deny", call_id=(await asked(client))["call_id"], abort=False)
    await client.ended()
    assert "deny_continue" in without_pieces(client.frames)


@pytest.mark.requirement("minicodex:approval:conflict", "minicodex:approval:unknown", "minicodex:errors:no-state-change")
async def test_a_call_is_decided_once_and_one_that_nobody_asked_about_never(mini: MiniCodexClient) -> None:
    pending = await asked(mini, "read README.md\nrun: echo hi")
    [read] = [item for item in mini.ledger.transcript if item["type"] == "tool_call" and item["name"] == "read_file"]
    before = await mini.snapshot()
    for call_id in ("nope", read["call_id"], pending["call_id"].lower()):
        for command in ("approve", "deny"):
            assert await mini.refused(command, call_id=call_id) == "UNKNOWN_CALL_ID"
    assert await mini.snapshot() == before
    await mini.do("approve", call_id=pending["call_id"])
    for command in ("approve", "deny"):
        assert await mini.refused(command, call_id=pending["call_id"]) == "APPROVAL_CONFLICT"
    await mini.ended()
    after = await mini.snapshot()
    for command in ("approve", "deny"):
        assert await mini.refused(command, call_id=pending["call_id"]) == "APPROVAL_CONFLICT"
    assert await mini.snapshot() == after


@pytest.mark.requirement("minicodex:approval:serialised", "minicodex:matrix:fanout")
async def test_of_many_that_decide_at_once_one_is_accepted_and_all_are_told_the_same(
    enter: Enter, pushd: Daemon, mini: MiniCodexClient, workspace: Path
) -> None:
    clients = [mini]
    for _ in range(4):
        clients.append(await enter(pushd, session_id=mini.session_id))
        await clients[-1].hello()
    rounds = 5
    await mini.do("send", text="\n".join(f"run: echo {number} >> out.txt" for number in range(rounds)))
    approved = []
    for number in range(rounds):
        pending = [await client.next_of("approval_pending") for client in clients]
        assert [frame == pending[0] for frame in pending] == [True] * len(clients)
        call_id = pending[0]["call_id"]
        asking = [
            client.ask("approve" if (place + number) % 2 else "deny", call_id=call_id) for place, client in enumerate(clients)
        ]
        answers = await asyncio.gather(*asking)
        codes = sorted(answer.get("code", "accepted") for answer in answers)
        assert codes == ["APPROVAL_CONFLICT"] * (len(clients) - 1) + ["accepted"]
        decisions = [await client.next_of("approval_decision") for client in clients]
        assert [frame == decisions[0] for frame in decisions] == [True] * len(clients)
        if decisions[0]["decision"] == "approve":
            approved.append(str(number))
    for client in clients:
        await client.ended()
        assert client.ledger.as_snapshot() == mini.ledger.as_snapshot()
    out = workspace / "out.txt"
    assert (out.read_text().split() if approved else []) == approved


@pytest.mark.requirement("minicodex:approval:withdrawn", "minicodex:abort:order")
async def test_a_question_that_an_abort_withdraws_has_its_decision_and_a_late_approval_is_told_why(mini: MiniCodexClient) -> None:
    pending = await asked(mini)
    await mini.do("abort")
    await mini.ended()
    told = without_pieces(mini.frames)
    assert told[told.index("awaiting_approval") :] == [
        *("awaiting_approval", "aborting", "deny_abort", "function_call_output", "ABORTED", "finished")
    ]
    answer = await mini.ask("approve", call_id=pending["call_id"])
    assert answer["code"] == "APPROVAL_CONFLICT"
    assert answer["message"].startswith(f"the question about `{pending['call_id']}` was withdrawn before a decision")
