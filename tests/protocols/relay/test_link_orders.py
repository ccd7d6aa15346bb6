"""What the hub asks of a host over the link, and how it is answered."""

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.protocols.relay.link_parts import HOST, Frame, LinkedHost, ScriptedHostConnection, ScriptedHub
from tests.runtime.parts import ask_once, work_until_cancelled

from switchtower.core import commands, events
from switchtower.protocols.relay import inbound, messages, wire_values
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.protocols.relay.link import hub_requests
from switchtower.testing.session_driver import start_session
from switchtower.transports.stream import Packet

RUN = "sess_run"
NOT_TEXT = "Expected `str`, got `int` - at `$.text`"


class HubRequestHarness:
    """A hub, a host and a run in a folder."""

    def __init__(self, hub: ScriptedHub, host: LinkedHost, call: ScriptedHostConnection) -> None:
        self.hub = hub
        self.host = host
        self.call = call

    async def wait_for_message(self, type_: str, number: int = 1) -> Frame:
        """The so many-th message of this type."""
        await self.hub.wait_until(lambda: len(self.call.list_messages(type_)) >= number)
        return self.call.list_messages(type_)[number - 1]

    async def ask(self, type_: str, run_id: str | None = RUN, **data: Any) -> Frame:
        """The answer to a call."""
        before = len(self.call.list_messages("rpc.response"))
        head = {"run_id": run_id} if run_id is not None else {}
        self.call.send(type_, {"request_id": "req_1", **data}, **head)
        return await self.wait_for_message("rpc.response", before + 1)


