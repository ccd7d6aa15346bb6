"""Wrong passwords cost time where they come from, and nobody else: not behind a proxy, not on a device that is known."""

import pytest
from tests.relay.seen import PASSWORD
from tests.relay.stage import RelayNetwork, RestartableDaemon
from tests.relay.stage import relay_network as relay_network

from switchtower.accounts.accounts import Accounts
from switchtower.testing.memory.registry import MemoryRegistry
from switchtower.testing.relay_client import HttpResponse
from switchtower.transports.origins import TrustedProxies

FREE = 5
HERE = {"X-Forwarded-For": "203.0.113.9"}
THERE = {"X-Forwarded-For": "198.51.100.7"}


@pytest.fixture
async def hub(relay_network: RelayNetwork, request: pytest.FixtureRequest) -> RestartableDaemon:
    """With two users."""
    settings = {} if request.param is None else {"trusted_proxies": request.param}
    made = await relay_network.open_hub(**settings)
    for name in ("anna", "bob"):
        assert (await made.http.request("POST", "/users", {"name": name, "password": PASSWORD})).status in (200, 201, 204)
    return made


async def log_in(hub: RestartableDaemon, name: str, password: str, headers: dict[str, str] | None = None) -> HttpResponse:
    return await hub.http.request("POST", "/auth/login", {"username": name, "password": password}, headers=headers)


async def fail(hub: RestartableDaemon, name: str, headers: dict[str, str] | None = None) -> None:
    for _ in range(FREE):
        assert (await log_in(hub, name, "wrong password", headers)).status == 401


PROXY = pytest.mark.parametrize("hub", ["127.0.0.1"], indirect=True)
NO_PROXY = pytest.mark.parametrize("hub", [None], indirect=True)


@PROXY
async def test_behind_a_proxy_failures_of_one_client_hold_back_no_other(hub: RestartableDaemon) -> None:
    await fail(hub, "anna", HERE)
    assert (await log_in(hub, "anna", PASSWORD, HERE)).status == 429
    assert (await log_in(hub, "bob", PASSWORD, HERE)).status == 429
    assert (await log_in(hub, "anna", PASSWORD, THERE)).status == 200
    assert (await log_in(hub, "bob", PASSWORD, THERE)).status == 200


@PROXY
@pytest.mark.parametrize(
    "spelled",
    [
        {"X-Forwarded-For": "10.9.8.{}, 203.0.113.9"},
        {"X-Forwarded-For": "203.0.113.9, 127.0.0.1", "X-Real-IP": "10.9.8.{}"},
        {"Forwarded": 'for=10.9.8.{};proto=https, for="203.0.113.9:4711"'},
        {"X-Forwarded-For": "203.0.113.9", "Forwarded": "for=10.9.8.{}"},
        {"X-Forwarded-For": "not an address {}"},
    ],
)
async def test_a_client_behind_a_proxy_cannot_invent_its_address(hub: RestartableDaemon, spelled: dict[str, str]) -> None:
    for number in range(FREE):
        made_up = {name: value.format(number) for name, value in spelled.items()}
        assert (await log_in(hub, "anna", "wrong password", made_up)).status == 401
    assert (await log_in(hub, "bob", PASSWORD, {name: value.format(99) for name, value in spelled.items()})).status == 429


@NO_PROXY
async def test_the_header_of_an_untrusted_peer_is_ignored(hub: RestartableDaemon) -> None:
    for number in range(FREE):
        assert (await log_in(hub, "anna", "wrong password", {"X-Forwarded-For": f"203.0.113.{number}"})).status == 401
    assert (await log_in(hub, "bob", PASSWORD, {"X-Forwarded-For": "203.0.113.99"})).status == 429


@NO_PROXY
async def test_failures_at_an_address_do_not_hold_back_a_name_that_has_logged_in_from_there(hub: RestartableDaemon) -> None:
    assert (await log_in(hub, "anna", PASSWORD)).status == 200
    await fail(hub, "bob")
    assert (await log_in(hub, "bob", PASSWORD)).status == 429
    assert (await log_in(hub, "anna", PASSWORD)).status == 200
    # Guessing at the familiar name is as slow as at any other.
    await fail(hub, "anna")
    assert (await log_in(hub, "anna", PASSWORD)).status == 429


