"""Over every protocol of a real daemon: what a client is shown of a question has all of what would run."""

import json
from pathlib import Path

import pytest
from tests.daemon.conftest import home as home
from tests.daemon.conftest import start_daemon_process as start_daemon_process
from tests.daemon.minicodex_stage import connect_and_greet
from tests.daemon.pi_stage import PiHarness
from tests.daemon.pi_stage import pi_harness as pi_harness

from switchtower.testing.model_script import CallStep, ScriptedReply, TextStep
from switchtower.testing.relay_client import RelayApp, RelayHttp

PEM_COMMAND = 'echo "-----BEGIN PRIVATE KEY-----\n"; touch PWNED; echo "-----END PRIVATE KEY-----"'
EXPANDED = 'export DB_PASSWORD="x1$(touch PWNED)"; make test'
CODE = "-----BEGIN PRIVATE KEY-----\nimport os\nos.system('touch PWNED')\n"


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (CallStep("run", {"command": PEM_COMMAND}), [PEM_COMMAND]),
        (CallStep("run", {"command": EXPANDED}), [EXPANDED]),
        (CallStep("run", {"command": f"{EXPANDED} # " + "x" * 9_000 + "; touch PWNED"}), ["; touch PWNED"]),
        (
            CallStep("write_file", {"path": "setup.py", "content": CODE}),
            ["-----BEGIN PRIVATE KEY-----", "os.system('touch PWNED')"],
        ),
    ],
    ids=["key", "expansion", "long", "diff"],
)
async def test_every_protocol_shows_all_of_what_would_run(pi_harness: PiHarness, call: CallStep, parts: list[str]) -> None:
    await pi_harness.start_model_server(ScriptedReply((call,)))
    await pi_harness.open()
    mini, pi, push = await connect_and_greet(pi_harness), await pi_harness.connect(), await pi_harness.push()
    session_id = mini.session_id
    await pi.execute("switch_session", sessionId=session_id)
    await push.attach(session_id)
    token = pi_harness.endpoints["token"]
    async with await RelayApp.open(pi_harness.endpoints["http"], token) as app:
        await mini.execute("send", text="go")
        over_push = (await push.read_until("approval_required"))[-1].payload
        over_mini = json.loads((await mini.next_of_type("approval_pending"))["args_json"])
        over_pi = (await pi.next_event("extension_ui_request"))["message"]
        over_relay = (await app.next_of_type("run.permission_requested"))["data"]
    shown = [
        "\n".join(text.lstrip("+") for value in over_push["details"].values() for text in str(value).splitlines()),
        "\n".join(map(str, over_mini.values())),
        "\n".join(line.lstrip("+") for line in over_pi.splitlines()),
        "\n".join(text.lstrip("+") for value in over_relay["op_args"].values() for text in str(value).splitlines()),
    ]
    for protocol, text in zip(("push", "minicodex", "pi", "relay"), shown, strict=True):
        for part in parts:
            assert part in text, protocol
    assert not (pi_harness.workspace / "PWNED").exists()


async def test_a_call_that_cannot_be_shown_fails_and_is_not_asked(pi_harness: PiHarness) -> None:
    long = CallStep("run", {"command": "true " + "x" * 300_000})
    binary = CallStep("write_file", {"path": "tool", "content": "a\0b"})
    (pi_harness.workspace / "tool").write_bytes(b"\0\1")
    await pi_harness.start_model_server(ScriptedReply((long,)), ScriptedReply((binary,)), ScriptedReply((TextStep("done"),)))
    await pi_harness.open()
    push = await pi_harness.push()
    session_id = (await push.start_session(pi_harness.workspace, provider="openai")).session_id
    await push.send(session_id, "go")
    events = await push.read_until("run_complete")
    assert "approval_required" not in [event.type for event in events]
    results = [event.payload["text"] for event in events if event.type == "tool_result"]
    assert len(results) == 2
    assert all("cannot be shown" in text for text in results)
    assert (pi_harness.workspace / "tool").read_bytes() == b"\0\1"


async def test_a_write_from_afar_is_shown_whole(pi_harness: PiHarness) -> None:
    await pi_harness.open()
    content = "# " + "x" * 5_000 + "\ntouch PWNED\n"
    token = pi_harness.endpoints["token"]
    async with await RelayApp.open(pi_harness.endpoints["http"], token) as app:
        host_id = (await RelayHttp(pi_harness.endpoints["http"], token).get("/hosts"))[0]["id"]
        run = await app.start(host_id, "cat", cwd=str(pi_harness.workspace))
        await app.next_of_type("run.ready", run)
        await app.send_command("rpc.fs.write", run, request_id="w-1", path="x.sh", content=content)
        asked = (await app.next_of_type("run.permission_requested", run))["data"]
    assert asked["op_args"]["content"] == content
    assert asked["op_args"]["truncated"] is False
    assert not Path(pi_harness.workspace / "x.sh").exists()
