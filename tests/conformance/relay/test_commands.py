"""What an app asks, on its way to the host that owns the run, and what comes back."""

from typing import Any
from uuid import uuid4

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.relay.conftest import Dial, OpenApp
from tests.conformance.relay.peers import CheckedApp, CheckedHost, CheckedHttp

PASSED_ON = {"actor": "web", "by": "owner"}

COMMANDS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("run.send_input", {"input_id": "i-1", "text": "yes\n"}, {}),
    ("run.stop", {"signal": "kill"}, {}),
    ("run.stop", {}, {"signal": "term"}),
    ("run.permission.approve", {"request_id": "q-1"}, {}),
    ("run.permission.deny", {"request_id": "q-1"}, {}),
]


@pytest.mark.requirement("relay:commands:send-input", "relay:commands:stop", "relay:commands:decide", "relay:routing:by-run")
async def test_commands_go_to_the_host_that_owns_the_run(
    hub: ManagedDaemon, app: CheckedApp, host: CheckedHost, connect_host: Dial
) -> None:
    other = await connect_host(hub)
    run_id = await host.begin()
    await other.begin()
    for type_, data, added in COMMANDS:
        await app.send_command(type_, run_id, **data)
        assert await host.wait_for_command(type_, run_id) == {**data, **added, **PASSED_ON}
    await other.wait_until_read()
    assert {frame["type"] for frame in other.frames} == {"run.ack", "error"}


@pytest.mark.requirement("relay:commands:newline-as-it-is")
async def test_text_is_passed_on_as_it_was_typed(app: CheckedApp, host: CheckedHost) -> None:
    run_id = await host.begin()
    for text in ("a\r", "a\n", "\x1b[A", "né 🚂", ""):
        await app.send_command("run.send_input", run_id, input_id=str(uuid4()), text=text)
        assert (await host.next_of_type("run.send_input", run_id))["data"]["text"] == text


@pytest.mark.requirement("relay:clients:newer-commands")
async def test_newer_clients_type_keys_and_resize(app: CheckedApp, host: CheckedHost) -> None:
    run_id = await host.begin()
    await app.send_command("run.send_stdin", run_id, text="k")
    assert (await host.next_of_type("run.send_stdin", run_id))["data"]["text"] == "k"
    await app.send_command("run.resize", run_id, cols=100, rows=30)
    resize = await host.next_of_type("run.resize", run_id)
    assert (resize["data"]["cols"], resize["data"]["rows"]) == (100, 30)


@pytest.mark.requirement("relay:clients:newer-decisions")
@pytest.mark.parametrize("decision", ["approve", "approve_for_session", "deny", "abort"])
async def test_newer_decisions_are_passed_on_with_all_that_they_carry(app: CheckedApp, host: CheckedHost, decision: str) -> None:
    host.takes_anything = True
    run_id = await host.begin()
    type_ = "run.permission.approve" if decision.startswith("approve") else "run.permission.deny"
    said = {"request_id": "q", "decision": decision, "allow_tools": ["bash"], "answers": {"a": "b"}}
    await app.send_command(type_, run_id, **said)
    assert await host.wait_for_command(type_, run_id) == {**said, **PASSED_ON}


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("rpc.fs.read", {"path": "README.md"}),
    ("rpc.fs.search", {"q": "word"}),
    ("rpc.fs.list", {"path": "."}),
    ("rpc.fs.write", {"path": "a", "content": "b"}),
    ("rpc.bash", {"cmd": "ls"}),
    ("rpc.git.status", {}),
    ("rpc.git.diff", {"path": "a"}),
    ("rpc.runs.list", {}),
    ("rpc.run.stop", {"signal": "term"}),
]


