"""The two WebSockets of the hub: who is let in, and how a connection ends."""

import hashlib
import sqlite3

import pytest
from tests.conformance import shared_store
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.relay.conftest import Dial, OpenApp
from tests.conformance.relay.peers import TOKEN, CheckedApp, CheckedHost, CheckedHttp
from tests.conftest import StartDaemon

from switchtower.testing import relay_client
from switchtower.testing.wire import UpgradeRefused, encode_websocket_frame


async def get_refusal_status(path: str, daemon: ManagedDaemon, **query: str) -> int:
    with pytest.raises(UpgradeRefused) as refusal:
        await relay_client.open_websocket(daemon.http, path, query)
    return refusal.value.status


@pytest.mark.requirement("relay:endpoints:app", "relay:endpoints:app-token")
async def test_an_app_comes_in_with_its_token_in_the_query_and_nobody_else_does(hub: ManagedDaemon, open_app: OpenApp) -> None:
    await (await open_app(hub)).wait_until_processed()
    assert await get_refusal_status("/ws/app", hub) == 401
    assert await get_refusal_status("/ws/app", hub, token="not-the-token") == 401
    assert await get_refusal_status("/ws/app", hub, token="") == 401


@pytest.mark.requirement("relay:endpoints:app-token", "relay:http:login")
async def test_the_token_of_a_login_opens_the_websocket(hub: ManagedDaemon, hub_http: CheckedHttp, open_app: OpenApp) -> None:
    hub_http.post("/users", {"name": "socket-user", "password": "a long password"}, 201)
    token = hub_http.post("/auth/login", {"username": "socket-user", "password": "a long password"})["access_token"]
    await (await open_app(hub, token)).wait_until_processed()


@pytest.mark.requirement("relay:endpoints:host")
async def test_a_host_comes_in_with_its_id_and_token_in_the_query(host: CheckedHost, hub_http: CheckedHttp) -> None:
    run_id = await host.begin()
    assert hub_http.get(f"/sessions/{run_id}")["host_id"] == host.host_id


@pytest.mark.requirement("relay:endpoints:host-refused")
async def test_a_host_without_id_or_token_is_refused_before_the_upgrade(hub: ManagedDaemon) -> None:
    assert await get_refusal_status("/ws/host", hub) in (400, 401)
    assert await get_refusal_status("/ws/host", hub, host_id="h-lonely") == 401
    assert await get_refusal_status("/ws/host", hub, host_token=TOKEN) in (400, 401)


@pytest.mark.requirement("relay:tofu:first-use", "relay:tofu:same-token")
async def test_the_first_token_of_a_host_is_trusted_and_later_only_that_one(hub: ManagedDaemon, connect_host: Dial) -> None:
    first = await connect_host(hub, "h-tofu", "the-first-token")
    await first.leave()
    assert await get_refusal_status("/ws/host", hub, host_id="h-tofu", host_token="another-token") == 401
    again = await connect_host(hub, "h-tofu", "the-first-token")
    await again.begin()


@pytest.mark.requirement("relay:endpoints:host-id-blank")
@pytest.mark.parametrize("host_id", ["", " ", "\t", "\u2003"])
async def test_a_blank_host_id_is_refused(hub: ManagedDaemon, host_id: str) -> None:
    assert await get_refusal_status("/ws/host", hub, host_id=host_id, host_token="a-token-of-a-host") == 400


@shared_store.only_with_sqlite
@pytest.mark.requirement("relay:tofu:hash-only")
async def test_only_the_hash_of_a_hosts_token_is_stored(hub: ManagedDaemon, connect_host: Dial) -> None:
    host = await connect_host(hub, "h-hashed", "a-very-secret-token-of-a-host")
    await host.begin()
    with sqlite3.connect(f"file:{hub.home / 'data' / 'registry.db'}?mode=ro", uri=True) as registry:
        dump = "\n".join(registry.iterdump())
    assert hashlib.sha256(b"a-very-secret-token-of-a-host").hexdigest() in dump
    for path in hub.home.rglob("*"):
        if path.is_file():
            assert b"a-very-secret-token-of-a-host" not in path.read_bytes(), path


