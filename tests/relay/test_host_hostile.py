"""Hosts that send rubbish, wrong types, too much: the hub goes on, and so does what comes after."""

import hashlib
from typing import Any

import msgspec
import pytest
from tests.relay.seen import read_up_to
from tests.relay.stage import RelayNetwork

from switchtower.testing.wire import encode_websocket_frame

GARBAGE: tuple[bytes, ...] = (
    b"",
    b"{",
    b"null",
    b"[]",
    b"7",
    b'"text"',
    b"{}",
    b'{"type":null}',
    b'{"type":7}',
    b'{"type":""}',
    b'{"type":"run.output","run_id":7,"seq":1}',
    b'{"type":"run.output","run_id":"","seq":1}',
    b'{"type":"run.output","run_id":"r","seq":"1"}',
    b'{"type":"run.output","run_id":"r","seq":0}',
    b'{"type":"run.output","run_id":"r","seq":-1}',
    b'{"type":"run.output","run_id":"r","seq":1.5}',
    b'{"type":"run.output","run_id":"r","seq":99999999999999999999}',
    b'{"type":"run.output","run_id":"r","seq":1e400}',
    b'{"type":"run.output","run_id":"' + b"x" * 129 + b'","seq":1}',
    b'{"type":"rpc.response","data":7}',
    b'{"type":"rpc.response","data":{"request_id":7,"ok":"x"}}',
    b'{"type":"rpc.response","data":{"request_id":"nobody","ok":true,"rpc_type":"rpc.fs.read"}}',
    b'{"type":"run.error","run_id":"r","data":7}',
    b'{"type":"run.error","run_id":"r","data":{"request_id":{"a":1}}}',
    b'{"type":"run.error","run_id":"r","data":{"input_id":["a"]}}',
    b'{"type":"run.ack","data":{"run_id":"r","last_seq":9}}',
    b'{"type":"\\ud800","run_id":"r"}',
    b'{"type":"x","data":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    b"\xff\xfe",
)


