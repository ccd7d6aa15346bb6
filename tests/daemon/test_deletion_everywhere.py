"""A session that is deleted is gone for every client that watches it, whichever protocol deleted it and whichever it speaks."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from tests.daemon.pi_stage import Stage
from tests.daemon.test_terminals_everywhere import HOST, PATIENCE, MiniCodex, Pi, Push, Relay, doors

from switchtower.testing.relay_client import RelayHttp


@pytest.mark.requirement("push:delete:announced", "minicodex:session:deleted", "pi:event:session_deleted", "relay:run:deleted")
@pytest.mark.parametrize("by", ["push", "relay"])
@pytest.mark.parametrize("kind", ["agent", "program", "named by pi"])
async def test_every_watcher_of_a_deleted_session_is_sent_its_end(stage: Stage, by: str, kind: str) -> None:
    await stage.open(host_id=HOST)
    async with AsyncExitStack() as stack:
        by_name = await doors(stage, stack)
        push, pi, mini, relay = by_name["push"], by_name["pi"], by_name["minicodex"], by_name["relay"]
        assert isinstance(push, Push)
        assert isinstance(pi, Pi)
        assert isinstance(mini, MiniCodex)
        assert isinstance(relay, Relay)
        name = "s1"
        if kind == "program":
            session_id = name = await push.start(stage.workspace)
        elif kind == "agent":
            session_id = name = (await push.client.start_session(stage.workspace)).session_id
        else:
            await pi.client.do("create_session", sessionId=name, cwd=str(stage.workspace))
            (listed,) = (await push.client.ask("list_sessions"))["sessions"]
            session_id = listed["sessionId"]
        await pi.join(name)
        mini.client = await mini._open(session_id=session_id)
        await mini.client.hello()
        await relay.join(session_id)
        await push.join(session_id)
        if kind == "program":
            await push.type("ready")
            await push.sees("got ready.")
            await push.end()
            await push.sees_the_end()
            await relay.sees_the_end()

        if by == "push":
            await push.client.ask("delete_session", {}, session_id=session_id)
        else:
            http = RelayHttp(stage.endpoints["http"], stage.endpoints["token"])
            assert (await http.request("DELETE", f"/runs/{session_id}")).status == 204
        async with asyncio.timeout(PATIENCE):
            while (event := await push.client.event()).payload.get("code") != "SESSION_DELETED":
                pass
            assert event.type == "warning"
            gone = await pi.client.until(lambda frame: frame["type"] == "session_deleted")
            assert gone == {"type": "session_deleted", "data": {"sessionId": name}}
            assert (await pi.client.do("list_sessions"))["sessions"] == []
            assert [frame for frame in pi.client.frames if frame["type"] == "session_deleted"] == [gone], "once"
            exited = await relay.app.until(lambda frame: frame["type"] == "run.exited" and "deleted" in frame["data"])
            exit_code = 7 if kind == "program" else 0
            assert (exited["run_id"], exited["data"]) == (session_id, {"exit_code": exit_code, "deleted": True})
            refused = await mini.client.until(lambda frame: frame["type"] == "error" and frame["code"] == "UNKNOWN_SESSION")
            assert "event_id" not in refused
            assert await mini.client.closed() == 1008
