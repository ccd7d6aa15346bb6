"""What a host tells, as apps are told it: envelopes, each event's fields, what the document does not know, acknowledgements."""

import hashlib
from typing import Any

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.relay.conftest import Dial, OpenApp
from tests.conformance.relay.peers import CheckedApp, CheckedHost, CheckedHttp

QUESTION = {
    "request_id": "6f1f0a5e-6a35-4b6e-9f6a-0a5f0b5d6c11",
    "reason": "permission",
    "prompt": "Proceed?",
    "op_tool": "bash",
    "op_args": {"cmd": "ls"},
    "op_args_summary": "ls",
    "approve_text": "y\n",
    "deny_text": "n\n",
}
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("run.started", {"tool": "iflow", "cwd": "/x", "command": "iflow --y"}),
    ("run.ready", {"runner_mode": "pty"}),
    ("run.output", {"stream": "stdout", "text": "héllo 🚂\x1b[0m"}),
    ("run.output", {"stream": "stderr", "text": "oh"}),
    ("run.awaiting_input", {"reason": "prompt", "prompt": "name?"}),
    ("run.input", {"actor": "web", "input_id": "i-1", "text_redacted": "x", "text_sha256": hashlib.sha256(b"x").hexdigest()}),
    ("run.permission_requested", QUESTION),
    ("run.awaiting_input", {"reason": "permission", "prompt": "Proceed?", "request_id": QUESTION["request_id"]}),
    ("tool.call", {"request_id": "t1", "tool": "fs.read", "actor": "local", "args": {"path": "a"}}),
    ("tool.result", {"request_id": "t1", "tool": "fs.read", "actor": "local", "ok": True, "duration_ms": 5, "result": {"a": 1}}),
    ("tool.call", {"request_id": "t2", "tool": "git.diff", "actor": "system", "args": None}),
    (
        "tool.result",
        {"request_id": "t2", "tool": "git.diff", "actor": "system", "ok": False, "duration_ms": 0, "error": "no"},
    ),
    ("run.exited", {"exit_code": -9}),
]


@pytest.mark.requirement(
    "relay:envelope:fields",
    "relay:events:started",
    "relay:events:output",
    "relay:events:awaiting-input",
    "relay:events:exited",
    "relay:events:input",
    "relay:events:permission-requested",
    "relay:events:tool-call",
    "relay:events:tool-result",
    "relay:events:ready",
)
async def test_an_app_is_told_each_event_as_the_host_told_it(app: CheckedApp, host: CheckedHost) -> None:
    run_id = "run_every_event"
    stamps = [f"2025-06-01T12:00:{seq:02}.000Z" for seq in range(1, len(EVENTS) + 1)]
    for seq, ((type_, data), stamp) in enumerate(zip(EVENTS, stamps, strict=True), 1):
        await host.send_message(type_, run_id, seq, data, ts=stamp)
    await app.wait_for_frame("run.exited", run_id)
    told = app.list_events(run_id)
    for frame, (type_, data), stamp in zip(told, EVENTS, stamps, strict=True):
        assert (frame["type"], frame["data"], frame["ts"]) == (type_, data, stamp)
        assert (frame["host_id"], frame["run_id"]) == (host.host_id, run_id)
    assert [frame["seq"] for frame in told] == list(range(1, len(EVENTS) + 1))


@pytest.mark.requirement("relay:ids:seq-monotonic")
async def test_the_numbers_of_a_run_only_rise_for_apps(app: CheckedApp, host: CheckedHost) -> None:
    one, two = await host.begin(), await host.begin()
    for seq in range(2, 30):
        await host.send_frames(host.make_output(one, seq), host.make_output(two, seq))
    await host.wait_for_ack(one, 29)
    await host.wait_for_ack(two, 29)
    for run_id in (one, two):
        await app.wait_for_frame("run.output", run_id, text="line 29\n")
        seqs = [frame["seq"] for frame in app.list_events(run_id)]
        assert seqs == list(range(1, 30))