async def test_rubbish_is_survived(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    for garbage in GARBAGE:
        host = await shared_relay_network.connect_host(unique_name)
        await host.send_frames(garbage)
        run = f"run_{unique_name}_{hashlib.sha256(garbage).hexdigest()[:8]}"
        # Some of it ends the connection; then the host comes again.
        try:
            await host.send_frames(host.make_started(run))
            await host.wait_for_ack(run, 1)
        except (EOFError, ConnectionError):
            host = await shared_relay_network.connect_host(unique_name)
            await host.send_frames(host.make_started(run))
            await host.wait_for_ack(run, 1)
        assert not [frame for frame in host.frames if "Traceback" in str(frame)]
    assert "Traceback" not in shared_relay_network.hub.log()


async def test_a_host_that_sends_nothing_but_rubbish_is_cut_off(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    host = await shared_relay_network.connect_host(unique_name)
    await host.send_frames(*([b"{"] * 500))
    assert await host.wait_closed() == 1008
    await (await shared_relay_network.connect_host(unique_name)).wait_until_read()


WRONG: tuple[Any, ...] = (None, True, 7, -1, 2.5, 2**70, "text", "", [], [1], {}, {"a": {}}, "\u0000", "x" * 5_000)
FIELDS = {
    "run.started": ("tool", "cwd", "command"),
    "run.ready": ("runner_mode",),
    "run.output": ("stream", "text"),
    "run.awaiting_input": ("reason", "prompt", "request_id"),
    "run.resumed": ("x",),
    "run.permission_requested": (
        "request_id",
        "reason",
        "prompt",
        "op_tool",
        "op_args",
        "op_args_summary",
        "approve_text",
        "deny_text",
    ),
    "run.permission_decided": ("request_id", "decision", "by", "via", "reason", "actor"),
    "run.input": ("actor", "input_id", "text_redacted", "text_sha256"),
    "run.screen": ("text", "cols", "rows"),
    "run.resized": ("cols", "rows"),
    "tool.call": ("request_id", "tool", "actor", "args"),
    "tool.result": ("request_id", "tool", "ok", "duration_ms", "result", "error"),
    "run.unheard_of": ("x",),
}
RIGHT = {"request_id": "q", "text": "t", "cols": 80, "rows": 24, "tool": "x", "decision": "approve", "exit_code": 0}


async def test_wrong_types_in_any_field_never_stop_what_comes_after(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    app, host = await shared_relay_network.connect_app(), await shared_relay_network.connect_host(unique_name)
    for type_, fields in FIELDS.items():
        run = f"{type_}_{unique_name}"
        told = [host.make_started(run)]
        for field in fields:
            for wrong in WRONG:
                usual = {name: RIGHT[name] for name in fields if name in RIGHT}
                told.append(host.make_event(type_, run, len(told) + 1, {**usual, field: wrong}))
        told += [host.make_event(type_, run, len(told) + 1 + place, data) for place, data in enumerate(WRONG)]
        told.append(host.make_event("run.exited", run, len(told) + 1, {"exit_code": 0}))
        await host.send_frames(*told)
        await host.wait_for_ack(run, len(told))
        # A run begins once: that it began again is noted and not told.
        shown = list(range(1, len(told) + 1)) if type_ != "run.started" else [1, len(told)]
        seen = await read_up_to(app, run, len(told))
        assert [seq for seq in seen if type_ != "run.started" or seq in shown] == shown, type_
        assert seen == sorted(set(seen)), type_
        assert shared_relay_network.hub.list_host_seqs(run) == list(range(1, len(told) + 1)), type_
        assert (await shared_relay_network.hub.http.get_run(run))["status"] == "exited"
        assert [message["seq"] for message in await shared_relay_network.hub.http.list_messages(run) if message["seq"]] == seen
        assert (await shared_relay_network.hub.http.request("GET", f"/runs/{run}/screen")).status in (200, 404)
    assert "Traceback" not in shared_relay_network.hub.log()


@pytest.mark.parametrize("code", WRONG, ids=lambda code: type(code).__name__)
async def test_a_wrong_exit_code_is_survived(shared_relay_network: RelayNetwork, unique_name: str, code: object) -> None:
    host, run = await shared_relay_network.connect_host(unique_name), f"run_{unique_name}"
    await host.send_frames(host.make_started(run), host.make_event("run.exited", run, 2, {"exit_code": code}))
    await host.wait_for_ack(run, 2)
    await shared_relay_network.hub.http.get_run(run)
    await host.send_frames(
        host.make_event("run.exited", run, 3, {"exit_code": 1}), host.make_event("run.exited", run, 4, {"exit_code": 2})
    )
    await host.wait_for_ack(run, 4)
    assert (await shared_relay_network.hub.http.get_run(run))["status"] == "exited"


async def test_stamps_that_are_none_are_survived(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    app, host, run = (
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_host(unique_name),
        f"run_{unique_name}",
    )
    stamps = (None, 7, 1e300, -1, "", "yesterday", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2025-13-45T99:99:99Z", {}, [])
    await host.send_frames(host.make_started(run), *(host.make_output(run, seq, ts=ts) for seq, ts in enumerate(stamps, 2)))
    await host.wait_for_ack(run, len(stamps) + 1)
    await read_up_to(app, run, len(stamps) + 1)
    assert all(isinstance(frame["ts"], str) for frame in app.list_events(run))
    assert len(await shared_relay_network.hub.http.list_messages(run)) == len(stamps) + 1


async def test_the_largest_number_is_a_number_and_a_larger_one_is_not(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    host, run = await shared_relay_network.connect_host(unique_name), f"run_{unique_name}"
    largest = 2**53 - 1
    await host.send_frames({**host.make_started(run), "prev_seq": 0}, host.make_output(run, largest, prev_seq=1))
    await host.wait_for_ack(run, largest)
    await host.send_frames(host.make_event("run.output", run, largest + 1, {"text": "beyond"}))
    await host.next_of_type("error")
    assert shared_relay_network.hub.list_host_seqs(run) == [1, largest]


async def test_ten_megabytes_in_one_message_do_not_stop_the_hub(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    app, run = await shared_relay_network.connect_app(), f"run_{unique_name}"
    host = await shared_relay_network.connect_host(unique_name)
    await host.send_frames(host.make_started(run))
    await host.wait_for_ack(run, 1)
    big = msgspec.json.encode(host.make_output(run, 2, "x" * 10_000_000))
    try:
        await host.send_frames(big)
        await host.wait_for_ack(run, 2)
    except (EOFError, ConnectionError, TimeoutError):
        assert host.wire.close_code in (None, 1009)
        host = await shared_relay_network.connect_host(unique_name)
        await host.send_frames(host.make_output(run, 2, "small"))
        await host.wait_for_ack(run, 2)
    assert await read_up_to(app, run, 2) == [1, 2]


async def test_a_binary_message_is_survived(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    host = await shared_relay_network.connect_host(unique_name)
    host.wire.send_bytes(encode_websocket_frame(b"\x00\xff" * 100, opcode=2))
    try:
        await host.wait_until_read()
    except (EOFError, ConnectionError):
        await (await shared_relay_network.connect_host(unique_name)).wait_until_read()


async def test_a_flood_without_reading_acknowledgements_is_taken_whole(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    count = 50_000
    host, run = await shared_relay_network.connect_host(unique_name, timeout=90.0), f"run_{unique_name}"
    before_mb = shared_relay_network.hub.measure_resident_mb()
    await host.send_frames(host.make_started(run))
    for start in range(2, count + 1, 1_000):
        await host.send_frames(*(host.make_output(run, seq, "x" * 20) for seq in range(start, min(start + 1_000, count + 1))))
    grown_mb = shared_relay_network.hub.measure_resident_mb() - before_mb
    await host.wait_for_ack(run, count)
    assert shared_relay_network.hub.list_host_seqs(run) == list(range(1, count + 1))
    assert max(grown_mb, shared_relay_network.hub.measure_resident_mb() - before_mb) < 150
    assert host.list_acks(run) == sorted(host.list_acks(run))
