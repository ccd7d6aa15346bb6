"""One session over three protocols at once, and a daemon that dies while somebody is asked."""

import asyncio

from tests.daemon.minicodex_stage import connect_and_greet, connect_minicodex, read_until
from tests.daemon.pi_stage import PiHarness, list_assistant_texts

from switchtower.testing.minicodex_client import MiniCodexClient


async def test_an_approval_that_waits_over_a_crash_is_decided_by_who_comes_back(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    mini = await connect_and_greet(pi_harness)
    await mini.execute("send", text="run: echo once >> out.txt\nsay: done", client_msg_id="m1")
    pending = await mini.next_of_type("approval_pending")
    await mini.wait_for_status("awaiting_approval")
    await pi_harness.open_again()

    again = await connect_minicodex(pi_harness, session_id=mini.session_id, ledger=mini.ledger)
    welcome = await again.resume()
    assert welcome["session_state"]["active_run_id"] == pending["run_id"]
    assert await again.request_snapshot() == again.ledger.build_snapshot()
    assert again.ledger.run_state is not None
    assert [brief["call_id"] for brief in again.ledger.run_state["pending_approvals"]] == [pending["call_id"]]
    # Still the same message, and still asked about.
    await again.execute("send", text="run: echo once >> out.txt\nsay: done", client_msg_id="m1")
    assert await again.expect_error("send", text="another") == "BUSY"
    await again.execute("approve", call_id=pending["call_id"])
    assert (await again.wait_for_end())["status"] == "finished"
    assert (pi_harness.workspace / "out.txt").read_text() == "once\n"
    assert await again.request_snapshot() == again.ledger.build_snapshot()
    assert await again.expect_error("deny", call_id=pending["call_id"]) == "APPROVAL_CONFLICT"
    fresh = await connect_minicodex(pi_harness, session_id=mini.session_id)
    assert await fresh.send_hello() == again.ledger.build_snapshot()


async def test_a_run_that_a_crash_cut_off_ends_for_who_comes_back(pi_harness: PiHarness) -> None:
    await pi_harness.open(demo_delay_ms=2)
    mini = await connect_and_greet(pi_harness)
    await mini.execute("send", text="count 100000")
    for _ in range(30):
        await mini.next_of_type("assistant_text")
    await pi_harness.open_again(demo_delay_ms=2)
    again = await connect_minicodex(pi_harness, session_id=mini.session_id, ledger=mini.ledger)
    await again.resume()
    assert (await again.wait_for_end())["status"] == "error"
    assert await again.request_snapshot() == again.ledger.build_snapshot()
    await again.run("say: here again")
    assert again.ledger.assistant_text.endswith("here again")


async def test_three_protocols_drive_one_session_and_agree(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    mini, pi, push = await connect_and_greet(pi_harness), await pi_harness.connect(), await pi_harness.push()
    session_id = mini.session_id
    await pi.execute("switch_session", sessionId=session_id)
    await push.attach(session_id)
    yes = {"method": "confirm", "confirmed": True}
    said = []
    for number, (sender, approver) in enumerate((("mini", "push"), ("push", "pi"), ("pi", "mini"))):
        text = f"run: echo {sender} >> out.txt\nsay: number {number}"
        if sender == "mini":
            await mini.execute("send", text=text)
        elif sender == "push":
            await push.send(session_id, text)
        else:
            await pi.begin("prompt", sessionId=session_id, message=text)
        pending = await mini.next_of_type("approval_pending")
        required = (await push.read_until("approval_required"))[-1]
        request = await pi.next_event("extension_ui_request")
        assert required.payload["approvalId"] == request["requestId"]
        if approver == "mini":
            await mini.execute("approve", call_id=pending["call_id"])
        elif approver == "push":
            assert (await push.decide(required)).ok
        else:
            await pi.execute("extension_ui_response", sessionId=session_id, requestId=request["requestId"], response=yes)
        assert (await mini.next_of_type("approval_decision"))["decision"] == "approve"
        # Too late for all the others.
        assert await mini.expect_error("deny", call_id=pending["call_id"]) == "APPROVAL_CONFLICT"
        assert (await push.decide(required, "deny")).ok is False
        assert (await mini.wait_for_end())["status"] == "finished"
        assert (await push.read_until("run_complete"))[-1].payload["outcome"] == "success"
        ended = await pi.next_event("agent_end")
        said += list_assistant_texts(ended["messages"])
    assert (pi_harness.workspace / "out.txt").read_text().split() == ["mini", "push", "pi"]
    assert "".join(said) == mini.ledger.assistant_text
    messages = (await pi.execute("get_messages", sessionId=session_id))["messages"]
    assert list_assistant_texts(messages) == said
    users = [item["text"] for item in mini.ledger.transcript if item["type"] == "user_text"]
    assert len(users) == mini.ledger.session_state["run_counter"] == 3
    assert await mini.request_snapshot() == mini.ledger.build_snapshot()


async def test_of_three_protocols_that_answer_at_once_one_wins(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    mini, pi, push = await connect_and_greet(pi_harness), await pi_harness.connect(), await pi_harness.push()
    session_id = mini.session_id
    await pi.execute("switch_session", sessionId=session_id)
    await push.attach(session_id)
    rounds = 9
    await mini.execute("send", text="\n".join(f"run: echo {number} >> out.txt" for number in range(rounds)))
    approved = []
    for number in range(rounds):
        pending = await mini.next_of_type("approval_pending")
        required = (await push.read_until("approval_required"))[-1]
        request = await pi.next_event("extension_ui_request")

        async def over_mini(call_id: str = pending["call_id"], verdict: str = "deny" if number % 2 else "approve") -> bool:
            return bool((await mini.request(verdict, call_id=call_id))["type"] == "accepted")

        async def over_pi(request_id: str = request["requestId"]) -> bool:
            no = {"method": "confirm", "confirmed": False}
            return bool(
                (await pi.request("extension_ui_response", sessionId=session_id, requestId=request_id, response=no))["success"]
            )

        async def over_push(required: object = required) -> bool:
            return bool((await push.decide(required)).ok)  # type: ignore[arg-type]

        asking = [over_mini(), over_pi(), over_push()]
        turn = number % 3
        answers = await asyncio.gather(*asking[turn:], *asking[:turn])
        assert sorted(answers) == [False, False, True]
        if (await mini.next_of_type("approval_decision"))["decision"] == "approve":
            approved.append(str(number))
    assert (await mini.wait_for_end())["status"] == "finished"
    written = (pi_harness.workspace / "out.txt").read_text().split() if approved else []
    assert written == approved
    late: MiniCodexClient = await connect_minicodex(pi_harness, session_id=session_id)
    assert await late.send_hello() == mini.ledger.build_snapshot()
    await read_until(late, mini.ledger.last_event_id)
