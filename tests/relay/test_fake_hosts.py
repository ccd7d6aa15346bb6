"""Hosts that are made up, at a real hub: what they tell arrives once and in order, and no further than it may."""

import asyncio
import hashlib
import sqlite3
from typing import Any

import msgspec
import pytest
from tests.relay.stage import TOKEN, Place, Stage, eventually

from switchtower.testing.relay_client import RelayApp
from switchtower.testing.wires import UpgradeRefused, websocket_frame

REPLACED, REMOVED = 4000, 4001
FORWARDED = {"X-Forwarded-For": "203.0.113.9"}


async def refused(opening: Any) -> int:
    """With which status the hub refuses the connection."""
    with pytest.raises(UpgradeRefused) as refusal:
        await opening
    return refusal.value.status


def seqs(app: RelayApp, run_id: str) -> list[int]:
    return [frame["seq"] for frame in app.events(run_id) if "seq" in frame]


async def told_up_to(app: RelayApp, run_id: str, seq: int) -> list[int]:
    """Reads until the app was told this number; all that it was told of the run."""
    await app.until(lambda frame: frame.get("run_id") == run_id and frame.get("seq") == seq)
    return seqs(app, run_id)


def registry_bytes(hub: Place) -> bytes:
    return b"".join(path.read_bytes() for path in (hub.home / "data").glob("registry*"))


# Who is let in


async def test_the_first_token_of_a_host_is_trusted_and_another_is_refused_before_the_upgrade(shared: Stage, unique: str) -> None:
    host = await shared.host(unique, "first-token-" + unique)
    await host.heard()
    assert await refused(shared.host(unique, "other-token-" + unique)) == 401
    assert await refused(shared.host(unique, "")) == 401
    await host.heard()
    await shared.host(unique, "first-token-" + unique)


async def test_a_hosts_token_is_kept_as_its_hash_only(shared: Stage, unique: str) -> None:
    token = "very-secret-token-" + unique
    host = await shared.host(unique, token)
    await host.heard()
    kept = registry_bytes(shared.hub)
    assert token.encode() not in kept
    assert hashlib.sha256(token.encode()).hexdigest().encode() in kept
    assert token not in shared.hub.all_logs()


async def test_the_same_first_token_race_leaves_one_trusted(shared: Stage, unique: str) -> None:
    async def come(number: int) -> int:
        try:
            await shared.host(unique, f"token-number-{number}-{unique}")
        except UpgradeRefused as refusal:
            return refusal.status
        return 101

    assert sorted(await asyncio.gather(*map(come, range(12)))) == [101, *[401] * 11]


async def test_where_no_new_hosts_are_taken_none_is_remembered(stage: Stage) -> None:
    await stage.open_hub(new_hosts="refuse")
    assert await refused(stage.host("stranger")) == 403
    assert "stranger" not in await stage.hub.http.hosts()


async def test_where_each_is_asked_for_a_host_waits_until_it_is_approved(stage: Stage) -> None:
    await stage.open_hub(new_hosts="ask")
    assert await refused(stage.host("newcomer")) == 403
    assert (await stage.hub.http.hosts())["newcomer"]["state"] == "pending"
    # Whoever waits is known by its token already.
    assert await refused(stage.host("newcomer", "another-token-here")) == 401
    assert (await stage.hub.http.request("POST", "/hosts/newcomer/approve")).status == 204
    host = await stage.host("newcomer")
    await host.heard()
    assert (await stage.hub.http.hosts())["newcomer"]["online"]


async def test_hosts_of_this_machine_are_trusted_by_default_but_not_through_a_proxy(stage: Stage) -> None:
    await stage.open_hub()
    for number, header in enumerate(("X-Forwarded-For", "Forwarded", "X-Real-IP")):
        assert await refused(stage.host(f"proxied{number}", headers={header: "203.0.113.9"})) == 403
        assert (await stage.hub.http.hosts())[f"proxied{number}"]["state"] == "pending"
    await (await stage.host("near")).heard()
    # Through the proxy it is still the host that is known.
    await (await stage.host("near", headers=FORWARDED)).heard()