@pytest.mark.requirement("relay:tofu:rotation")
async def test_deleting_the_record_of_a_host_lets_it_come_with_a_new_token(
    hub: ManagedDaemon, hub_http: CheckedHttp, connect_host: Dial
) -> None:
    await (await connect_host(hub, "h-rotated", "the-first-token")).begin()
    assert await get_refusal_status("/ws/host", hub, host_id="h-rotated", host_token="the-second-token") == 401
    assert hub_http.ask("DELETE", "/hosts/h-rotated").status == 204
    await (await connect_host(hub, "h-rotated", "the-second-token")).begin()


@pytest.mark.requirement("relay:faults:open-registration", "relay:faults:hosts-stay")
async def test_who_may_register_is_the_owners_choice_and_a_host_can_be_removed(
    start_daemon: StartDaemon, connect_host: Dial
) -> None:
    strict = start_daemon(new_hosts="refuse")
    assert await get_refusal_status("/ws/host", strict, host_id="h-new", host_token=TOKEN) == 403
    asking = start_daemon(new_hosts="ask")
    web = CheckedHttp(asking.http, asking.token)
    assert await get_refusal_status("/ws/host", asking, host_id="h-new", host_token=TOKEN) == 403
    assert next(host["state"] for host in web.get("/hosts") if host["id"] == "h-new") == "pending"
    assert web.ask("POST", "/hosts/h-new/approve").status == 204
    host = await connect_host(asking, "h-new")
    await host.begin()
    assert web.ask("DELETE", "/hosts/h-new").status == 204
    await host.wait_closed()
    assert [found for found in web.get("/hosts") if found["id"] == "h-new"] == []
    assert web.ask("DELETE", "/hosts/h-new").status == 404


@pytest.mark.requirement("relay:endpoints:close")
@pytest.mark.parametrize("code", [b"", (1000).to_bytes(2)], ids=["without", "1000"])
async def test_a_clients_close_is_answered_with_1000(app: CheckedApp, code: bytes) -> None:
    app.wire.send_bytes(encode_websocket_frame(code, opcode=8))
    assert await app.wait_closed() == 1000


@pytest.mark.requirement("relay:faults:old-socket-close")
async def test_the_end_of_a_hosts_old_socket_leaves_the_new_ones_route(
    hub: ManagedDaemon, connect_host: Dial, app: CheckedApp
) -> None:
    old = await connect_host(hub, "h-twice")
    run_id = await old.begin()
    new = await connect_host(hub, "h-twice")
    await new.wait_until_read()
    await old.leave()
    await app.send_command("run.send_input", run_id, input_id="after-both", text="x\n")
    assert (await new.next_of_type("run.send_input", run_id))["data"]["input_id"] == "after-both"
    row = next(row for row in CheckedHttp(hub.http, hub.token).get("/hosts") if row["id"] == "h-twice")
    assert row["online"] is True


@pytest.mark.requirement("relay:endpoints:origin")
async def test_pages_of_other_sites_are_refused(hub: ManagedDaemon) -> None:
    for path, query in (("/ws/app", {"token": hub.token}), ("/ws/host", {"host_id": "h-page", "host_token": TOKEN})):
        with pytest.raises(UpgradeRefused) as refusal:
            await relay_client.open_websocket(hub.http, path, query, {"Origin": "https://evil.example"})
        assert refusal.value.status == 403


@pytest.mark.requirement("relay:endpoints:no-token-in-logs")
async def test_tokens_of_query_strings_reach_no_log(
    hub: ManagedDaemon, hub_http: CheckedHttp, open_app: OpenApp, connect_host: Dial
) -> None:
    hub_http.post("/users", {"name": "logged-user", "password": "a long password"}, 201)
    token = hub_http.post("/auth/login", {"username": "logged-user", "password": "a long password"})["access_token"]
    await (await open_app(hub, token)).wait_until_processed()
    await (await connect_host(hub, token="a-token-that-nobody-logs")).begin()
    await get_refusal_status("/ws/app", hub, token="a-wrong-token-that-nobody-logs")
    for secret in (token, hub.token, "token-that-nobody-logs"):
        assert secret not in hub.log