@pytest.fixture
async def hub_request_harness(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[HubRequestHarness]:
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # a login shell does what its owner's profile says
    work = getattr(request, "param", work_until_cancelled)
    (tmp_path / "note.txt").write_text("hello\n")
    hub = ScriptedHub()
    await hub.open()
    host = LinkedHost(hub, work, folder=tmp_path)
    await host.open()
    start = structs.replace(start_session(RUN), workspace=events.Workspace(root=str(tmp_path)))
    await host.runtime.ask(start)
    await host.runtime.send(session_id=RUN)
    yield HubRequestHarness(hub, host, await hub.wait_for_connection())
    await host.close()
    await hub.close()


def drop_time(frame: Frame) -> Frame:
    return {name: value for name, value in frame.items() if name != "ts"}


async def test_a_call_is_answered_with_its_result(hub_request_harness: HubRequestHarness) -> None:
    answer = await hub_request_harness.ask("rpc.fs.read", path="note.txt")
    assert drop_time(answer) == {
        "type": "rpc.response",
        "host_id": HOST,
        "run_id": RUN,
        "data": {
            "request_id": "req_1",
            "ok": True,
            "rpc_type": "rpc.fs.read",
            "result": {"path": "note.txt", "content": "hello\n", "truncated": False},
        },
    }
    result = await hub_request_harness.wait_for_message("tool.result")
    assert (result["data"]["request_id"], result["data"]["ok"]) == ("req_1", True)


@pytest.mark.parametrize(
    ("type_", "run_id", "data", "error"),
    [
        ("rpc.fs.read", RUN, {"path": "../x"}, "path contains .."),
        ("rpc.fs.read", RUN, {"path": "/etc/passwd"}, "path must be relative"),
        ("rpc.fs.read", "sess_nobody", {"path": "x"}, "unknown run_id"),
        ("rpc.fs.read", "é" * 128, {"path": "x"}, "unknown run_id"),
        ("rpc.fs.read", None, {"path": "x"}, "unknown run_id"),
        ("rpc.fs.paint", RUN, {}, "unknown rpc type"),
        ("rpc.fs.read", RUN, {"path": 7}, "Expected `str`, got `int` - at `$.path`"),
        ("rpc.host.info", None, {"host_id": "host_2"}, "unknown host_id"),
        ("rpc.run.start", None, {"cmd": ""}, "`cmd` and `tool` are empty"),
    ],
)
async def test_a_call_that_cannot_be_done_says_why(
    hub_request_harness: HubRequestHarness, type_: str, run_id: str | None, data: dict[str, Any], error: str
) -> None:
    answer = await hub_request_harness.ask(type_, run_id, **data)
    assert answer.get("run_id") == run_id
    assert answer["data"] == {"request_id": "req_1", "ok": False, "rpc_type": type_, "error": error}


async def test_a_host_tells_about_itself(hub_request_harness: HubRequestHarness) -> None:
    answer = await hub_request_harness.ask("rpc.host.info", None, host_id=HOST)
    assert answer["data"]["ok"]
    assert answer["data"]["result"]["host_id"] == HOST
    assert "run_id" not in answer
    runs = await hub_request_harness.ask("rpc.runs.list")
    assert [run["run_id"] for run in runs["data"]["result"]["runs"]] == [RUN]


async def test_a_started_run_is_named_in_the_envelope_and_in_the_result(hub_request_harness: HubRequestHarness) -> None:
    answer = await hub_request_harness.ask("rpc.run.start", None, host_id=HOST, tool="codex", cmd="true")
    run_id = answer["data"]["result"]["run_id"]
    assert answer["run_id"] == run_id
    await hub_request_harness.hub.wait_until(lambda: bool(hub_request_harness.hub.stored.get(run_id)))
    assert hub_request_harness.hub.stored[run_id][0]["data"]["command"] == "true"


async def test_a_gated_call_waits_for_a_decision_that_comes_the_same_way(hub_request_harness: HubRequestHarness) -> None:
    hub_request_harness.call.send("rpc.bash", {"request_id": "req_9", "cmd": "echo out; exit 3"}, run_id=RUN)
    question = await hub_request_harness.wait_for_message("run.permission_requested")
    assert question["data"]["request_id"] == "req_9"
    hub_request_harness.call.send("run.permission.approve", {"request_id": "req_9", "actor": "cli", "by": "ann"}, run_id=RUN)
    answer = await hub_request_harness.wait_for_message("rpc.response")
    assert (answer["data"]["result"]["stdout"], answer["data"]["result"]["exit_code"]) == ("out\n", 3)
    decided = await hub_request_harness.wait_for_message("run.permission_decided")
    assert (decided["data"]["via"], decided["data"]["claims"]) == ("hub", {"by": "ann", "via": "cli"})


async def test_a_denied_call_is_told_so(hub_request_harness: HubRequestHarness) -> None:
    hub_request_harness.call.send("rpc.fs.write", {"request_id": "req_9", "path": "new.txt", "content": "x"}, run_id=RUN)
    await hub_request_harness.wait_for_message("run.permission_requested")
    hub_request_harness.call.send("run.permission.deny", {"request_id": "req_9"}, run_id=RUN)
    answer = await hub_request_harness.wait_for_message("rpc.response")
    assert answer["data"] == {"request_id": "req_9", "ok": False, "rpc_type": "rpc.fs.write", "error": "denied"}


@pytest.mark.parametrize("hub_request_harness", [ask_once], indirect=True)
async def test_a_decision_says_who_made_it(hub_request_harness: HubRequestHarness) -> None:
    question = await hub_request_harness.wait_for_message("run.permission_requested")
    hub_request_harness.call.send(
        "run.permission.approve", {"request_id": question["data"]["request_id"], "actor": "robot"}, run_id=RUN
    )
    decided = await hub_request_harness.wait_for_message("run.permission_decided")
    assert (decided["data"]["decision"], decided["data"]["via"], decided["data"]["actor"]) == ("approve", "hub", "web")
    assert (decided["data"]["by"], decided["data"]["claims"]["by"]) == (hub_request_harness.host.settings.hub, "a user")
    hub_request_harness.call.send("run.permission.deny", {"request_id": question["data"]["request_id"]}, run_id=RUN)
    refusal = await hub_request_harness.wait_for_message("run.error")
    assert drop_time(refusal) == {
        "type": "run.error",
        "host_id": HOST,
        "run_id": RUN,
        "data": {
            "command": "run.permission.deny",
            "error": "already decided",
            "request_id": question["data"]["request_id"],
        },
    }


async def test_inputs_arrive_in_the_order_in_which_they_were_typed(hub_request_harness: HubRequestHarness) -> None:
    for number in range(100):
        hub_request_harness.call.send(
            "run.send_input", {"input_id": f"in_{number}", "text": f"line {number}\n", "by": "ann"}, run_id=RUN
        )
    hub_request_harness.call.send("run.send_input", {"input_id": "in_7", "text": "line 7\n", "by": "ann"}, run_id=RUN)
    hub_request_harness.call.send("run.stop", {"signal": "term"}, run_id=RUN)
    await hub_request_harness.wait_for_message("run.awaiting_input")
    inputs = [frame["data"]["text_redacted"] for frame in hub_request_harness.call.list_messages("run.input")]
    assert inputs[1:] == [f"line {number}" for number in range(100)]


@pytest.mark.parametrize(
    ("type_", "run_id", "data", "expected"),
    [
        ("run.stop", "sess_nobody", {}, {"error": "unknown run_id"}),
        ("run.stop", None, {}, {"error": "unknown run_id"}),
        ("run.send_stdin", RUN, {"text": "x"}, {"error": "run has no terminal"}),
        ("run.resize", RUN, {"cols": 80, "rows": 24}, {"error": "run has no terminal"}),
        ("run.resize", RUN, {"cols": 0, "rows": 24}, {"error": "Expected `int` >= 1 - at `$.cols`"}),
        (
            "run.send_input",
            RUN,
            {"input_id": "i", "text": 7},
            {"error": "Expected `str`, got `int` - at `$.text`", "input_id": "i"},
        ),
        ("run.permission.approve", RUN, {"request_id": "r"}, {"error": "unknown request_id", "request_id": "r"}),
    ],
)
async def test_a_command_that_is_refused_is_told_back(
    hub_request_harness: HubRequestHarness, type_: str, run_id: str | None, data: dict[str, Any], expected: dict[str, str]
) -> None:
    head = {"run_id": run_id} if run_id else {}
    hub_request_harness.call.send(type_, data, **head)
    refusal = await hub_request_harness.wait_for_message("run.error")
    assert refusal["data"] == {"command": type_, **expected}
    assert refusal.get("run_id") == run_id
    assert "seq" not in refusal


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b'{"type":7}',
        b'{"type":""}',
        b'{"type":"run.ack"}',
        b'{"type":"run.ack","data":[]}',
        b'{"type":"run.ack","data":{"run_id":"","last_seq":1}}',
        b'{"type":"run.ack","data":{"run_id":"x","last_seq":1e400}}',
        b'{"type":"rpc.fs.read","data":{}}',
        b'{"type":"rpc.fs.read","data":{"request_id":""}}',
        b'{"type":"rpc.fs.read","data":"\\ud800"}',
        b'{"type":"run.stop","run_id":"' + b"x" * 129 + b'"}',
        b"[" * 100_000,
        b'{"type":"x","data":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    ],
)
async def test_rubbish_is_answered_and_survived(hub_request_harness: HubRequestHarness, frame: bytes) -> None:
    hub_request_harness.call.stream.send(Packet([frame or b" "]))
    assert (await hub_request_harness.wait_for_message("error"))["data"]["error"]
    assert (await hub_request_harness.ask("rpc.host.info", None))["data"]["ok"]
    assert len(hub_request_harness.hub.calls) == 1


