"""What a host says about who decided is shown as the host's word, in every view of it, and never as an act of a user of the hub.
The same for what a hub tells a host about its users."""

import asyncio
import json
from typing import Any

import msgspec
from tests.conformance.relay.fake_hub import FakeHub
from tests.relay.seen import user
from tests.relay.stage import Stage
from tests.relay.stage import stage as stage

from switchtower.core import codec, events
from switchtower.protocols.relay import names
from switchtower.stores import decisions

RUN = "run-of-a-liar"


async def told_by_a_host(stage: Stage, **decision: Any) -> None:
    """A host that asks, and says at once that anna has approved on the web."""
    await user(stage.hub, "anna")
    host = await stage.host("liar")
    decided = {"request_id": "q1", "decision": "approve", "by": "anna", "via": "web", "actor": "web", **decision}
    await host.say(
        host.started(RUN),
        host.question(RUN, 2, "q1", "rm -rf /?"),
        host.event("run.permission_decided", RUN, 3, decided),
        host.event("run.input", RUN, 4, {"actor": "anna", "input_id": "i1", "text_redacted": "y\n", "text_sha256": "0" * 64}),
    )
    await host.acknowledged(RUN, 4)


async def test_the_audit_names_the_host_and_gives_its_word_as_a_claim(stage: Stage) -> None:
    await stage.open_hub()
    await told_by_a_host(stage)
    (item,) = (await stage.hub.http.get("/audit"))["items"]
    assert (item["by"], item["via"], item["claims"]) == ("liar", "host", {"by": "anna", "via": "web"})
    printed = stage.hub.tower("audit")
    assert "host liar says anna (web)" in printed.stdout, printed
    (as_json,) = json.loads(stage.hub.tower("audit", "--json").stdout)
    assert (as_json["by"], as_json["claims"]["by"]) == ("liar", "anna")


async def test_apps_and_the_history_are_told_the_same(stage: Stage) -> None:
    await stage.open_hub()
    app = await stage.app()
    await told_by_a_host(stage, claims={"by": "owner", "via": "cli"})
    live = (await app.next_of("run.permission_decided", RUN))["data"]
    assert (live["by"], live["via"], live["claims"]) == ("liar", "host", {"by": "owner", "via": "cli"})
    stored = next(message for message in await stage.hub.http.messages(RUN) if message["kind"] == "run.permission_decided")
    assert stored["data"] == live


async def test_push_and_an_export_do_not_name_a_user(stage: Stage) -> None:
    await stage.open_hub()
    await told_by_a_host(stage)
    session_id = names.session_of(RUN)
    async with await stage.hub.push() as push:
        await push.attach(session_id)
        received = (await push.until("approval_received"))[-1]
        assert received.payload["by"] == "host"
    exported = stage.hub.tower("export", session_id, "--format", "jsonl").stdout
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
    told = decisions.told((1, 1, 3), event, "sess_1", card, None)
    assert (told.by, told.via, told.claims) == ("liar", "host", events.Claim("anna", "web"))
    ours = decisions.told((1, 1, 3), event, "sess_1", msgspec.json.encode(EMPTY_CARD), None)
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


async def test_what_a_hub_says_about_its_users_is_the_hubs_word_on_the_host(stage: Stage) -> None:
    """A hub of any make may name whom it likes: the host has no such user, or another of that name."""
    hub = FakeHub()
    try:
        host = await stage.tower("obeying", hub=hub.url, hub_may="start")
        await user(host, "anna")
        anna = {"by": "anna", "actor": "cli"}
        asking = "printf 'Proceed? (y/n) '; read a"
        run_id = await asyncio.to_thread(lambda: hub.start(asking, host.workspace, **anna))
        asked = await asyncio.to_thread(hub.until, "run.permission_requested", run_id)
        hub.send("run.permission.approve", {"request_id": asked["data"]["request_id"], **anna}, run_id=run_id)
        decided = await asyncio.to_thread(hub.until, "run.permission_decided", run_id)
        assert decided["data"]["claims"] == {"by": "anna", "via": "cli"}
        (item,) = (await host.http.get("/audit"))["items"]
        assert (item["by"], item["via"], item["claims"]) == (decided["data"]["by"], "hub", {"by": "anna", "via": "cli"})
        assert "says anna (cli)" in host.tower("audit").stdout
    finally:
        await asyncio.to_thread(hub.close)
