"""What a host says about who decided is shown as the host's word, in every view of it, and never as an act of a user of the hub.
The same for what a hub tells a host about its users."""

import asyncio
import json
from typing import Any

import msgspec
from tests.conformance.relay.fake_hub import FakeHub
from tests.relay.seen import create_user
from tests.relay.stage import RelayNetwork
from tests.relay.stage import relay_network as relay_network

from switchtower.core import codec, events
from switchtower.protocols.relay import wire_values
from switchtower.stores import audit

RUN = "run-of-a-liar"


async def report_as_host(relay_network: RelayNetwork, **decision: Any) -> None:
    """A host that asks, and says at once that anna has approved on the web."""
    await create_user(relay_network.hub, "anna")
    host = await relay_network.connect_host("liar")
    decided = {"request_id": "q1", "decision": "approve", "by": "anna", "via": "web", "actor": "web", **decision}
    await host.send_frames(
        host.make_started(RUN),
        host.make_question(RUN, 2, "q1", "rm -rf /?"),
        host.make_event("run.permission_decided", RUN, 3, decided),
        host.make_event(
            "run.input", RUN, 4, {"actor": "anna", "input_id": "i1", "text_redacted": "y\n", "text_sha256": "0" * 64}
        ),
    )
    await host.wait_for_ack(RUN, 4)


async def test_the_audit_names_the_host_and_gives_its_word_as_a_claim(relay_network: RelayNetwork) -> None:
    await relay_network.open_hub()
    await report_as_host(relay_network)
    (item,) = (await relay_network.hub.http.get("/audit"))["items"]
    assert (item["by"], item["via"], item["claims"]) == ("liar", "host", {"by": "anna", "via": "web"})
    printed = relay_network.hub.run_tower("audit")
    assert "host liar says anna (web)" in printed.stdout, printed
    (as_json,) = json.loads(relay_network.hub.run_tower("audit", "--json").stdout)
    assert (as_json["by"], as_json["claims"]["by"]) == ("liar", "anna")


async def test_apps_and_the_history_are_told_the_same(relay_network: RelayNetwork) -> None:
    await relay_network.open_hub()
    app = await relay_network.connect_app()
    await report_as_host(relay_network, claims={"by": "owner", "via": "cli"})
    live = (await app.next_of_type("run.permission_decided", RUN))["data"]
    assert (live["by"], live["via"], live["claims"]) == ("liar", "host", {"by": "owner", "via": "cli"})
    stored = next(
        message for message in await relay_network.hub.http.list_messages(RUN) if message["kind"] == "run.permission_decided"
    )
    assert stored["data"] == live


async def test_push_and_an_export_do_not_name_a_user(relay_network: RelayNetwork) -> None:
    await relay_network.open_hub()
    await report_as_host(relay_network)
    session_id = wire_values.parse_run_id(RUN)
    async with await relay_network.hub.push() as push:
        await push.attach(session_id)
        received = (await push.read_until("approval_received"))[-1]
        assert received.payload["by"] == "host"
    exported = relay_network.hub.run_tower("export", session_id, "--format", "jsonl").stdout
    assert "Typed by host liar says anna (anna)" in exported
    assert '"by":"web"' not in exported.replace(" ", "")


def test_entries_of_an_older_version_are_claims_too() -> None:
    """It stored whom the host named in the actor's place."""
    stored = msgspec.json.encode(
        {
            "approval_id": "appr_1",
            "verdict": "approve",
            "by": {"name": "anna", "via": "web"},
            "relayed": {"seq": 3, "at_ms": 1_700_000_000_000},
        }
    )
    event = codec.decode(events.ApprovalDecided.kind, stored)
    assert isinstance(event, events.ApprovalDecided)
    assert event.by == events.Actor(name="anna", via="web")
    card = msgspec.json.encode({**EMPTY_CARD, "host": "liar"})
    told = audit.make_record((1, 1, 3), event, "sess_1", card, None)
    assert (told.by, told.via, told.claims) == ("liar", "host", events.Claim("anna", "web"))
    ours = audit.make_record((1, 1, 3), event, "sess_1", msgspec.json.encode(EMPTY_CARD), None)
    assert (ours.by, ours.via, ours.claims) == ("anna", "web", None)


EMPTY_CARD = {
    "session_id": "sess_1",
    "state": "idle",
    "created_at_ms": 1,
    "updated_at_ms": 1,
    "workspace": {"root": "/"},
    "provider": "terminal",
    "engine": "pty",
}


async def test_what_a_hub_says_about_its_users_is_the_hubs_word_on_the_host(relay_network: RelayNetwork) -> None:
    """A hub of any make may name whom it likes: the host has no such user, or another of that name."""
    hub = FakeHub()
    try:
        host = await relay_network.start_daemon("obeying", hub=hub.url, hub_may="start")
        await create_user(host, "anna")
        anna = {"by": "anna", "actor": "cli"}
        asking = "printf 'Proceed? (y/n) '; read a"
        run_id = await asyncio.to_thread(lambda: hub.start(asking, host.workspace, **anna))
        asked = await asyncio.to_thread(hub.wait_for, "run.permission_requested", run_id)
        hub.send("run.permission.approve", {"request_id": asked["data"]["request_id"], **anna}, run_id=run_id)
        decided = await asyncio.to_thread(hub.wait_for, "run.permission_decided", run_id)
        assert decided["data"]["claims"] == {"by": "anna", "via": "cli"}
        (item,) = (await host.http.get("/audit"))["items"]
        assert (item["by"], item["via"], item["claims"]) == (decided["data"]["by"], "hub", {"by": "anna", "via": "cli"})
        assert "says anna (cli)" in host.run_tower("audit").stdout
    finally:
        await asyncio.to_thread(hub.close)