async def test_unknown_types_are_passed_over(hub_request_harness: HubRequestHarness) -> None:
    hub_request_harness.call.send("hub.news", {"of": "tomorrow"})
    assert (await hub_request_harness.ask("rpc.host.info", None))["data"]["ok"]
    assert not hub_request_harness.call.list_messages("error")


async def test_too_many_calls_at_once_are_refused(hub_request_harness: HubRequestHarness) -> None:
    for number in range(hub_requests.MAX_CONCURRENT_CALLS + 3):
        data = {"request_id": f"req_{number}", "path": f"new_{number}", "content": "x"}
        hub_request_harness.call.send("rpc.fs.write", data, run_id=RUN)
    await hub_request_harness.hub.wait_until(lambda: len(hub_request_harness.call.list_messages("rpc.response")) == 3)
    assert {frame["data"]["error"] for frame in hub_request_harness.call.list_messages("rpc.response")} == {
        "too many calls at once"
    }
    await hub_request_harness.hub.wait_until(
        lambda: len(hub_request_harness.call.list_messages("run.permission_requested")) == hub_requests.MAX_CONCURRENT_CALLS
    )
    for number in range(hub_requests.MAX_CONCURRENT_CALLS):
        hub_request_harness.call.send("run.permission.deny", {"request_id": f"req_{number}"}, run_id=RUN)
    await hub_request_harness.hub.wait_until(
        lambda: len(hub_request_harness.call.list_messages("rpc.response")) == 3 + hub_requests.MAX_CONCURRENT_CALLS
    )
    assert (await hub_request_harness.ask("rpc.fs.read", path="note.txt"))["data"]["ok"]