@pytest.mark.requirement("relay:envelope:unknown-fields")
async def test_unknown_fields_are_ignored_and_passed_on(app: CheckedApp, host: CheckedHost) -> None:
    app.passes_anything_on = host.takes_anything = True
    run_id = await host.begin()
    await host.send_message("run.output", run_id, 2, {"stream": "stdout", "text": "x", "hue": 7}, mood="good")
    frame = await app.wait_for_frame("run.output", run_id)
    assert frame["data"] == {"stream": "stdout", "text": "x", "hue": 7}
    await app.send_frames(
        {"type": "run.send_input", "run_id": run_id, "later": [1], "data": {"input_id": "i", "text": "x", "hue": 7}}
    )
    assert (await host.next_of_type("run.send_input", run_id))["data"]["text"] == "x"


@pytest.mark.requirement("relay:envelope:loose")
async def test_an_event_may_come_without_a_time_and_without_its_host(app: CheckedApp, host: CheckedHost) -> None:
    run_id = await host.begin()
    for seq, ts in enumerate((None, "yesterday", 7, {}), 2):
        bare = {"type": "run.output", "run_id": run_id, "seq": seq, "ts": ts, "data": {"stream": "stdout", "text": "x"}}
        await host.send_frames(bare)
    await host.send_frames({"type": "run.exited", "run_id": run_id, "seq": 6, "data": {"exit_code": 1}})
    await app.wait_for_frame("run.exited", run_id)
    assert [frame["seq"] for frame in app.list_events(run_id)] == [1, 2, 3, 4, 5, 6]
    assert {frame["host_id"] for frame in app.list_events(run_id)} == {host.host_id}


@pytest.mark.requirement("relay:events:broken-data")
async def test_an_event_whose_data_are_not_what_it_promises_is_counted_and_harms_nobody(
    app: CheckedApp, host: CheckedHost
) -> None:
    app.passes_anything_on = True
    run_id = await host.begin()
    broken: list[tuple[str, Any]] = [
        ("run.output", {"text": 7}),
        ("run.permission_requested", {}),
        ("run.input", {"input_id": []}),
        ("tool.result", {"ok": "yes"}),
        ("run.output", [1, 2]),
    ]
    for seq, (type_, data) in enumerate(broken, 2):
        await host.send_message(type_, run_id, seq, data)
    await host.send_message("run.exited", run_id, len(broken) + 2, {"exit_code": 0})
    await host.wait_for_ack(run_id, len(broken) + 2)
    await app.wait_for_frame("run.exited", run_id)


@pytest.mark.requirement("relay:envelope:unknown-types")
async def test_a_type_that_we_do_not_know_is_stored_acknowledged_and_passed_on(app: CheckedApp, host: CheckedHost) -> None:
    app.passes_anything_on = True
    run_id = await host.begin()
    await host.send_message("run.sang", run_id, 2, {"song": "la"})
    await host.wait_for_ack(run_id, 2)
    frame = await app.wait_for_frame("run.sang", run_id)
    assert (frame["seq"], frame["data"]) == (2, {"song": "la"})


@pytest.mark.requirement("relay:envelope:hostile")
async def test_what_cannot_be_read_is_answered_and_the_connection_goes_on(app: CheckedApp, host: CheckedHost) -> None:
    for rubbish in (b"{", b"[]", b'{"type":1}', b'{"type":"run.send_input","run_id":"x","data":[]}', b"null", b"[" * 5000):
        since = len(app.frames)
        await app.send_frames(rubbish)
        await app.wait_for_frame("error", since=since)
        await host.send_frames(rubbish)
    run_id = await host.begin()
    await app.wait_for_frame("run.started", run_id)


