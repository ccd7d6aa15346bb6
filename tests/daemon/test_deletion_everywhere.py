"""A session that is deleted is gone for every client that watches it, whichever protocol deleted it and whichever it speaks."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from tests.daemon.pi_stage import PiHarness
from tests.daemon.test_terminals_everywhere import (
    HOST,
    TIMEOUT,
    TerminalMiniCodexDriver,
    TerminalPiDriver,
    TerminalPushDriver,
    TerminalRelayDriver,
    open_protocol_clients,
)

from switchtower.testing.relay_client import RelayHttp


@pytest.mark.requirement("push:delete:announced", "minicodex:session:deleted", "pi:event:session_deleted", "relay:run:deleted")
@pytest.mark.parametrize("by", ["push", "relay"])
@pytest.mark.parametrize("kind", ["agent", "program", "named by pi"])
async def test_every_watcher_of_a_deleted_session_is_sent_its_end(pi_harness: PiHarness, by: str, kind: str) -> None:
    await pi_harness.open(host_id=HOST)
    async with AsyncExitStack() as stack:
        by_name = await open_protocol_clients(pi_harness, stack)
        push, pi, mini, relay = by_name["push"], by_name["pi"], by_name["minicodex"], by_name["relay"]
        assert isinstance(push, TerminalPushDriver)
        assert isinstance(pi, TerminalPiDriver)
        assert isinstance(mini, TerminalMiniCodexDriver)
        assert isinstance(relay, TerminalRelayDriver)
        name = "s1"
        if kind == "program":
            session_id = name = await push.start(pi_harness.workspace)
        elif kind == "agent":
            session_id = name = (await push.client.start_session(pi_harness.workspace)).session_id
        else:
            await pi.client.execute("create_session", sessionId=name, cwd=str(pi_harness.workspace))
            (listed,) = (await push.client.request_payload("list_sessions"))["sessions"]
            session_id = listed["sessionId"]
        await pi.join(name)
        mini.client = await mini._open(session_id=session_id)
        await mini.client.send_hello()
        await relay.join(session_id)
        await push.join(session_id)
        if kind == "program":
            await push.type("ready")
            await push.wait_for_text("got ready.")
            await push.end()
            await push.wait_for_end()
            await relay.wait_for_end()

        if by == "push":
            await push.client.request_payload("delete_session", {}, session_id=session_id)
        else:
            http = RelayHttp(pi_harness.endpoints["http"], pi_harness.endpoints["token"])
            assert (await http.request("DELETE", f"/runs/{session_id}")).status == 204
        async with asyncio.timeout(TIMEOUT):
            while (event := await push.client.next_event()).payload.get("code") != "SESSION_DELETED":
                pass
            assert event.type == "warning"
            gone = await pi.client.wait_for(lambda frame: frame["type"] == "session_deleted")
            assert gone == {"type": "session_deleted", "data": {"sessionId": name}}
            assert (await pi.client.execute("list_sessions"))["sessions"] == []
            assert [frame for frame in pi.client.frames if frame["type"] == "session_deleted"] == [gone], "once"
            exited = await relay.app.wait_for(lambda frame: frame["type"] == "run.exited" and "deleted" in frame["data"])
            exit_code = 7 if kind == "program" else 0
            assert (exited["run_id"], exited["data"]) == (session_id, {"exit_code": exit_code, "deleted": True})
            refused = await mini.client.wait_for(lambda frame: frame["type"] == "error" and frame["code"] == "UNKNOWN_SESSION")
            assert "event_id" not in refused
            assert await mini.client.wait_closed() == 1008