async def test_an_answer_to_a_hub_that_has_gone_is_dropped_but_its_result_is_told(hub_request_harness: HubRequestHarness) -> None:
    hub_request_harness.call.send("rpc.bash", {"request_id": "req_9", "cmd": "echo out"}, run_id=RUN)
    await hub_request_harness.wait_for_message("run.permission_requested")
    hub_request_harness.call.cut()
    second = await hub_request_harness.hub.wait_for_connection(2)
    second.send("run.permission.approve", {"request_id": "req_9"}, run_id=RUN)
    await hub_request_harness.hub.wait_until(lambda: bool(second.list_messages("tool.result")))
    result = second.list_messages("tool.result")[0]["data"]
    assert (result["request_id"], result["result"]["stdout"]) == ("req_9", "out\n")
    second.send("rpc.host.info", {"request_id": "req_10"})
    await hub_request_harness.hub.wait_until(lambda: bool(second.list_messages("rpc.response")))
    assert [frame["data"]["request_id"] for frame in second.list_messages("rpc.response")] == ["req_10"]


async def test_what_is_typed_never_reaches_the_log(
    hub_request_harness: HubRequestHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "correct horse battery staple"
    for run_id in (RUN, "sess_nobody"):
        hub_request_harness.call.send("run.send_input", {"input_id": "i", "text": secret}, run_id=run_id)
        hub_request_harness.call.send("run.send_stdin", {"text": secret}, run_id=run_id)
        hub_request_harness.call.send("run.send_input", {"text": secret}, run_id=run_id)
        hub_request_harness.call.send(f"rpc.{secret}", {"request_id": "r", "x": secret}, run_id=run_id)
    hub_request_harness.call.stream.send(Packet([json.dumps({"type": 7, "data": secret}).encode()]))
    await hub_request_harness.wait_for_message("error")
    await hub_request_harness.wait_for_message("run.error", 5)
    assert secret not in caplog.text
    assert all(
        secret not in json.dumps(frame)
        for frame in (*hub_request_harness.call.list_messages("error"), *hub_request_harness.call.list_messages("run.error"))
    )


class FaultyHostRpc(HostRpcHandler):
    async def call_on_host(self, *args: Any, **options: Any) -> Any:
        raise RuntimeError("the inner workings")


async def test_a_bug_of_ours_is_told_without_its_details(caplog: pytest.LogCaptureFixture) -> None:
    hub = ScriptedHub()
    await hub.open()
    host = LinkedHost(hub, rpc=FaultyHostRpc)
    await host.open()
    stage = HubRequestHarness(hub, host, await hub.wait_for_connection())
    answer = await stage.ask("rpc.host.info", None)
    assert answer["data"]["error"] == "internal error"
    assert "the inner workings" in caplog.text
    await host.close()
    await hub.close()


async def test_a_run_of_another_host_is_unknown_here(hub_request_harness: HubRequestHarness) -> None:
    told = messages.Envelope(type="run.output", run_id="theirs", seq=1)
    mirror = commands.MirrorRun(
        session_id=wire_values.parse_run_id("theirs"),
        host="host_2",
        run_id=wire_values.make_core_run_id(wire_values.parse_run_id("theirs")),
        reports=(inbound.parse_report("host_2", told, 1),),
        opening=inbound.make_opening_events("host_2"),
    )
    await hub_request_harness.host.runtime.ask(mirror)
    hub_request_harness.call.send("run.stop", {}, run_id="theirs")
    refusal = await hub_request_harness.wait_for_message("run.error")
    assert refusal["data"]["error"] == "unknown run_id"
    assert (await hub_request_harness.ask("rpc.fs.read", "theirs", path="x"))["data"]["error"] == "unknown run_id"
    assert set(hub_request_harness.hub.stored) == {RUN}
