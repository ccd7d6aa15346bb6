"""Every listener against a corpus of pages, host names, cookies and tokens (`corpus/origins.toml`, `cookies.toml`,
`bad_tokens.toml`): the cross product, each case with its answer. A real daemon answers some thousand requests in seconds, so the
ordinary run makes all of them, with or without `TOWER_TESTS_CORPUS=all`."""

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import json
import time
import tomllib
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import StartDaemon

from switchtower.cli import reachability
from switchtower.web_api import app, ports, routes

CORPUS = Path(__file__).with_name("corpus")
SECRET = "a secret of at least thirty-two characters"
TIMEOUT = 60.0
NOTHING, TOKEN, COOKIE = 0, 1, 2
"""What a request brings, and the place of its answer in the corpus."""

ORIGINS = tomllib.loads((CORPUS / "origins.toml").read_text())
TOKENS = tomllib.loads((CORPUS / "bad_tokens.toml").read_text())["token"]
COOKIES = tomllib.loads((CORPUS / "cookies.toml").read_text())["case"]
WEBSOCKETS = {"ws_app": "/ws/app", "ws_minicodex": "/ws/minicodex", "ws_push": "/ws/push", "ws_pi": "/ws/pi"}


class ListenerTarget(NamedTuple):
    daemon: ManagedDaemon
    port: int
    pi_port: int

    @property
    def token(self) -> str:
        return self.daemon.token


@pytest.fixture(scope="module")
def target() -> Iterator[ListenerTarget]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JWT_SECRET", SECRET)
        daemon = ManagedDaemon(
            pi="127.0.0.1:0",
            origins="hub.example,https://app.example:8443,tauri://localhost",
            public_url="https://tower.example",
            new_hosts="local",
        )
        daemon.start()
    try:
        endpoints = json.loads((daemon.home / "run" / "endpoints.json").read_bytes())
        port, pi_port = (urlsplit(endpoints[name]).port or 0 for name in ("http", "pi"))
        yield ListenerTarget(daemon, port, pi_port)
    finally:
        daemon.discard()


# Asking


async def ask(
    port: int, method: str, path: str, headers: dict[str, str], body: bytes = b"", *, address: str = "127.0.0.1"
) -> int:
    """The status of a plain request, or of one to become a WebSocket. Of pi's port: what it is closed with, if it is."""
    whole = {"Host": f"{address}:{port}", "Content-Length": str(len(body)), "Connection": "close", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in whole.items())
    async with asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection(address, port)
        try:
            writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)
            status = int((await reader.readuntil(b"\r\n\r\n")).split()[1])
            if status == 101 and path.startswith("/?"):
                first = await reader.readexactly(2)
                is_close = first[0] & 0xF == 8
                return int.from_bytes((await reader.readexactly(first[1]))[:2]) if is_close else status
            return status
        finally:
            writer.transport.abort()


def make_upgrade_request(headers: dict[str, str]) -> dict[str, str]:
    key = base64.b64encode(b"sixteen bytes ok").decode()
    asked = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key}
    return {**asked, **headers}


def log_in(target: ListenerTarget) -> str:
    """A new login's cookie, `name=value`."""
    connection = HTTPConnection("127.0.0.1", target.port, timeout=TIMEOUT)
    own = f"http://127.0.0.1:{target.port}"
    connection.request("POST", "/auth/token", json.dumps({"token": target.token}), {"Origin": own})
    cookie = connection.getresponse().getheader("Set-Cookie") or ""
    connection.close()
    return cookie.split(";")[0]


# Pages


def list_pages() -> list[tuple[str, str | None]]:
    named = [(standing, origin) for standing, all_ in ORIGINS["pages"].items() for origin in all_]
    return [*named, ("none", None)]


LISTENERS = ("ws_app", "ws_minicodex", "ws_push", "ws_pi", "ws_host", "pi", "get", "post", "login", "metrics", "health")