async def test_trusting_all_trusts_those_behind_a_proxy_too(shared: Stage, unique: str) -> None:
    await (await shared.host(unique, headers=FORWARDED)).heard()


async def test_refusing_a_host_cuts_it_off_and_approving_lets_it_in_again(shared: Stage, unique: str) -> None:
    host = await shared.host(unique)
    await host.heard()
    assert (await shared.hub.http.request("POST", f"/hosts/{unique}/refuse")).status == 204
    assert await host.closed() == REMOVED
    assert await refused(shared.host(unique)) == 403
    assert (await shared.hub.http.request("POST", f"/hosts/{unique}/approve")).status == 204
    await (await shared.host(unique)).heard()


async def test_removing_a_host_cuts_it_off_and_forgets_its_token(shared: Stage, unique: str) -> None:
    host = await shared.host(unique)
    await host.heard()
    assert (await shared.hub.http.request("DELETE", f"/hosts/{unique}")).status == 204
    assert await host.closed() == REMOVED
    assert unique not in await shared.hub.http.hosts()
    await (await shared.host(unique, "a-completely-new-token")).heard()


async def test_rotating_trusts_the_next_token_and_no_longer_the_old(shared: Stage, unique: str) -> None:
    host = await shared.host(unique)
    await host.heard()
    assert (await shared.hub.http.request("POST", f"/hosts/{unique}/rotate")).status == 204
    assert await host.closed() == REMOVED
    await (await shared.host(unique, "the-rotated-token")).heard()
    assert await refused(shared.host(unique)) == 401


async def test_what_is_asked_of_an_unknown_host_is_not_found(shared: Stage, unique: str) -> None:
    for method, path in (("POST", "/approve"), ("POST", "/refuse"), ("POST", "/rotate"), ("DELETE", "")):
        assert (await shared.hub.http.request(method, f"/hosts/{unique}{path}")).status == 404


async def test_no_host_comes_as_the_hub_itself(shared: Stage) -> None:
    assert await refused(shared.host("hub")) == 403
    assert await refused(shared.host("x" * 129)) == 400
    assert await refused(shared.host("")) == 400


# What it tells arrives once and in order