@pytest.mark.requirement("relay:ack:form", "relay:ack:after-commit")
async def test_an_acknowledgement_names_the_run_and_the_last_number_that_is_stored(
    hub_http: CheckedHttp, host: CheckedHost
) -> None:
    run_id = await host.begin()
    await host.send_frames(*[host.make_output(run_id, seq) for seq in range(2, 11)])
    await host.wait_for_ack(run_id, 10)
    ack = host.frames[-1]
    assert (sorted(ack), sorted(ack["data"])) == (["data", "ts", "type"], ["last_seq", "run_id"])
    assert (ack["type"], ack["data"]) == ("run.ack", {"run_id": run_id, "last_seq": 10})
    # Stored before it was acknowledged: it is there at once.
    assert [message["seq"] for message in hub_http.get(f"/runs/{run_id}/messages")] == list(range(1, 11))
    assert host.list_acks(run_id) == sorted(host.list_acks(run_id))


@pytest.mark.requirement("relay:ack:only-numbered")
async def test_what_has_no_number_is_not_acknowledged(host: CheckedHost) -> None:
    run_id = await host.begin()
    await host.send_frames({"type": "host.heartbeat", "data": {}})
    await host.wait_until_read()
    assert host.list_acks(run_id) == [1]


@pytest.mark.requirement("relay:faults:duplicates", "relay:ack:replay")
async def test_what_is_told_again_is_acknowledged_again_and_shown_once(
    hub: ManagedDaemon, app: CheckedApp, hub_http: CheckedHttp, connect_host: Dial
) -> None:
    first = await connect_host(hub)
    run_id = await first.begin()
    await first.send_frames(first.make_output(run_id, 2), first.make_output(run_id, 3))
    await first.wait_for_ack(run_id, 3)
    await first.leave()
    second = await connect_host(hub, first.host_id)
    await second.send_frames(*[second.make_output(run_id, seq) for seq in (2, 3, 3, 4)])
    assert await second.wait_for_ack(run_id, 4) == 4
    await app.wait_for_frame("run.output", run_id, text="line 4\n")
    await app.wait_until_processed()
    assert [frame["seq"] for frame in app.list_events(run_id)] == [1, 2, 3, 4]
    assert [message["seq"] for message in hub_http.get(f"/runs/{run_id}/messages")] == [1, 2, 3, 4]


@pytest.mark.requirement("relay:faults:ack-over-hole")
async def test_an_acknowledgement_never_covers_what_has_not_arrived(app: CheckedApp, host: CheckedHost) -> None:
    run_id = await host.begin()
    await host.send_frames(host.make_output(run_id, 3), host.make_output(run_id, 4))
    await host.wait_until_read()
    assert max(host.list_acks(run_id)) == 1
    await host.send_frames(host.make_output(run_id, 2))
    await host.wait_for_ack(run_id, 4)
    await app.wait_for_frame("run.output", run_id, text="line 4\n")
    assert [frame["seq"] for frame in app.list_events(run_id)] == [1, 2, 3, 4]


@pytest.mark.requirement("relay:faults:other-hosts-run")
async def test_a_host_can_tell_nothing_of_another_hosts_run(
    hub: ManagedDaemon, app: CheckedApp, host: CheckedHost, connect_host: Dial, local_host_id: str
) -> None:
    run_id = await host.begin()
    forger = await connect_host(hub)
    await forger.send_frames(forger.make_output(run_id, 2, "forged"))
    await forger.wait_until_read()
    await host.send_frames(host.make_output(run_id, 2, "real"))
    assert (await app.wait_for_frame("run.output", run_id))["data"]["text"] == "real"
    assert forger.list_acks(run_id) == []


@pytest.mark.requirement("relay:faults:lagging-apps")
async def test_an_app_that_reads_slowly_misses_nothing(hub: ManagedDaemon, open_app: OpenApp, host: CheckedHost) -> None:
    slow = await open_app(hub)
    run_id = await host.begin()
    await host.send_frames(*[host.make_output(run_id, seq, f"{seq} " + "x" * 2_000) for seq in range(2, 3_002)])
    await host.wait_for_ack(run_id, 3_001)
    await slow.wait_for(lambda frame: frame.get("run_id") == run_id and frame.get("seq") == 3_001)
    assert [frame["seq"] for frame in slow.list_events(run_id)] == list(range(1, 3_002))