@pytest.mark.requirement("relay:rpc:request-id", "relay:rpc:response", "relay:routing:by-run")
@pytest.mark.parametrize(("type_", "data"), CALLS, ids=[type_ for type_, _ in CALLS])
async def test_a_call_on_a_run_goes_to_its_host_and_the_answer_to_who_asked(
    app: CheckedApp, host: CheckedHost, type_: str, data: dict[str, Any]
) -> None:
    run_id = await host.begin()
    request_id = str(uuid4())
    await app.send_command(type_, run_id, request_id=request_id, **data)
    call = await host.next_of_type(type_, run_id)
    assert call["data"] == {"request_id": request_id, **data, **PASSED_ON}
    await host.respond(call, result={"any": ["json", 1, None]})
    answer = await app.wait_for_frame("rpc.response", request_id=request_id)
    assert answer["run_id"] == run_id
    assert answer["data"] == {"request_id": request_id, "ok": True, "rpc_type": type_, "result": {"any": ["json", 1, None]}}
    await app.send_command(type_, run_id, request_id=f"{request_id}-2", **data)
    await host.respond(await host.next_of_type(type_, run_id), ok=False, error="it broke")
    answer = await app.wait_for_frame("rpc.response", request_id=f"{request_id}-2")
    assert answer["data"] == {"request_id": f"{request_id}-2", "ok": False, "rpc_type": type_, "error": "it broke"}


@pytest.mark.requirement("relay:commands:actor")
@pytest.mark.parametrize(("said", "kept"), [("cli", "cli"), ("system", "system"), ("web", "web"), ("root", "web")])
async def test_what_an_app_calls_itself_is_passed_on_when_the_document_knows_it(
    app: CheckedApp, host: CheckedHost, said: str, kept: str
) -> None:
    run_id = await host.begin()
    await app.send_command("run.permission.approve", run_id, request_id="q", actor=said)
    assert await host.wait_for_command("run.permission.approve", run_id) == {"request_id": "q", "actor": kept, "by": "owner"}
    await app.send_command("rpc.run.stop", run_id, request_id=f"stop-{run_id}", actor=said)
    call = await host.next_of_type("rpc.run.stop", run_id)
    assert (call["data"]["actor"], call["data"]["by"]) == (kept, "owner")
    await host.respond(call, result={})
    await app.wait_for_answer(f"stop-{run_id}")


@pytest.mark.requirement("relay:commands:signal-null", "relay:commands:signal-int")
@pytest.mark.parametrize(("said", "told"), [(None, {"signal": "term"}), ("int", {"signal": "int"})])
async def test_a_signal_that_is_null_or_newer_reaches_the_host(
    app: CheckedApp, host: CheckedHost, said: object, told: dict[str, Any]
) -> None:
    run_id = await host.begin()
    await app.send_command("run.stop", run_id, signal=said)
    assert await host.wait_for_command("run.stop", run_id) == {**told, **PASSED_ON}


@pytest.mark.requirement("relay:commands:malformed", "relay:envelope:host-id")
async def test_a_command_that_cannot_be_read_is_refused_with_its_run(app: CheckedApp, host: CheckedHost) -> None:
    run_id = await host.begin()
    await app.send_command("run.stop", run_id, signal="hup")
    refusal = await app.next_of_type("run.error", run_id)
    assert refusal["data"] == {"command": "run.stop", "error": "Invalid enum value 'hup' - at `$.signal`"}


@pytest.mark.requirement("relay:routing:other-calls", "relay:envelope:host-id")
async def test_a_call_that_only_the_host_knows_is_forwarded_by_host_or_run(app: CheckedApp, host: CheckedHost) -> None:
    run_id = await host.begin()
    for named in ({"host_id": host.host_id}, {}):
        request_id = str(uuid4())
        await app.send_command("rpc.juggle", run_id, request_id=request_id, balls=[1, 2], **named)
        call = await host.next_of_type("rpc.juggle")
        assert call["data"] == {"request_id": request_id, "balls": [1, 2], **named, **PASSED_ON}
        await host.respond(call, result={"caught": 2})
        answer = await app.wait_for_frame("rpc.response", request_id=request_id)
        assert (answer["host_id"], answer["data"]["result"]) == (host.host_id, {"caught": 2})
    assert await app.request_error("rpc.juggle", host_id="nobody") == "unknown rpc type"


