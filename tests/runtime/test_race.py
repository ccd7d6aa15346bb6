"""A hundred push clients decide on one approval at the same moment: exactly one of them wins, on every round."""

import asyncio
import json
import random

from tests.runtime.parts import MakeRuntime, ask_once

from switchtower.core import events
from switchtower.core.roles import Access
from switchtower.protocols.push.connection import PushConnection
from switchtower.testing.memory.stream import RecordingReceiver, join_receivers

CLIENTS = 100
ROUNDS = 50


def _request(number: int, type_: str, session_id: str | None, payload: dict[str, object]) -> bytes:
    envelope = {"v": "push.runtime.v1", "kind": "request", "requestId": f"req_{number}", "type": type_, "payload": payload}
    return json.dumps(envelope | ({"sessionId": session_id} if session_id else {})).encode()


async def _answer(inbox: RecordingReceiver, number: int) -> dict[str, object]:
    async with asyncio.timeout(60):
        while True:
            frame = json.loads(await inbox.next_frame())
            if frame["kind"] == "response" and frame["requestId"] == f"req_{number}":
                return dict(frame)


async def test_exactly_one_of_a_hundred_clients_decides(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(ask_once)
    dice = random.Random(1)
    inboxes: list[RecordingReceiver] = []
    for number in range(CLIENTS):
        inbox = RecordingReceiver()
        join_receivers(PushConnection(house.runtime, Access(name=f"client {number}", via="cli", trusted=True), "test"), inbox)
        inboxes.append(inbox)

    for round_ in range(ROUNDS):
        session_id = f"sess_{round_}"
        outlet = await house.start_session(session_id)
        run_id = await house.send(session_id=session_id)
        approval_id = (await outlet.wait_for_event(events.ApprovalRequested)).approval.id
        decisions = [dice.choice(["approve", "deny"]) for _ in inboxes]
        for inbox, decision in zip(dice.sample(inboxes, CLIENTS), decisions, strict=True):
            payload = {"runId": run_id, "approvalId": approval_id, "decision": decision}
            inbox.send(_request(round_, "submit_approval", session_id, payload))
            if dice.random() < 0.3:
                await asyncio.sleep(0)
        answers = await asyncio.gather(*(_answer(inbox, round_) for inbox in inboxes))

        winners = [answer for answer in answers if answer["ok"]]
        refusals = [answer["error"]["code"] for answer in answers if not answer["ok"]]  # type: ignore[index]
        assert len(winners) == 1
        assert refusals == ["APPROVAL_EXPIRED"] * (CLIENTS - 1)
        completed = await outlet.wait_for_event(events.RunCompleted)
        (decided,) = outlet.list_events(events.ApprovalDecided)
        approved = decided.verdict is events.Verdict.APPROVE
        assert completed.outcome is (events.Outcome.SUCCESS if approved else events.Outcome.DENIED)