async def attempt_connection(target: ListenerTarget, listener: str, origin: str | None, brings: int, number: int) -> int:
    port = target.pi_port if listener == "pi" else target.port
    other = target.port if listener == "pi" else target.pi_port
    headers = {} if origin is None else {"Origin": origin.replace("{port}", str(port)).replace("{other}", str(other))}
    if brings == COOKIE:
        headers["Cookie"] = log_in(target)
    token = target.token if brings == TOKEN else None
    match listener:
        case "pi":
            return await ask(port, "GET", f"/?token={token}" if token else "/?", make_upgrade_request(headers))
        case "ws_host":
            path = f"/ws/host?host_id=host_{number}_{brings}&host_token=0123456789"
            return await ask(port, "GET", path, make_upgrade_request(headers))
        case "get" | "metrics" | "health":
            path = {"get": "/runs", "metrics": "/metrics", "health": "/health"}[listener]
            return await ask(port, "GET", path, headers | ({"Authorization": f"Bearer {token}"} if token else {}))
        case "post":
            return await ask(port, "POST", "/auth/logout", headers | ({"Authorization": f"Bearer {token}"} if token else {}))
        case "login":
            password = json.dumps({"username": f"u{number}", "password": "x"}).encode()
            return await ask(port, "POST", "/auth/login", headers, password)
        case _:
            path = WEBSOCKETS[listener]
            return await ask(port, "GET", f"{path}?token={token}" if token else path, make_upgrade_request(headers))


@pytest.mark.parametrize("listener", LISTENERS)
async def test_each_page_gets_what_its_standing_allows(target: ListenerTarget, listener: str) -> None:
    got, expected = {}, {}
    for number, (standing, origin) in enumerate(list_pages()):
        if listener == "login" and number >= 4 and standing in ("own", "public", "configured", "none"):
            continue  # wrong passwords are counted by address, and five of them would be answered with 429
        for brings in (NOTHING, TOKEN, COOKIE) if listener != "login" else (NOTHING,):
            # Only the HTTP port has a page, and so a `public_url`.
            known = {"public": "foreign" if listener == "pi" else "own"}.get(standing, standing)
            expected[origin, brings] = ORIGINS["answers"][known][listener][brings]
            got[origin, brings] = await attempt_connection(target, listener, origin, brings, number)
    assert got == expected
    assert len(got) >= 60


# Host names


@pytest.mark.parametrize("listener", ["get", "ws_push", "pi"])
async def test_each_spelling_of_a_host_is_served_or_refused(target: ListenerTarget, listener: str) -> None:
    """At the pi port only the names of this machine and those of `origins`; there the uid counts only under the former."""
    got, expected = {}, {}
    for kind, names in ORIGINS["hosts"].items():
        for name in names:
            port = target.pi_port if listener == "pi" else target.port
            headers = {"Host": name.replace("{port}", str(port)), "Authorization": f"Bearer {target.token}"}
            served = {"get": 200, "ws_push": 101, "pi": 101}[listener]
            expected[name] = served if kind == "served" else 403
            path = {"get": "/runs", "ws_push": "/ws/push", "pi": "/?"}[listener]
            got[name] = await ask(port, "GET", path, headers if listener == "get" else make_upgrade_request(headers))
    assert got == expected
    assert len(got) >= 22


