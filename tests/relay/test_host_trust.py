"""Which hosts a hub lets in, and what it keeps of their tokens. The hosts are made up, the hub is real."""

import asyncio
import hashlib
import sqlite3

from tests.relay.seen import get_refusal_status
from tests.relay.stage import TOKEN, DaemonView, RelayNetwork

from switchtower.testing.wire import UpgradeRefused

REMOVED = 4001
FORWARDED = {"X-Forwarded-For": "203.0.113.9"}


def read_registry_bytes(hub: DaemonView) -> bytes:
    return b"".join(path.read_bytes() for path in (hub.home / "data").glob("registry*"))


async def test_the_first_token_of_a_host_is_trusted_and_another_is_refused_before_the_upgrade(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    host = await shared_relay_network.connect_host(unique_name, "first-token-" + unique_name)
    await host.wait_until_read()
    assert await get_refusal_status(shared_relay_network.connect_host(unique_name, "other-token-" + unique_name)) == 401
    assert await get_refusal_status(shared_relay_network.connect_host(unique_name, "")) == 401
    await host.wait_until_read()
    await shared_relay_network.connect_host(unique_name, "first-token-" + unique_name)


async def test_a_hosts_token_is_kept_as_its_hash_only(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    token = "very-secret-token-" + unique_name
    host = await shared_relay_network.connect_host(unique_name, token)
    await host.wait_until_read()
    kept = read_registry_bytes(shared_relay_network.hub)
    assert token.encode() not in kept
    assert hashlib.sha256(token.encode()).hexdigest().encode() in kept
    assert token not in shared_relay_network.hub.read_logs()


async def test_the_same_first_token_race_leaves_one_trusted(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    async def come(number: int) -> int:
        try:
            await shared_relay_network.connect_host(unique_name, f"token-number-{number}-{unique_name}")
        except UpgradeRefused as refusal:
            return refusal.status
        return 101

    assert sorted(await asyncio.gather(*map(come, range(12)))) == [101, *[401] * 11]


async def test_where_no_new_hosts_are_taken_none_is_remembered(relay_network: RelayNetwork) -> None:
    await relay_network.open_hub(new_hosts="refuse")
    assert await get_refusal_status(relay_network.connect_host("stranger")) == 403
    assert "stranger" not in await relay_network.hub.http.list_hosts()


async def test_where_each_is_asked_for_a_host_waits_until_it_is_approved(relay_network: RelayNetwork) -> None:
    await relay_network.open_hub(new_hosts="ask")
    assert await get_refusal_status(relay_network.connect_host("newcomer")) == 403
    assert (await relay_network.hub.http.list_hosts())["newcomer"]["state"] == "pending"
    # Whoever waits is known by its token already.
    assert await get_refusal_status(relay_network.connect_host("newcomer", "another-token-here")) == 401
    assert (await relay_network.hub.http.request("POST", "/hosts/newcomer/approve")).status == 204
    host = await relay_network.connect_host("newcomer")
    await host.wait_until_read()
    assert (await relay_network.hub.http.list_hosts())["newcomer"]["online"]


async def test_hosts_of_this_machine_are_trusted_by_default_but_not_through_a_proxy(relay_network: RelayNetwork) -> None:
    await relay_network.open_hub()
    for number, header in enumerate(("X-Forwarded-For", "Forwarded", "X-Real-IP")):
        assert await get_refusal_status(relay_network.connect_host(f"proxied{number}", headers={header: "203.0.113.9"})) == 403
        assert (await relay_network.hub.http.list_hosts())[f"proxied{number}"]["state"] == "pending"
    await (await relay_network.connect_host("near")).wait_until_read()
    # Through the proxy it is still the host that is known.
    await (await relay_network.connect_host("near", headers=FORWARDED)).wait_until_read()


async def test_trusting_all_trusts_those_behind_a_proxy_too(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    await (await shared_relay_network.connect_host(unique_name, headers=FORWARDED)).wait_until_read()


async def test_refusing_a_host_cuts_it_off_and_approving_lets_it_in_again(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    host = await shared_relay_network.connect_host(unique_name)
    await host.wait_until_read()
    assert (await shared_relay_network.hub.http.request("POST", f"/hosts/{unique_name}/refuse")).status == 204
    assert await host.wait_closed() == REMOVED
    assert await get_refusal_status(shared_relay_network.connect_host(unique_name)) == 403
    assert (await shared_relay_network.hub.http.request("POST", f"/hosts/{unique_name}/approve")).status == 204
    await (await shared_relay_network.connect_host(unique_name)).wait_until_read()


async def test_removing_a_host_cuts_it_off_and_forgets_its_token(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    host = await shared_relay_network.connect_host(unique_name)
    await host.wait_until_read()
    assert (await shared_relay_network.hub.http.request("DELETE", f"/hosts/{unique_name}")).status == 204
    assert await host.wait_closed() == REMOVED
    assert unique_name not in await shared_relay_network.hub.http.list_hosts()
    await (await shared_relay_network.connect_host(unique_name, "a-completely-new-token")).wait_until_read()


async def test_rotating_trusts_the_next_token_and_no_longer_the_old(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    host = await shared_relay_network.connect_host(unique_name)
    await host.wait_until_read()
    assert (await shared_relay_network.hub.http.request("POST", f"/hosts/{unique_name}/rotate")).status == 204
    assert await host.wait_closed() == REMOVED
    await (await shared_relay_network.connect_host(unique_name, "the-rotated-token")).wait_until_read()
    assert await get_refusal_status(shared_relay_network.connect_host(unique_name)) == 401


async def test_what_is_asked_of_an_unknown_host_is_not_found(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    for method, path in (("POST", "/approve"), ("POST", "/refuse"), ("POST", "/rotate"), ("DELETE", "")):
        assert (await shared_relay_network.hub.http.request(method, f"/hosts/{unique_name}{path}")).status == 404


async def test_no_host_comes_as_the_hub_itself(shared_relay_network: RelayNetwork) -> None:
    assert await get_refusal_status(shared_relay_network.connect_host("hub")) == 403
    assert await get_refusal_status(shared_relay_network.connect_host("x" * 129)) == 400
    assert await get_refusal_status(shared_relay_network.connect_host("")) == 400


async def test_the_registry_of_a_hub_has_no_tokens_whatever_became_of_them(relay_network: RelayNetwork) -> None:
    hub = await relay_network.open_hub(new_hosts="ask")
    for name in ("one", "two"):
        assert await get_refusal_status(relay_network.connect_host(name)) == 403
    assert await get_refusal_status(relay_network.connect_host("one", "wrong-token-for-one")) == 401
    await hub.http.request("POST", "/hosts/one/approve")
    host = await relay_network.connect_host("one")
    await host.wait_until_read()
    await hub.http.request("POST", "/hosts/one/rotate")
    assert await host.wait_closed() == REMOVED
    assert await hub.stop() == 0
    with sqlite3.connect(next((hub.home / "data").glob("registry*db"))) as database:
        dump = "\n".join(database.iterdump())
    for token in (TOKEN.format("one"), TOKEN.format("two"), "wrong-token-for-one"):
        assert token not in dump
        assert token not in hub.read_logs()
        assert token.encode() not in read_registry_bytes(hub)