@pytest.mark.requirement("relay:envelope:host-id")
async def test_answers_and_refusals_name_the_runs_host(app: CheckedApp, host: CheckedHost) -> None:
    run_id = await host.begin()
    await app.send_command("rpc.fs.read", run_id, request_id=f"r-{run_id}", path="x")
    await host.respond(await host.next_of_type("rpc.fs.read"), ok=False, error="no such file")
    assert (await app.wait_for_frame("rpc.response", request_id=f"r-{run_id}"))["host_id"] == host.host_id
    await app.send_command("run.send_input", run_id, input_id="i", text="x")
    problem = {"command": "run.send_input", "error": "run has exited"}
    command_id = (await host.next_of_type("run.send_input"))["data"]["command_id"]
    await host.send_frames({"type": "run.error", "run_id": run_id, "data": {**problem, "command_id": command_id}})
    assert (await app.next_of_type("run.error", run_id))["host_id"] == host.host_id


@pytest.mark.requirement("relay:approvals:absent-fields")
async def test_what_a_host_leaves_out_of_a_question_stays_out(app: CheckedApp, host: CheckedHost) -> None:
    run_id = await host.begin()
    given = {"request_id": str(uuid4()), "reason": "prompt", "prompt": "Which one?"}
    await host.send_message("run.permission_requested", run_id, 2, given)
    assert (await app.wait_for_frame("run.permission_requested", run_id))["data"] == {
        **given,
        "approve_text": "",
        "deny_text": "",
    }


HOST_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("rpc.host.info", {}),
    ("rpc.host.doctor", {}),
    ("rpc.host.capabilities", {}),
    ("rpc.host.logs.tail", {"lines": 5, "max_bytes": 100}),
    ("rpc.run.start", {"tool": "gemini", "cmd": "gemini", "cwd": "/x"}),
]


@pytest.mark.requirement("relay:routing:by-host", "relay:routing:run-id-beside-host-id")
@pytest.mark.parametrize(("type_", "data"), HOST_CALLS, ids=[type_ for type_, _ in HOST_CALLS])
async def test_a_call_to_a_host_goes_by_host_id_whatever_run_is_named(
    hub: ManagedDaemon, app: CheckedApp, host: CheckedHost, connect_host: Dial, type_: str, data: dict[str, Any]
) -> None:
    elsewhere = await connect_host(hub)
    selected = await elsewhere.begin()
    for run_id in (None, selected, "run_that_is_none"):
        request_id = str(uuid4())
        await app.send_command(type_, run_id, request_id=request_id, host_id=host.host_id, **data)
        call = await host.next_of_type(type_)
        assert call["data"] == {"request_id": request_id, "host_id": host.host_id, **data, **PASSED_ON}
        if type_ == "rpc.run.start":
            await host.begin("run_new")
        await host.respond(call, result={"run_id": "run_new"} if type_ == "rpc.run.start" else {})
        answer = await app.wait_for_frame("rpc.response", request_id=request_id)
        assert answer["data"]["ok"] is True


@pytest.mark.requirement("relay:rpc:run-start-envelope")
async def test_the_answer_to_run_start_names_the_run_in_the_envelope_and_in_the_result(
    app: CheckedApp, host: CheckedHost
) -> None:
    await app.send_command("rpc.run.start", request_id="s-1", host_id=host.host_id, tool="codex", cmd="codex", cwd=None)
    run_id = f"run_{uuid4().hex[:12]}"
    await host.respond(await host.next_of_type("rpc.run.start"), result={"run_id": run_id})
    await host.send_frames(host.make_started(run_id))
    answer = await app.wait_for_frame("rpc.response", request_id="s-1")
    assert (answer["run_id"], answer["data"]["result"]) == (run_id, {"run_id": run_id})


