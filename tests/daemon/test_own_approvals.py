"""What an agent started is the owner's process too, and yet may not decide in the owner's name, at any door."""

import json
import shlex
import sys
import textwrap

from tests.daemon.pi_stage import PiHarness

INSIDE = textwrap.dedent(
    """
    import asyncio, json, sys
    from switchtower.testing.pi_client import PiClient
    from switchtower.testing.push_client import PushClient
    from switchtower.testing.wire import SocketWire, UpgradeRefused, WebSocketWire

    session_id, approval_id, run_id, endpoints = sys.argv[1], sys.argv[2], sys.argv[3], json.load(open(sys.argv[4]))

    async def over_socket():
        async with await PushClient.connect_socket(endpoints["socket"]) as push:
            payload = {"sessionId": session_id, "approvalId": approval_id, "runId": run_id, "decision": "approve"}
            await push.send_frames(push.make_frame("submit_approval", payload, session_id=session_id))
            return (await push.wait_for_response()).code

    async def over_websocket():
        try:
            await WebSocketWire.open(endpoints["http"], endpoints["token"])
        except UpgradeRefused as refused:
            return refused.status

    async def over_pi(wire):
        try:
            return (await PiClient(wire).receive())["type"]
        except EOFError:
            return wire.close_code if hasattr(wire, "close_code") else "closed"

    async def main():
        http = endpoints["pi"].replace("ws://", "http://")
        return {
            "socket": await over_socket(),
            "websocket": await over_websocket(),
            "pi": await over_pi(await WebSocketWire.open(http, None, path="/")),
            "pi with token": await over_pi(await WebSocketWire.open(http, endpoints["token"], path="/")),
            "pi socket": await over_pi(await SocketWire.open(endpoints["piSocket"])),
        }

    print(json.dumps(asyncio.run(main())), file=open("told.json", "w"))
    """
)


async def test_a_command_of_a_run_decides_about_nothing(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    outside = await pi_harness.connect()
    waiting = await pi_harness.start_session(outside)
    await outside.begin("prompt", sessionId=waiting, message="run: touch decided")
    asked = await outside.next_event("extension_ui_request")
    run_id = (await (await pi_harness.push()).request_payload("get_session", {"sessionId": waiting}, session_id=waiting))[
        "activeRunId"
    ]
    (pi_harness.workspace / "inside.py").write_text(INSIDE)
    working = await pi_harness.start_session(outside)
    endpoints = pi_harness.home / "run" / "endpoints.json"
    command = f"{shlex.quote(sys.executable)} inside.py {waiting} {asked['requestId']} {run_id} {endpoints}"
    prompt = await outside.begin("prompt", sessionId=working, message=f"run: {command}")
    allowed = await outside.next_event("extension_ui_request")
    await outside.execute(
        "extension_ui_response",
        sessionId=working,
        requestId=allowed["requestId"],
        response={"method": "confirm", "confirmed": True},
    )
    await outside.wait_for_response(prompt)

    told = json.loads((pi_harness.workspace / "told.json").read_text())
    assert told == {"socket": "ATTACH_FORBIDDEN", "websocket": 401, "pi": 1008, "pi with token": 1008, "pi socket": "closed"}
    assert not (pi_harness.workspace / "decided").exists()


async def test_a_persons_own_command_speaks_for_them(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    client = await pi_harness.connect()
    session_id = await pi_harness.start_session(client)
    command = f"TOWER_HOME={pi_harness.home} {shlex.quote(sys.executable)} -m switchtower sessions"

    ran = await client.execute("bash", sessionId=session_id, command=command)

    assert ran["exitCode"] == 0
    assert session_id[-6:] in ran["output"] or "ws" in ran["output"]
