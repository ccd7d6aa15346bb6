"""Which hosts a hub lets in, and what it keeps of their tokens. The hosts are made up, the hub is real."""

import asyncio
import hashlib
import sqlite3

from tests.relay.seen import refused
from tests.relay.stage import TOKEN, Place, Stage

from switchtower.testing.wires import UpgradeRefused

REMOVED = 4001
FORWARDED = {"X-Forwarded-For": "203.0.113.9"}


def registry_bytes(hub: Place) -> bytes:
    return b"".join(path.read_bytes() for path in (hub.home / "data").glob("registry*"))


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