async def test_of_addresses_only_the_one_that_was_reached_is_served_and_a_page_needs_a_token(
    dedicated_daemon: StartDaemon,
) -> None:
    """A page whose name was made to lead here sends that name, and so does one of another port of this address."""
    daemon = dedicated_daemon(http="0.0.0.0:0", pi="0.0.0.0:0")
    own = reachability._find_own_address()
    endpoints = json.loads((daemon.home / "run" / "endpoints.json").read_bytes())
    port, pi_port = (urlsplit(endpoints[name]).port or 0 for name in ("http", "pi"))
    token = {"Authorization": f"Bearer {daemon.token}"}
    refused = ("rebound.example", f"{own}.evil.example", "203.0.113.99", str(int(ipaddress.IPv4Address(own))), "127.0.0.2")
    got, expected = {}, {}
    for host, status in ((own, 200), (f"{own}:{port}", 200), *((name, 403) for name in refused)):
        for page in (None, f"http://{host}"):
            if page is not None and host == own:
                continue  # a page of port 80
            headers = {**token, "Host": host, **({} if page is None else {"Origin": page})}
            expected["get", host, page] = status
            got["get", host, page] = await ask(port, "GET", "/runs", headers, address=own)
            expected["ws", host, page] = {200: 101}.get(status, status)
            got["ws", host, page] = await ask(port, "GET", "/ws/push", make_upgrade_request(headers), address=own)
    expected["by loopback"] = 403
    got["by loopback"] = await ask(port, "GET", "/runs", {**token, "Host": f"{own}:{port}"})
    for page, with_token, without in (
        (f"http://{own}:{port}", 101, 401),
        (f"http://{own}:{pi_port}", 403, 403),
        (f"http://{own}", 403, 403),
        ("http://rebound.example", 403, 403),
    ):
        for headers, status in ((token, with_token), ({}, without)):
            expected["page", page, status] = status
            got["page", page, status] = await ask(
                port, "GET", "/ws/push", make_upgrade_request({**headers, "Origin": page}), address=own
            )
    # pi's clients of this machine need no token, and only by loopback and one of its names.
    for address, host in ((own, f"{own}:{pi_port}"), (own, "localhost"), ("127.0.0.1", "rebound.example"), ("127.0.0.1", own)):
        expected["pi", address, host] = 1008
        got["pi", address, host] = await ask(pi_port, "GET", "/?", make_upgrade_request({"Host": host}), address=address)
    expected["pi"] = 101
    got["pi"] = await ask(pi_port, "GET", "/?x", make_upgrade_request({}))
    assert got == expected


# Cookies


@pytest.mark.parametrize("case", COOKIES, ids=lambda case: f"{case['path']} {case['headers']}")
async def test_a_cookie_counts_only_for_our_own_page(target: ListenerTarget, case: dict[str, Any]) -> None:
    cookie = log_in(target)
    token = cookie.partition("=")[2]

    def filled(text: str) -> str:
        return text.replace("{cookie}", cookie).replace("{token}", token).replace("{port}", str(target.port))

    headers = {"Cookie": cookie, **{name: filled(value) for name, value in case["headers"].items()}}
    method, path = ("POST", "/auth/logout") if case["path"] == "logout" else ("GET", "/runs")
    assert await ask(target.port, method, path, headers) == case["status"]
    still = await ask(target.port, "GET", "/auth/me", {"Cookie": cookie})
    assert still == (401 if case["status"] == 204 else 200), "whether the login has ended"


def test_there_are_as_many_cookies_and_pages_as_were_ever_tried() -> None:
    assert len(COOKIES) >= 25
    assert len(list_pages()) >= 35


# Tokens


def make_token(token: dict[str, Any], owner: str) -> str | None:
    if "literal" in token:
        filled = {"owner": owner, "owner_cut": owner[:-1], "owner_swapped": owner.swapcase(), "long": "x" * 10_000}
        return str(token["literal"]).format(**filled)
    if "header" not in token:
        return None
    now = int(time.time())
    claims = {"sub": "ada", "jti": "tok_1", "iat": now, "exp": now + 3_600, **token.get("claims", {})}
    claims = {name: value for name, value in claims.items() if name not in token.get("without", ())}
    signed = ".".join(_encode_part(json.dumps(part).encode()) for part in (token["header"], claims))
    key = {"right": SECRET.encode(), "other": b"other", "empty": b"", "none": None}[token["key"]]
    digest = {"HS384": hashlib.sha384, "HS512": hashlib.sha512}.get(token["header"]["alg"], hashlib.sha256)
    signature = "" if key is None else _encode_part(hmac.new(key, signed.encode(), digest).digest())
    return signed if token.get("strip") else f"{signed}.{signature}"


