"""The two WebSockets of the hub: who is let in, and how a connection ends."""

import hashlib
import sqlite3

import pytest
from tests.conformance import shared_store
from tests.conformance.daemons import Daemon
from tests.conformance.relay.conftest import Dial, OpenApp
from tests.conformance.relay.peers import TOKEN, App, Host, Web
from tests.conftest import StartDaemon

from switchtower.testing import relay_client
from switchtower.testing.wires import UpgradeRefused, websocket_frame


async def refused(path: str, daemon: Daemon, **query: str) -> int:
    with pytest.raises(UpgradeRefused) as refusal:
        await relay_client.upgraded(daemon.http, path, query)
    return refusal.value.status


@pytest.mark.requirement("relay:endpoints:app", "relay:endpoints:app-token")
async def test_an_app_comes_in_with_its_token_in_the_query_and_nobody_else_does(hub: Daemon, open_app: OpenApp) -> None:
    await (await open_app(hub)).settled()
    assert await refused("/ws/app", hub) == 401
    assert await refused("/ws/app", hub, token="not-the-token") == 401
    assert await refused("/ws/app", hub, token="") == 401


@pytest.mark.requirement("relay:endpoints:app-token", "relay:http:login")
async def test_the_token_of_a_login_opens_the_websocket(hub: Daemon, web: Web, open_app: OpenApp) -> None:
    web.post("/users", {"name": "socket-user", "password": "a long password"}, 201)
    token = web.post("/auth/login", {"username": "socket-user", "password": "a long password"})["access_token"]
    await (await open_app(hub, token)).settled()


@pytest.mark.requirement("relay:endpoints:host")
async def test_a_host_comes_in_with_its_id_and_token_in_the_query(host: Host, web: Web) -> None:
    run_id = await host.begin()
    assert web.get(f"/sessions/{run_id}")["host_id"] == host.host_id


@pytest.mark.requirement("relay:endpoints:host-refused")
async def test_a_host_without_id_or_token_is_refused_before_the_upgrade(hub: Daemon) -> None:
    assert await refused("/ws/host", hub) in (400, 401)
    assert await refused("/ws/host", hub, host_id="h-lonely") == 401
    assert await refused("/ws/host", hub, host_token=TOKEN) in (400, 401)


@pytest.mark.requirement("relay:tofu:first-use", "relay:tofu:same-token")
async def test_the_first_token_of_a_host_is_trusted_and_later_only_that_one(hub: Daemon, dial: Dial) -> None:
    first = await dial(hub, "h-tofu", "the-first-token")
    await first.leave()
    assert await refused("/ws/host", hub, host_id="h-tofu", host_token="another-token") == 401
    again = await dial(hub, "h-tofu", "the-first-token")
    await again.begin()


@pytest.mark.requirement("relay:endpoints:host-id-blank")
@pytest.mark.parametrize("host_id", ["", " ", "\t", "\u2003"])
async def test_a_blank_host_id_is_refused(hub: Daemon, host_id: str) -> None:
    assert await refused("/ws/host", hub, host_id=host_id, host_token="a-token-of-a-host") == 400


@shared_store.only_with_sqlite
@pytest.mark.requirement("relay:tofu:hash-only")
async def test_only_the_hash_of_a_hosts_token_is_stored(hub: Daemon, dial: Dial) -> None:
    host = await dial(hub, "h-hashed", "a-very-secret-token-of-a-host")
    await host.begin()
    with sqlite3.connect(f"file:{hub.home / 'data' / 'registry.db'}?mode=ro", uri=True) as registry:
        dump = "\n".join(registry.iterdump())
    assert hashlib.sha256(b"a-very-secret-token-of-a-host").hexdigest() in dump
    for path in hub.home.rglob("*"):
        if path.is_file():
            assert b"a-very-secret-token-of-a-host" not in path.read_bytes(), path


@pytest.mark.requirement("relay:tofu:rotation")
async def test_deleting_the_record_of_a_host_lets_it_come_with_a_new_token(hub: Daemon, web: Web, dial: Dial) -> None:
    await (await dial(hub, "h-rotated", "the-first-token")).begin()
    assert await refused("/ws/host", hub, host_id="h-rotated", host_token="the-second-token") == 401
    assert web.ask("DELETE", "/hosts/h-rotated").status == 204
    await (await dial(hub, "h-rotated", "the-second-token")).begin()


@pytest.mark.requirement("relay:faults:open-registration", "relay:faults:hosts-stay")
async def test_who_may_register_is_the_owners_choice_and_a_host_can_be_removed(start_daemon: StartDaemon, dial: Dial) -> None:
    strict = start_daemon(new_hosts="refuse")
    assert await refused("/ws/host", strict, host_id="h-new", host_token=TOKEN) == 403
    asking = start_daemon(new_hosts="ask")
    web = Web(asking.http, asking.token)
    assert await refused("/ws/host", asking, host_id="h-new", host_token=TOKEN) == 403
    assert next(host["state"] for host in web.get("/hosts") if host["id"] == "h-new") == "pending"
    assert web.ask("POST", "/hosts/h-new/approve").status == 204
    host = await dial(asking, "h-new")
    await host.begin()
    assert web.ask("DELETE", "/hosts/h-new").status == 204
    await host.closed()
    assert [found for found in web.get("/hosts") if found["id"] == "h-new"] == []
    assert web.ask("DELETE", "/hosts/h-new").status == 404


@pytest.mark.requirement("relay:endpoints:close")
@pytest.mark.parametrize("code", [b"", (1000).to_bytes(2)], ids=["without", "1000"])
async def test_a_clients_close_is_answered_with_1000(app: App, code: bytes) -> None:
    app.wire.send_bytes(websocket_frame(code, opcode=8))
    assert await app.closed() == 1000


@pytest.mark.requirement("relay:faults:old-socket-close")
async def test_the_end_of_a_hosts_old_socket_leaves_the_new_ones_route(hub: Daemon, dial: Dial, app: App) -> None:
    old = await dial(hub, "h-twice")
    run_id = await old.begin()
    new = await dial(hub, "h-twice")
    await new.heard()
    await old.leave()
    await app.command("run.send_input", run_id, input_id="after-both", text="x\n")
    assert (await new.next_of("run.send_input", run_id))["data"]["input_id"] == "after-both"
    row = next(row for row in Web(hub.http, hub.token).get("/hosts") if row["id"] == "h-twice")
    assert row["online"] is True


@pytest.mark.requirement("relay:endpoints:origin")
async def test_pages_of_other_sites_are_refused(hub: Daemon) -> None:
    for path, query in (("/ws/app", {"token": hub.token}), ("/ws/host", {"host_id": "h-page", "host_token": TOKEN})):
        with pytest.raises(UpgradeRefused) as refusal:
            await relay_client.upgraded(hub.http, path, query, {"Origin": "https://evil.example"})
        assert refusal.value.status == 403


@pytest.mark.requirement("relay:endpoints:no-token-in-logs")
async def test_tokens_of_query_strings_reach_no_log(hub: Daemon, web: Web, open_app: OpenApp, dial: Dial) -> None:
    web.post("/users", {"name": "logged-user", "password": "a long password"}, 201)
    token = web.post("/auth/login", {"username": "logged-user", "password": "a long password"})["access_token"]
    await (await open_app(hub, token)).settled()
    await (await dial(hub, token="a-token-that-nobody-logs")).begin()
    await refused("/ws/app", hub, token="a-wrong-token-that-nobody-logs")
    for secret in (token, hub.token, "token-that-nobody-logs"):
        assert secret not in hub.log