@pytest.mark.requirement("relay:rpc:run-start-known")
async def test_a_run_whose_host_answers_before_it_tells_of_the_run_is_known_on_the_answer(
    app: CheckedApp, hub_http: CheckedHttp, host: CheckedHost
) -> None:
    await app.send_command("rpc.run.start", request_id="known-1", host_id=host.host_id, tool="codex", cmd="codex")
    run_id = f"run_{uuid4().hex[:12]}"
    await host.respond(await host.next_of_type("rpc.run.start"), result={"run_id": run_id})
    await host.wait_until_read()
    assert not [frame for frame in app.frames if frame["type"] == "rpc.response"]
    await host.send_frames(host.make_started(run_id))
    await app.wait_for_answer("known-1")
    assert hub_http.get(f"/sessions/{run_id}")["tool"] == "codex"
    hub_http.post(f"/runs/{run_id}/input", {"input_id": "i", "text": "x"}, 204)
    assert (await host.wait_for_command("run.send_input", run_id))["text"] == "x"


@pytest.mark.requirement("relay:faults:answers-to-all", "relay:faults:answers-stored")
async def test_an_answer_goes_to_who_asked_and_into_no_history(
    hub: ManagedDaemon, app: CheckedApp, hub_http: CheckedHttp, host: CheckedHost, open_app: OpenApp
) -> None:
    other = await open_app(hub)
    run_id = await host.begin()
    await app.send_command("rpc.fs.read", run_id, request_id="private", path="x")
    await host.respond(
        await host.next_of_type("rpc.fs.read"), result={"path": "x", "content": "only for you", "truncated": False}
    )
    await app.wait_for_frame("rpc.response", request_id="private")
    await other.wait_until_processed()
    assert [frame for frame in other.frames if frame["type"] == "rpc.response"] == []
    assert "only for you" not in str(hub_http.get(f"/runs/{run_id}/messages"))


@pytest.mark.requirement("relay:rpc:errors", "relay:faults:undeliverable")
async def test_calls_that_can_go_nowhere_are_answered_at_once(app: CheckedApp, host: CheckedHost, hub_http: CheckedHttp) -> None:
    assert await app.request_error("rpc.fs.read", "run_that_is_none", path="x") == "unknown run_id"
    assert await app.request_error("rpc.fs.read", path="x") == "unknown run_id"
    assert await app.request_error("rpc.juggle", "run_that_is_none") == "unknown rpc type"
    assert await app.request_error("rpc.host.info", host_id="nobody") == "unknown host_id"
    run_id = await host.begin()
    await host.leave()
    hub_http.wait_for_host_row(host.host_id, lambda row: not row["online"])
    assert await app.request_error("rpc.fs.read", run_id, path="x") == "host offline"
    assert await app.request_error("rpc.host.info", host_id=host.host_id) == "host offline"


@pytest.mark.requirement("relay:rpc:host-leaves")
async def test_a_call_whose_host_leaves_before_the_answer_is_answered(app: CheckedApp, host: CheckedHost) -> None:
    run_id = await host.begin()
    await app.send_command("rpc.fs.read", run_id, request_id="left-alone", path="x")
    await host.next_of_type("rpc.fs.read")
    await host.leave()
    assert "host" in (await app.wait_for_frame("rpc.response", request_id="left-alone"))["data"]["error"]


@pytest.mark.requirement("relay:faults:undeliverable")
@pytest.mark.parametrize(("type_", "data"), [(type_, data) for type_, data, _ in COMMANDS])
async def test_commands_that_can_go_nowhere_are_answered_with_an_error(
    app: CheckedApp, host: CheckedHost, hub_http: CheckedHttp, type_: str, data: dict[str, Any]
) -> None:
    await app.send_command(type_, "run_that_is_none", **data)
    refusal = await app.next_of_type("run.error")
    ids = {name: value for name, value in data.items() if name.endswith("_id")}
    assert refusal["data"] == {"command": type_, "error": "unknown run_id", **ids}
    run_id = await host.begin()
    await host.leave()
    hub_http.wait_for_host_row(host.host_id, lambda row: not row["online"])
    await app.send_command(type_, run_id, **data)
    refusal = await app.next_of_type("run.error", run_id)
    assert refusal["data"] == {"command": type_, "error": "host offline", **ids}