async def test_what_is_told_twice_is_acknowledged_twice_and_broadcast_once(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    told = [host.started(run), *(host.output(run, seq) for seq in range(2, 51))]
    await host.say(*told)
    await host.acknowledged(run, 50)
    host.frames.clear()
    await host.say(*told[10:], *told)
    assert await host.acknowledged(run, 50) == 50
    await host.say(host.output(run, 51))
    assert await told_up_to(app, run, 51) == list(range(1, 52))
    assert shared.hub.told_seqs(run) == list(range(1, 52))


async def test_what_was_told_before_a_reconnect_is_not_broadcast_again(shared: Stage, unique: str) -> None:
    app, run = await shared.app(), f"run_{unique}"
    first = await shared.host(unique)
    await first.say(first.started(run), *(first.output(run, seq) for seq in range(2, 11)))
    await first.acknowledged(run, 10)
    second = await shared.host(unique)
    await second.say(*(second.output(run, seq, "told otherwise") for seq in range(5, 11)), second.output(run, 11))
    assert await second.acknowledged(run, 11) == 11
    assert await told_up_to(app, run, 11) == list(range(1, 12))
    assert "told otherwise" not in app.output(run)


async def test_what_is_new_before_what_was_spooled_is_put_in_order_and_no_ack_crosses_the_hole(
    shared: Stage, unique: str
) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say(host.started(run), *(host.output(run, seq) for seq in range(2, 50)))
    await host.acknowledged(run, 49)
    await host.say(host.output(run, 100), host.output(run, 101))
    await host.say(*(host.output(run, seq) for seq in range(50, 75)))
    await host.acknowledged(run, 74)
    assert max(host.acks(run)) == 74
    await host.say(*(host.output(run, seq) for seq in range(75, 100)))
    assert await host.acknowledged(run, 75) in range(75, 102)
    assert await told_up_to(app, run, 101) == list(range(1, 102))
    assert all(earlier <= later for earlier, later in zip(host.acks(run), host.acks(run)[1:], strict=False))
    await host.acknowledged(run, 101)


async def test_a_hole_that_is_never_filled_is_passed_after_a_while(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say(host.started(run), host.output(run, 2), host.output(run, 5), host.output(run, 6), host.output(run, 9))
    await host.acknowledged(run, 9)
    assert await told_up_to(app, run, 9) == [1, 2, 5, 6, 9]
    assert not {3, 4, 7, 8} & set(host.acks(run))
    # What comes after all that is too late: it would be out of order.
    await host.say(host.output(run, 3), host.output(run, 10))
    assert await told_up_to(app, run, 10) == [1, 2, 5, 6, 9, 10]


async def test_numbers_that_are_known_to_be_left_out_are_no_holes(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say({**host.started(run), "prev_seq": 0}, host.output(run, 4, prev_seq=1), host.output(run, 900, prev_seq=4))
    await host.acknowledged(run, 900)
    assert await told_up_to(app, run, 900) == [1, 4, 900]
    assert host.acks(run) == sorted(host.acks(run))


async def test_what_waits_behind_a_hole_and_is_told_again_and_again_does_not_stop_the_hub_from_reading(
    shared: Stage, unique: str
) -> None:
    host, run, other = await shared.host(unique), f"run_{unique}", f"other_{unique}"
    await host.say(host.started(run), host.started(other))
    await host.acknowledged(run, 1)
    await host.acknowledged(other, 1)
    again = host.output(run, 3)
    await host.say(*([again] * 12_000))
    await host.say(host.output(run, 2))
    await host.acknowledged(run, 3)
    await host.say(host.output(other, 2))
    await host.acknowledged(other, 2)


async def test_a_run_that_begins_in_the_middle_is_taken_from_there(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say(*(host.output(run, seq) for seq in range(40, 60)))
    await host.acknowledged(run, 59)
    assert await told_up_to(app, run, 59) == list(range(40, 60))
    assert (await shared.hub.http.run(run))["host_id"] == unique


async def test_a_new_socket_replaces_the_old_whose_end_takes_nothing_with_it(shared: Stage, unique: str) -> None:
    app, run = await shared.app(), f"run_{unique}"
    old = await shared.host(unique)
    await old.say(old.started(run))
    await old.acknowledged(run, 1)
    new = await shared.host(unique)
    await new.heard()
    assert await old.closed() == REPLACED
    old.wire.abort()
    for number in range(5):
        await app.command("run.send_input", run, input_id=f"in{number}-{unique}", text="hello\n")
        assert (await new.next_of("run.send_input"))["data"]["input_id"] == f"in{number}-{unique}"
    assert (await shared.hub.http.hosts())[unique]["online"]
    await new.say(new.output(run, 2))
    await new.acknowledged(run, 2)


async def test_runs_of_a_host_that_stays_away_are_lost_and_found_when_it_is_back(stage: Stage) -> None:
    await stage.open_hub(lost_after=0.3)
    app, host = await stage.app(), await stage.host("away")
    await host.say(host.started("run_a"), host.started("run_b"), host.event("run.exited", "run_b", 2, {"exit_code": 0}))
    await host.acknowledged("run_b", 2)
    host.wire.abort()
    await app.next_of("run.lost", "run_a")
    assert (await stage.hub.http.run("run_a"))["status"] == "lost"
    assert (await stage.hub.http.run("run_b"))["status"] == "exited"
    back = await stage.host("away")
    await app.next_of("run.found", "run_a")
    assert (await stage.hub.http.run("run_a"))["status"] == "running"
    await back.say(back.output("run_a", 2))
    assert await told_up_to(app, "run_a", 2) == [1, 2]
    assert not [frame for frame in app.frames if frame["type"] == "run.lost" and frame["run_id"] == "run_b"]


async def test_a_host_that_was_away_when_the_hub_died_is_lost_after_the_hub_is_back(stage: Stage) -> None:
    hub = await stage.open_hub(lost_after=0.3)
    host = await stage.host("away")
    await host.say(host.started("run_a"))
    await host.acknowledged("run_a", 1)
    await hub.restart()

    async def is_lost() -> bool:
        return bool((await hub.http.run("run_a"))["status"] == "lost")

    await eventually(is_lost)


# No further than it may


async def test_a_host_cannot_tell_of_another_hosts_run(shared: Stage, unique: str) -> None:
    app, run = await shared.app(), f"run_{unique}"
    owner, forger = await shared.host(f"a-{unique}"), await shared.host(f"b-{unique}")
    await owner.say(owner.started(run), owner.output(run, 2))
    await owner.acknowledged(run, 2)
    await forger.say(*(forger.output(run, seq, "forged") for seq in range(1, 20)))
    await forger.say({**forger.output(run, 3, "forged"), "host_id": owner.host_id})
    await forger.say(forger.event("run.exited", run, 4, {"exit_code": 0}))
    await forger.heard()
    await owner.say(owner.output(run, 3, "true"))
    await owner.acknowledged(run, 3)
    assert await told_up_to(app, run, 3) == [1, 2, 3]
    assert "forged" not in app.output(run)
    assert not forger.acks(run)
    assert (await shared.hub.http.run(run))["status"] == "running"
    await app.command("run.send_input", run, input_id=f"i-{unique}", text="x")
    await owner.next_of("run.send_input")
    assert not [frame for frame in forger.frames if frame["type"].startswith("run.send")]


async def test_a_host_cannot_tell_of_a_session_of_the_hub_itself(shared: Stage, unique: str) -> None:
    app, host = await shared.app(), await shared.host(unique)
    run = await app.start("hub", "read answer; echo got $answer", cwd=str(shared.hub.home))
    await app.next_of("run.ready", run)
    await host.say(*(host.output(run, seq, "forged") for seq in range(1, 50)))
    await host.say(host.question(run, 50, f"forged-{unique}"), host.event("run.exited", run, 51, {"exit_code": 3}))
    await host.heard()
    await app.command("run.send_input", run, input_id=f"i-{unique}", text="yes\n")
    ended = await app.next_of("run.exited", run)
    assert ended["data"] == {"exit_code": 0}
    assert "forged" not in app.output(run)
    assert "got yes" in app.output(run)
    assert not host.acks(run)
    assert all(frame["host_id"] == "hub" for frame in app.events(run))


async def test_a_host_whose_envelopes_name_another_host_is_still_only_itself(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say({**host.started(run), "host_id": "hub"})
    await host.acknowledged(run, 1)
    assert (await app.next_of("run.started", run))["host_id"] == unique
    assert (await shared.hub.http.run(run))["host_id"] == unique


async def test_a_type_cannot_smuggle_fields_into_what_apps_are_sent(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    types = (
        'x","run_id":"sess_forged","data":{"a":"',
        'run.output","run_id":"sess_forged","seq":1,"y":"',
        'a"b',
        "back\\slash",
        "new\nline",
        "\u2028ünï \U0001f600",
        "{}",
    )
    await host.say(host.started(run))
    await host.say(*(host.event(type_, run, seq, {"n": seq}) for seq, type_ in enumerate(types, 2)))
    await host.acknowledged(run, 1 + len(types))
    await told_up_to(app, run, 1 + len(types))
    assert tuple(frame["type"] for frame in app.events(run)[1:]) == types
    assert not [frame for frame in app.frames if frame.get("run_id") == "sess_forged"]
    assert tuple(message["kind"] for message in (await shared.hub.http.messages(run))[1:]) == types


async def test_ids_with_any_characters_stay_what_they_are(shared: Stage, unique: str) -> None:
    app = await shared.app()
    host = await shared.host(f'h"{unique}\\')
    runs = [
        f'r"{unique}',
        f"r\\{unique}",
        f"../{unique}",
        f"r {unique}/x?y#z",
        f"ü\U0001f600{unique}",
        f"sess_r.{unique}",
        unique,
    ]
    for run in runs:
        await host.say(host.started(run), host.output(run, 2, run))
        await host.acknowledged(run, 2)
        await told_up_to(app, run, 2)
        assert app.output(run) == run
        assert (await shared.hub.http.run(run))["id"] == run
        assert [message["text"] for message in await shared.hub.http.messages(run)] == ["codex", run]


async def test_types_that_are_not_known_pass_as_they_are_with_all_their_fields(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    strange = {"deep": {"er": [1, 2.5, None, True, "ü"]}, "run_id": "x", "type": "y", "seq": 9, "id": 7, "n": 2**53}
    await host.say(host.started(run), host.event("agent.dreamt", run, 2, strange))
    await host.say(host.event("run.output", run, 3, {"stream": "stdout", "text": "hi", "colour": "red", "nested": {"a": [1]}}))
    await host.say(host.event("run.exited", run, 4, {"exit_code": 3, "signal": "TERM"}))
    await told_up_to(app, run, 4)
    dreamt, output, ended = app.events(run)[1:]
    assert (dreamt["type"], dreamt["data"]) == ("agent.dreamt", strange)
    assert output["data"] == {"stream": "stdout", "text": "hi", "colour": "red", "nested": {"a": [1]}}
    assert ended["data"] == {"exit_code": 3, "signal": "TERM"}
    assert [message["data"] for message in await shared.hub.http.messages(run)][1:] == [
        strange,
        output["data"],
        ended["data"],
    ]


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


async def test_rubbish_is_survived(shared: Stage, unique: str) -> None:
    for garbage in GARBAGE:
        host = await shared.host(unique)
        await host.say(garbage)
        run = f"run_{unique}_{hashlib.sha256(garbage).hexdigest()[:8]}"
        # Some of it ends the connection; then the host comes again.
        try:
            await host.say(host.started(run))
            await host.acknowledged(run, 1)
        except (EOFError, ConnectionError):
            host = await shared.host(unique)
            await host.say(host.started(run))
            await host.acknowledged(run, 1)
        assert not [frame for frame in host.frames if "Traceback" in str(frame)]
    assert "Traceback" not in shared.hub.log()


async def test_a_host_that_sends_nothing_but_rubbish_is_cut_off(shared: Stage, unique: str) -> None:
    host = await shared.host(unique)
    await host.say(*([b"{"] * 500))
    assert await host.closed() == 1008
    await (await shared.host(unique)).heard()


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


async def test_wrong_types_in_any_field_never_stop_what_comes_after(shared: Stage, unique: str) -> None:
    app, host = await shared.app(), await shared.host(unique)
    for type_, fields in FIELDS.items():
        run = f"{type_}_{unique}"
        told = [host.started(run)]
        for field in fields:
            for wrong in WRONG:
                usual = {name: RIGHT[name] for name in fields if name in RIGHT}
                told.append(host.event(type_, run, len(told) + 1, {**usual, field: wrong}))
        told += [host.event(type_, run, len(told) + 1 + place, data) for place, data in enumerate(WRONG)]
        told.append(host.event("run.exited", run, len(told) + 1, {"exit_code": 0}))
        await host.say(*told)
        await host.acknowledged(run, len(told))
        # A run begins once: that it began again is noted and not told.
        shown = list(range(1, len(told) + 1)) if type_ != "run.started" else [1, len(told)]
        seen = await told_up_to(app, run, len(told))
        assert [seq for seq in seen if type_ != "run.started" or seq in shown] == shown, type_
        assert seen == sorted(set(seen)), type_
        assert shared.hub.told_seqs(run) == list(range(1, len(told) + 1)), type_
        assert (await shared.hub.http.run(run))["status"] == "exited"
        assert [message["seq"] for message in await shared.hub.http.messages(run) if message["seq"]] == seen
        assert (await shared.hub.http.request("GET", f"/runs/{run}/screen")).status in (200, 404)
    assert "Traceback" not in shared.hub.log()


@pytest.mark.parametrize("code", WRONG, ids=lambda code: type(code).__name__)
async def test_a_wrong_exit_code_is_survived(shared: Stage, unique: str, code: object) -> None:
    host, run = await shared.host(unique), f"run_{unique}"
    await host.say(host.started(run), host.event("run.exited", run, 2, {"exit_code": code}))
    await host.acknowledged(run, 2)
    await shared.hub.http.run(run)
    await host.say(host.event("run.exited", run, 3, {"exit_code": 1}), host.event("run.exited", run, 4, {"exit_code": 2}))
    await host.acknowledged(run, 4)
    assert (await shared.hub.http.run(run))["status"] == "exited"


async def test_stamps_that_are_none_are_survived(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    stamps = (None, 7, 1e300, -1, "", "yesterday", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2025-13-45T99:99:99Z", {}, [])
    await host.say(host.started(run), *(host.output(run, seq, ts=ts) for seq, ts in enumerate(stamps, 2)))
    await host.acknowledged(run, len(stamps) + 1)
    await told_up_to(app, run, len(stamps) + 1)
    assert all(isinstance(frame["ts"], str) for frame in app.events(run))
    assert len(await shared.hub.http.messages(run)) == len(stamps) + 1


async def test_the_largest_number_is_a_number_and_a_larger_one_is_not(shared: Stage, unique: str) -> None:
    host, run = await shared.host(unique), f"run_{unique}"
    largest = 2**53 - 1
    await host.say({**host.started(run), "prev_seq": 0}, host.output(run, largest, prev_seq=1))
    await host.acknowledged(run, largest)
    await host.say(host.event("run.output", run, largest + 1, {"text": "beyond"}))
    await host.next_of("error")
    assert shared.hub.told_seqs(run) == [1, largest]


async def test_ten_megabytes_in_one_message_do_not_stop_the_hub(shared: Stage, unique: str) -> None:
    app, run = await shared.app(), f"run_{unique}"
    host = await shared.host(unique)
    await host.say(host.started(run))
    await host.acknowledged(run, 1)
    big = msgspec.json.encode(host.output(run, 2, "x" * 10_000_000))
    try:
        await host.say(big)
        await host.acknowledged(run, 2)
    except (EOFError, ConnectionError, TimeoutError):
        assert host.wire.close_code in (None, 1009)
        host = await shared.host(unique)
        await host.say(host.output(run, 2, "small"))
        await host.acknowledged(run, 2)
    assert await told_up_to(app, run, 2) == [1, 2]


async def test_a_binary_message_is_survived(shared: Stage, unique: str) -> None:
    host = await shared.host(unique)
    host.wire.send_bytes(websocket_frame(b"\x00\xff" * 100, opcode=2))
    try:
        await host.heard()
    except (EOFError, ConnectionError):
        await (await shared.host(unique)).heard()


async def test_a_flood_without_reading_acknowledgements_is_taken_whole(shared: Stage, unique: str) -> None:
    count = 50_000
    host, run = await shared.host(unique, patience=90.0), f"run_{unique}"
    before_mb = shared.hub.resident_mb()
    await host.say(host.started(run))
    for start in range(2, count + 1, 1_000):
        await host.say(*(host.output(run, seq, "x" * 20) for seq in range(start, min(start + 1_000, count + 1))))
    grown_mb = shared.hub.resident_mb() - before_mb
    await host.acknowledged(run, count)
    assert shared.hub.told_seqs(run) == list(range(1, count + 1))
    assert max(grown_mb, shared.hub.resident_mb() - before_mb) < 150
    assert host.acks(run) == sorted(host.acks(run))


# What is asked of it


async def test_an_answer_goes_only_to_who_asked(shared: Stage, unique: str) -> None:
    asker, other, host, run = await shared.app(), await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say(host.started(run))
    await host.acknowledged(run, 1)
    await asker.command("rpc.fs.read", run, request_id=unique, path="secret.txt")
    asked = await host.next_of("rpc.fs.read", run)
    assert asked["data"]["path"] == "secret.txt"
    await host.respond(asked, result={"path": "secret.txt", "content": f"contents-{unique}", "truncated": False})
    answer = await asker.answer(unique)
    assert answer["result"]["content"] == f"contents-{unique}"
    await host.say(host.output(run, 2))
    await told_up_to(other, run, 2)
    assert f"contents-{unique}" not in str(other.frames)
    assert f"contents-{unique}" not in str(await shared.hub.http.messages(run))


async def test_an_answer_that_is_numbered_goes_only_to_who_asked_too(shared: Stage, unique: str) -> None:
    asker, other, host, run = await shared.app(), await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say(host.started(run))
    await asker.next_of("run.started", run)
    await asker.command("rpc.fs.read", run, request_id=unique, path="secret.txt")
    await host.next_of("rpc.fs.read", run)
    data = {"request_id": unique, "ok": True, "rpc_type": "rpc.fs.read", "result": {"content": f"contents-{unique}"}}
    await host.say(host.event("rpc.response", run, 2, data), host.output(run, 3))
    assert (await asker.answer(unique))["ok"]
    await host.acknowledged(run, 3)
    await told_up_to(other, run, 3)
    assert f"contents-{unique}" not in str(other.frames)
    assert f"contents-{unique}" not in str(await shared.hub.http.messages(run))


async def test_another_host_cannot_answer_what_was_asked_of_this_one(shared: Stage, unique: str) -> None:
    app, run = await shared.app(), f"run_{unique}"
    host, forger = await shared.host(f"a-{unique}"), await shared.host(f"b-{unique}")
    await host.say(host.started(run))
    await app.next_of("run.started", run)
    await app.command("rpc.fs.read", run, request_id=unique, path="a")
    asked = await host.next_of("rpc.fs.read", run)
    await forger.respond(asked, result={"content": "forged"})
    await forger.heard()
    await host.respond(asked, result={"content": "true"})
    assert (await app.answer(unique))["result"] == {"content": "true"}


async def test_who_waits_for_an_answer_is_told_at_once_that_the_host_has_gone(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say(host.started(run))
    await app.next_of("run.started", run)
    for type_, data in (("rpc.fs.read", {"path": "a"}), ("rpc.bash", {"cmd": "true"}), ("rpc.git.status", {})):
        await app.command(type_, run, request_id=f"{type_}-{unique}", **data)
        await host.next_of(type_, run)
    host.wire.abort()
    for type_ in ("rpc.fs.read", "rpc.bash", "rpc.git.status"):
        answer = await app.answer(f"{type_}-{unique}")
        assert (answer["ok"], answer["error"]) == (False, "host disconnected before it answered")


async def test_what_is_asked_of_an_offline_host_is_refused_at_once(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say(host.started(run))
    await app.next_of("run.started", run)
    host.wire.abort()

    async def is_offline() -> bool:
        return not (await shared.hub.http.hosts())[unique]["online"]

    await eventually(is_offline)
    commands: dict[str, dict[str, Any]] = {
        "run.send_input": {"input_id": "i1", "text": "x"},
        "run.send_stdin": {"text": "x"},
        "run.stop": {},
        "run.resize": {"cols": 80, "rows": 24},
        "run.permission.approve": {"request_id": "q"},
        "run.permission.deny": {"request_id": "q"},
    }
    for type_, data in commands.items():
        await app.command(type_, run, **data)
        error = await app.next_of("run.error", run)
        assert (error["data"]["command"], error["data"]["error"]) == (type_, "host offline")
    for type_, data in (("rpc.fs.read", {"path": "a"}), ("rpc.bash", {"cmd": "x"}), ("rpc.runs.list", {}), ("rpc.run.stop", {})):
        assert (await app.ask(type_, run, **data))["error"] == "host offline"
    for type_ in ("rpc.host.info", "rpc.host.logs.tail", "rpc.host.capabilities"):
        assert (await app.ask(type_, host_id=unique))["error"] == "host offline"
    assert (await app.ask("rpc.run.start", host_id=unique, cmd="true", tool="x"))["error"] == "host offline"
    assert (await app.ask("rpc.run.start", host_id=f"none-{unique}", cmd="true", tool="x"))["error"] == "unknown host_id"
    answer = await shared.hub.http.request("POST", f"/runs/{run}/input", {"input_id": "i2", "text": "x"})
    assert answer.status == 502


async def test_a_refusal_of_the_host_reaches_only_the_app_that_asked(shared: Stage, unique: str) -> None:
    asker, other, host, run = await shared.app(), await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say(host.started(run))
    await asker.next_of("run.started", run)
    await asker.command("run.send_input", run, input_id=unique, text="x")
    asked = await host.next_of("run.send_input", run)
    problem = {"command": "run.send_input", "error": "run has exited", "input_id": unique}
    await host.say({"type": "run.error", "run_id": run, "data": {**problem, "command_id": asked["data"]["command_id"]}})
    assert (await asker.next_of("run.error", run))["data"] == problem
    await other.settled()
    assert not [frame for frame in other.frames if frame["type"] == "run.error" and frame.get("run_id") == run]


# What is acknowledged is stored


async def test_everything_that_was_acknowledged_is_there_after_the_hub_was_killed(stage: Stage) -> None:
    hub = await stage.open_hub()
    stored: dict[str, int] = {}
    for life in range(4):
        host = await stage.host("h", patience=60.0)
        runs = [f"run_{life}_{number}" for number in range(3)]
        for run in runs:
            await host.say(host.started(run))
        for start in range(2, 3_000, 100):
            for run in runs:
                await host.say(*(host.output(run, seq) for seq in range(start, start + 100)))
        await host.acknowledged(runs[life % 3], 200 + 500 * life)
        hub.kill()
        await host.closed()  # what it had sent is read to the end
        stored |= {run: max(host.acks(run), default=0) for run in runs}
        for run, acked in stored.items():
            told = hub.told_seqs(run)
            assert told == list(range(1, len(told) + 1)), run
            assert len(told) >= acked, run
        await hub.start()
        for run, acked in stored.items():
            assert len(hub.told_seqs(run)) >= acked
    assert max(stored.values()) > 0


async def test_a_host_goes_on_after_the_hub_was_killed_and_apps_see_each_once(stage: Stage) -> None:
    hub = await stage.open_hub()
    host = await stage.host("h")
    await host.say(host.started("run"), *(host.output("run", seq) for seq in range(2, 500)))
    acked = await host.acknowledged("run", 100)
    await hub.restart()
    app = await stage.app()
    await app.subscribe("run", after_id=0)
    host = await stage.host("h")
    await host.say(*(host.output("run", seq) for seq in range(acked + 1, 600)))
    await host.acknowledged("run", 599)
    assert await told_up_to(app, "run", 599) == list(range(1, 600))


async def test_the_registry_of_a_hub_has_no_tokens_whatever_became_of_them(stage: Stage) -> None:
    hub = await stage.open_hub(new_hosts="ask")
    for name in ("one", "two"):
        assert await refused(stage.host(name)) == 403
    assert await refused(stage.host("one", "wrong-token-for-one")) == 401
    await hub.http.request("POST", "/hosts/one/approve")
    host = await stage.host("one")
    await host.heard()
    await hub.http.request("POST", "/hosts/one/rotate")
    assert await host.closed() == REMOVED
    assert await hub.stop() == 0
    with sqlite3.connect(next((hub.home / "data").glob("registry*db"))) as database:
        dump = "\n".join(database.iterdump())
    for token in (TOKEN.format("one"), TOKEN.format("two"), "wrong-token-for-one"):
        assert token not in dump
        assert token not in hub.all_logs()
        assert token.encode() not in registry_bytes(hub)