@NO_PROXY
async def test_a_browser_that_has_logged_in_is_not_held_back_by_failures_of_others_in_its_users_name(
    hub: RestartableDaemon,
) -> None:
    page = {"Origin": hub.url}
    first = await hub.http.request("POST", "/auth/login", {"username": "anna", "password": PASSWORD}, headers=page)
    device = first.headers["set-cookie"].partition("_device=")[2].partition(";")[0]
    assert device
    await fail(hub, "anna")
    assert (await log_in(hub, "anna", PASSWORD)).status == 429
    port = hub.url.rpartition(":")[2]
    known = {**page, "Cookie": f"tower_{port}_device={device}"}
    assert (await log_in(hub, "bob", PASSWORD, known)).status == 429, "it is anna's device, and bob is a stranger"
    assert (await log_in(hub, "anna", PASSWORD, {**page, "Cookie": f"tower_{port}_device={'0' * 32}.{'0' * 64}"})).status == 429
    assert (await log_in(hub, "anna", PASSWORD, known)).status == 200


@NO_PROXY
async def test_wrong_tokens_are_limited_as_passwords_are_and_the_right_one_is_never_held_back(hub: RestartableDaemon) -> None:
    async def exchange(token: str) -> HttpResponse:
        return await hub.http.request("POST", "/auth/token", {"token": token})

    assert [(await exchange("x" * 43)).status for _ in range(FREE)] == [401] * FREE
    refused = await exchange("x" * 43)
    assert (refused.status, "retry-after" in refused.headers) == (429, True)
    assert (await log_in(hub, "anna", PASSWORD)).status == 429, "failures of one address count together"
    assert (await exchange(hub.token)).status == 200


async def test_a_device_is_known_after_a_restart_and_only_for_its_user() -> None:
    registry = MemoryRegistry()
    one, two = (Accounts(registry, b"a secret of both lives", "owner") for _ in range(2))
    other = Accounts(registry, b"another secret", "owner")
    try:
        device = one.make_device_token("anna")
        assert two._is_known_device("anna", device)
        assert not two._is_known_device("bob", device)
        assert not other._is_known_device("anna", device)
        for wrong in ("", ".", device[:-1], device + "0", "é" * 32 + device[32:]):
            assert not one._is_known_device("anna", wrong)
    finally:
        for accounts in (one, two, other):
            accounts.close()


@pytest.mark.parametrize(
    ("peer", "x_forwarded_for", "forwarded", "client"),
    [
        ("10.0.0.1", "203.0.113.9", "", "203.0.113.9"),
        ("10.0.0.1", "1.2.3.4, 203.0.113.9, 10.0.0.2", "", "203.0.113.9"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "", ""),
        ("10.0.0.1", "", "", ""),
        ("10.0.0.1", "unknown", "", ""),
        ("10.0.0.1", "203.0.113.9, unknown", "", ""),
        ("10.0.0.1", "203.0.113.9:5000", "", "203.0.113.9"),
        ("10.0.0.1", "[2001:db8::1]:5000", "", "2001:db8::1"),
        ("10.0.0.1", "2001:db8::1", "", "2001:db8::1"),
        ("10.0.0.1", "::ffff:203.0.113.9", "", "203.0.113.9"),
        ("10.0.0.1", "", 'for="[2001:db8::1]:4711";proto=https', "2001:db8::1"),
        ("10.0.0.1", "", "For=203.0.113.9;by=10.0.0.1", "203.0.113.9"),
        ("10.0.0.1", "", "for=_hidden", ""),
        ("10.0.0.1", "", "proto=https", ""),
        ("10.0.0.1", "", "for=1.1.1.1;for=2.2.2.2", ""),
        ("10.0.0.1", "203.0.113.9", "for=203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "203.0.113.9", "for=198.51.100.7", ""),
        ("192.0.2.1", "203.0.113.9", "", ""),
        ("::ffff:10.0.0.1", "203.0.113.9", "", "203.0.113.9"),
        ("fd00::1", "203.0.113.9", "", "203.0.113.9"),
        ("", "203.0.113.9", "", ""),
    ],
)
def test_where_a_request_comes_from(peer: str, x_forwarded_for: str, forwarded: str, client: str) -> None:
    proxies = TrustedProxies(("10.0.0.0/8", "fd00::/8"))
    assert proxies.find_client(peer, forwarded=forwarded, x_forwarded_for=x_forwarded_for) == client
