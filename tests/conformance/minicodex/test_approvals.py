"""Approvals: asked once, decided once, by whichever client is first; and what a denial does."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.minicodex.conftest import Enter
from tests.conformance.minicodex.shorthand import drop_deltas

from switchtower.testing.minicodex_client import Frame, MiniCodexClient


async def wait_for_approval(client: MiniCodexClient, text: str = "run: touch ran") -> Frame:
    await client.execute("send", text=text)
    pending = await client.next_of_type("approval_pending")
    await client.wait_for_status("awaiting_approval")
    return pending


@pytest.mark.requirement("minicodex:matrix:approval", "minicodex:approval:pending", "minicodex:approval:same-call-id")
async def test_an_approved_call_runs_and_the_run_finishes(minicodex_client: MiniCodexClient, workspace: Path) -> None:
    pending = await wait_for_approval(minicodex_client)
    [call] = [item for item in minicodex_client.ledger.transcript if item["type"] == "tool_call"]
    assert pending["call_id"] == call["call_id"]
    assert pending["tool_key"] == call["name"] == "run"
    assert json.loads(pending["args_json"]) == call["args"] == {"command": "touch ran"}
    brief = {"call_id": call["call_id"], "tool_key": "run", "args": {"command": "touch ran"}}
    assert (await minicodex_client.request_snapshot())["run_state"]["pending_approvals"] == [brief]
    assert not (workspace / "ran").exists()
    await minicodex_client.execute("approve", call_id=pending["call_id"])
    await minicodex_client.wait_for_end()
    assert (workspace / "ran").exists()
    assert drop_deltas(minicodex_client.frames) == [
        *("starting", "user_text", "running", "tool_call", "approval_pending", "awaiting_approval"),
        *("approve", "running", "function_call_output", "finished"),
    ]
    assert minicodex_client.ledger.transcript[-1]["type"] == "assistant_text"


@pytest.mark.requirement("minicodex:approval:deny-continue")
async def test_a_denial_goes_on_without_the_call(minicodex_client: MiniCodexClient, workspace: Path) -> None:
    pending = await wait_for_approval(minicodex_client, "run: touch ran\nsay: all the same")
    await minicodex_client.execute("deny", call_id=pending["call_id"])
    assert (await minicodex_client.wait_for_end())["status"] == "finished"
    told = drop_deltas(minicodex_client.frames)
    assert told[told.index("awaiting_approval") :] == [
        *("awaiting_approval", "deny_continue", "running", "function_call_output", "finished")
    ]
    [output] = [item for item in minicodex_client.ledger.transcript if item["type"] == "function_call_output"]
    assert output["result"]["isError"] is True
    assert "all the same" in minicodex_client.ledger.assistant_text
    assert not (workspace / "ran").exists()


@pytest.mark.requirement("minicodex:approval:deny-abort", "minicodex:handshake:capabilities")
async def test_a_denial_that_aborts_needs_the_capability(
    connect_minicodex: Enter, push_daemon: ManagedDaemon, workspace: Path
) -> None:
    plain, able = await connect_minicodex(push_daemon, cwd=workspace), await connect_minicodex(push_daemon, cwd=workspace)
    await plain.send_hello("reasoning", "who knows")
    await able.send_hello("deny_abort", "who knows")
    for client in (plain, able):
        pending = await wait_for_approval(client)
        if client is plain:
            before = await client.request_snapshot()
            for abort in (True, False):
                assert await client.expect_error("deny", call_id=pending["call_id"], abort=abort) == "BAD_ARGUMENT"
            assert await client.request_snapshot() == before
            await client.execute("abort")
        else:
            await client.execute("deny", call_id=pending["call_id"], abort=True)
        await client.wait_for_end()
    told = drop_deltas(able.frames)
    assert "deny_abort" in told
    assert told[-2:] == ["ABORTED", "finished"]
    [output] = [item for item in able.ledger.transcript if item["type"] == "function_call_output"]
    assert output["result"]["isError"] is True
    assert await able.request_snapshot() == able.ledger.build_snapshot()
    assert not (workspace / "ran").exists()


@pytest.mark.requirement("minicodex:approval:deny-abort")
async def test_a_denial_may_say_that_it_does_not_abort(
    connect_minicodex: Enter, push_daemon: ManagedDaemon, workspace: Path
) -> None:
    client = await connect_minicodex(push_daemon, cwd=workspace)
    await client.send_hello("deny_abort")
    await client.execute("deny", call_id=(await wait_for_approval(client))["call_id"], abort=False)
    await client.wait_for_end()
    assert "deny_continue" in drop_deltas(client.frames)


@pytest.mark.requirement("minicodex:approval:conflict", "minicodex:approval:unknown", "minicodex:errors:no-state-change")
async def test_a_call_is_decided_once_and_one_that_nobody_asked_about_never(minicodex_client: MiniCodexClient) -> None:
    pending = await wait_for_approval(minicodex_client, "read README.md\nrun: echo hi")
    [read] = [item for item in minicodex_client.ledger.transcript if item["type"] == "tool_call" and item["name"] == "read_file"]
    before = await minicodex_client.request_snapshot()
    for call_id in ("nope", read["call_id"], pending["call_id"].lower()):
        for command in ("approve", "deny"):
            assert await minicodex_client.expect_error(command, call_id=call_id) == "UNKNOWN_CALL_ID"
    assert await minicodex_client.request_snapshot() == before
    await minicodex_client.execute("approve", call_id=pending["call_id"])
    for command in ("approve", "deny"):
        assert await minicodex_client.expect_error(command, call_id=pending["call_id"]) == "APPROVAL_CONFLICT"
    await minicodex_client.wait_for_end()
    after = await minicodex_client.request_snapshot()
    for command in ("approve", "deny"):
        assert await minicodex_client.expect_error(command, call_id=pending["call_id"]) == "APPROVAL_CONFLICT"
    assert await minicodex_client.request_snapshot() == after


@pytest.mark.requirement("minicodex:approval:serialised", "minicodex:matrix:fanout")
async def test_of_many_that_decide_at_once_one_is_accepted_and_all_are_told_the_same(
    connect_minicodex: Enter, push_daemon: ManagedDaemon, minicodex_client: MiniCodexClient, workspace: Path
) -> None:
    clients = [minicodex_client]
    for _ in range(4):
        clients.append(await connect_minicodex(push_daemon, session_id=minicodex_client.session_id))
        await clients[-1].send_hello()
    rounds = 5
    await minicodex_client.execute("send", text="\n".join(f"run: echo {number} >> out.txt" for number in range(rounds)))
    approved = []
    for number in range(rounds):
        pending = [await client.next_of_type("approval_pending") for client in clients]
        assert [frame == pending[0] for frame in pending] == [True] * len(clients)
        call_id = pending[0]["call_id"]
        asking = [
            client.request("approve" if (place + number) % 2 else "deny", call_id=call_id) for place, client in enumerate(clients)
        ]
        answers = await asyncio.gather(*asking)
        codes = sorted(answer.get("code", "accepted") for answer in answers)
        assert codes == ["APPROVAL_CONFLICT"] * (len(clients) - 1) + ["accepted"]
        decisions = [await client.next_of_type("approval_decision") for client in clients]
        assert [frame == decisions[0] for frame in decisions] == [True] * len(clients)
        if decisions[0]["decision"] == "approve":
            approved.append(str(number))
    for client in clients:
        await client.wait_for_end()
        assert client.ledger.build_snapshot() == minicodex_client.ledger.build_snapshot()
    out = workspace / "out.txt"
    assert (out.read_text().split() if approved else []) == approved


@pytest.mark.requirement("minicodex:approval:withdrawn", "minicodex:abort:order")
async def test_a_question_that_an_abort_withdraws_has_its_decision_and_a_late_approval_is_told_why(
    minicodex_client: MiniCodexClient,
) -> None:
    pending = await wait_for_approval(minicodex_client)
    await minicodex_client.execute("abort")
    await minicodex_client.wait_for_end()
    told = drop_deltas(minicodex_client.frames)
    assert told[told.index("awaiting_approval") :] == [
        *("awaiting_approval", "aborting", "deny_abort", "function_call_output", "ABORTED", "finished")
    ]
    answer = await minicodex_client.request("approve", call_id=pending["call_id"])
    assert answer["code"] == "APPROVAL_CONFLICT"
    assert answer["message"].startswith(f"the question about `{pending['call_id']}` was withdrawn before a decision")