@pytest.mark.requirement("relay:commands:malformed")
async def test_a_call_that_lacks_a_field_is_refused_under_its_id(app: CheckedApp, host: CheckedHost) -> None:
    run_id = await host.begin()
    assert "path" in await app.request_error("rpc.fs.read", run_id)
    assert "cmd" in await app.request_error("rpc.run.start", host_id=host.host_id, tool="x")
    await app.send_frames({"type": "rpc.fs.read", "run_id": run_id, "data": {"path": "x"}})
    assert "request_id" in (await app.next_of_type("error"))["data"]["error"]


@pytest.mark.requirement("relay:ids:any-text")
async def test_ids_that_are_empty_or_too_long_are_refused(app: CheckedApp, host: CheckedHost) -> None:
    run_id = await host.begin()
    for input_id in ("", "x" * 129):
        since = len(app.frames)
        await app.send_command("run.send_input", run_id, input_id=input_id, text="x")
        refusal = await app.wait_for_frame("run.error", run_id, since=since)
        assert refusal["data"]["command"] == "run.send_input"


# Who is told what


@pytest.mark.requirement("relay:delivery:all-until-subscribed", "relay:clients:subscribe")
async def test_an_app_is_sent_everything_until_its_first_subscription(
    hub: ManagedDaemon, app: CheckedApp, host: CheckedHost
) -> None:
    one, two = await host.begin(), await host.begin()
    await app.wait_for_frame("run.started", one)
    await app.wait_for_frame("run.started", two)
    await app.subscribe(one)
    await app.wait_until_processed()
    await host.send_frames(host.make_output(two, 2, "unheard"), host.make_output(one, 2, "heard"))
    await app.wait_for_frame("run.output", one, text="heard")
    await app.wait_until_processed()
    assert app.list_run_frames(two, "run.output") == []


@pytest.mark.requirement("relay:clients:subscribe")
async def test_subscriptions_add_up_unless_one_replaces_the_others(app: CheckedApp, host: CheckedHost) -> None:
    one, two, three = [await host.begin() for _ in range(3)]
    await app.subscribe(one)
    await app.subscribe(two)
    await app.wait_until_processed()
    await host.send_frames(*[host.make_output(run_id, 2, "a") for run_id in (three, one, two)])
    await app.wait_for_frame("run.output", one, text="a")
    await app.wait_for_frame("run.output", two, text="a")
    await app.subscribe(three, replace=True)
    await app.wait_until_processed()
    await host.send_frames(*[host.make_output(run_id, 3, "b") for run_id in (one, two, three)])
    await app.wait_for_frame("run.output", three, text="b")
    await app.send_command("run.unsubscribe", three)
    await app.wait_until_processed()
    await host.send_frames(*[host.make_output(run_id, 4, "c") for run_id in (one, two, three)])
    for run_id in (one, two, three):
        await host.wait_for_ack(run_id, 4)
    await app.wait_until_processed()
    heard = {
        run_id: [frame["data"]["text"] for frame in app.list_run_frames(run_id, "run.output")] for run_id in (one, two, three)
    }
    assert heard == {one: ["a"], two: ["a"], three: ["b"]}


@pytest.mark.requirement("relay:clients:include-output")
async def test_a_subscription_without_output_has_everything_else(app: CheckedApp, host: CheckedHost) -> None:
    run_id = await host.begin()
    await app.subscribe(run_id, include_output=False)
    await app.wait_until_processed()
    await host.send_frames(host.make_output(run_id, 2), host.make_event("run.exited", run_id, 3, {"exit_code": 0}))
    await app.wait_for_frame("run.exited", run_id)
    assert app.list_run_frames(run_id, "run.output") == []