def _encode_part(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def list_endpoints() -> list[routes.EndpointRoute]:
    """Every one of the port that is there without further settings, as the app itself puts them together."""
    found: list[routes.EndpointRoute] = []
    there: Any = object()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routes, "make_router", lambda rows, *_, **__: found.extend(rows))
        extras = ports.OptionalEndpoints(monitor=there, decisions=there, sessions=there)
        app.build_public_app(there, there, version="1", explain=lambda _: None, find_run=lambda _: None, extras=extras)
    return found


def list_guarded() -> list[routes.EndpointRoute]:
    """Those that a token is needed for."""
    return [row for row in list_endpoints() if row.entry is routes.RouteAccess.USER]


async def test_no_bad_token_opens_an_endpoint(target: ListenerTarget) -> None:
    got: dict[tuple[str, str, str], int] = {}
    for row in list_guarded():
        path = row.path.replace("{", "").replace("}", "")
        for token in TOKENS:
            bad = make_token(token, target.token)
            headers = {} if bad is None else {"Authorization": f"Bearer {bad}"}
            got[row.method, row.path, token["name"]] = await ask(target.port, row.method, path, headers, b"{}")
        for carrier, headers, where in (
            ("in the query", {}, f"{path}?token={quote(target.token)}"),
            ("as Basic", {"Authorization": f"Basic {target.token}"}, path),
            ("without a scheme", {"Authorization": target.token}, path),
            ("in another header", {"X-Authorization": f"Bearer {target.token}"}, path),
            ("in a cookie of another name", {"Cookie": f"token={target.token}"}, path),
        ):
            got[row.method, row.path, f"the owner's {carrier}"] = await ask(target.port, row.method, where, headers, b"{}")
    assert {case: status for case, status in got.items() if status != 401} == {}
    assert len(got) >= 578


async def test_the_owners_token_opens_what_the_others_do_not(target: ListenerTarget) -> None:
    """So that a 401 above is not the answer to everything."""
    for row in list_guarded():
        path = row.path.replace("{", "").replace("}", "")
        if (row.method, row.path) in (("POST", "/users"), ("PUT", "/users/{name}/password")):
            continue
        status = await ask(target.port, row.method, path, {"Authorization": f"Bearer {target.token}"}, b"{}")
        assert status != 401, (row.method, row.path)


async def test_no_bad_token_opens_a_websocket(target: ListenerTarget) -> None:
    """Hosts apart: the first token that a host comes with is the one that it is known by."""
    got: dict[tuple[str, str, str], int] = {}
    for path in WEBSOCKETS.values():
        for token in TOKENS:
            bad = make_token(token, target.token)
            name = token["name"]
            carriers = {"query": ("" if bad is None else f"?token={quote(bad)}", {})}
            if bad:
                carriers["header"] = ("", {"Authorization": f"Bearer {bad}"})
                carriers["cookie"] = ("", {"Cookie": f"tower_{target.port}={bad}", "Origin": f"http://127.0.0.1:{target.port}"})
            for carrier, (query, headers) in carriers.items():
                got[path, name, carrier] = await ask(target.port, "GET", path + query, make_upgrade_request(headers))
    for token in TOKENS:
        if bad := make_token(token, target.token):
            got["pi", token["name"], "query"] = await ask(
                target.pi_port, "GET", f"/?token={quote(bad)}", make_upgrade_request({})
            )
    expected = {case: 1008 if case[0] == "pi" else 401 for case in got}
    assert {case: status for case, status in got.items() if status != expected[case]} == {}
    assert len(got) >= 196


async def test_a_host_that_is_known_needs_its_own_token(target: ListenerTarget) -> None:
    known = "/ws/host?host_id=host_known&host_token="
    assert await ask(target.port, "GET", f"{known}0123456789", make_upgrade_request({})) == 101
    for token in TOKENS:
        bad = make_token(token, target.token) or ""
        assert await ask(target.port, "GET", known + quote(bad), make_upgrade_request({})) == 401, token["name"]
