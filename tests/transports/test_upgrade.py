import pytest

from switchtower.transports import upgrade
from switchtower.transports.origins import AllowedOrigins

HEAD = (
    "GET {target} HTTP/1.1\r\nhost: 127.0.0.1:8787\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    "sec-websocket-version: 13\r\nsec-websocket-key: c2l4dGVlbiBieXRlcyBvaw==\r\n{more}\r\n"
)


def read(target: str = "/ws", **headers: str) -> upgrade.UpgradeRequest:
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return upgrade.parse_upgrade(HEAD.format(target=target, more=more).encode("latin-1"), "127.0.0.1:5")


def get_refusal(hosts: tuple[str, ...] = (), sites: tuple[str, ...] = (), **headers: str) -> upgrade.UpgradeRefusal | None:
    request = read()
    changed = {name.replace("_", "-"): value for name, value in headers.items()}
    kept = {name: value for name, value in (request.headers | changed).items() if value}
    return upgrade.find_refusal(upgrade.UpgradeRequest(request.path, {}, kept, request.origin), hosts, AllowedOrigins(sites))


def test_path_and_query_are_decoded() -> None:
    request = read("/ws/a%20b?x=1&x=2&empty=&y=a+%26b")
    assert request.path == "/ws/a b"
    assert request.query == {"x": "2", "empty": "", "y": "a &b"}


@pytest.mark.parametrize(
    ("target", "authorization", "token"),
    [
        ("/ws", None, None),
        ("/ws?token=abc", None, "abc"),
        ("/ws?token=", None, None),
        ("/ws", "Bearer abc", "abc"),
        ("/ws", "bearer  abc ", "abc"),
        ("/ws", "Basic abc", None),
        ("/ws?token=in-query", "Bearer in-header", "in-header"),
    ],
)
def test_the_token_is_taken_from_the_query_or_the_header_and_left_nowhere_else(
    target: str, authorization: str | None, token: str | None
) -> None:
    request = read(target, **({"authorization": authorization} if authorization else {}))
    assert request.origin.token == token
    assert "token" not in request.query
    assert "authorization" not in request.headers
    assert token is None or token not in repr(request)


def test_headers_that_come_twice_are_joined() -> None:
    assert read(x_note="a", X_Note="b").headers["x-note"] == "a, b"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8787", "localhost.:1", "127.0.0.1", "[::1]:8787", "tower.example:443"])
def test_loopback_and_the_configured_hosts_are_served(host: str) -> None:
    assert get_refusal(("tower.example",), host=host) is None


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil@localhost",
        "localhost, evil.example",
        "[::1",
        "::1",
        "10.0.0.1",
    ],
)
def test_any_other_host_is_refused(host: str) -> None:
    answer = get_refusal(("tower.example",), host=host)
    assert answer is not None
    assert answer.status == 403


@pytest.mark.parametrize(
    "origin",
    [
        "http://127.0.0.1:8787",
        "http://localhost:5173",
        "https://[::1]",
        "http://TOWER.example:8787",
        "https://tower.example",
        "http://app.example:9",
    ],
)
def test_pages_from_here_and_configured_ones_may_connect(origin: str) -> None:
    sites = ("tower.example", "http://app.example:9")
    assert get_refusal(("tower.example",), sites, host="tower.example:8787", origin=origin) is None


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "https://evil.example",
        "http://localhost.evil.example",
        "http://localhost@evil.example",
        "http://other.tower.example",
        "http://tower.example:9",
        "https://tower.example:8787",
        "https://app.example:9",
        "http://app.example",
        "tauri://localhost",
        "app://localhost",
        "chrome-extension://localhost",
        "evil",
        "://",
        "file://",
    ],
)
def test_pages_from_elsewhere_may_not(origin: str) -> None:
    answer = get_refusal(("tower.example", "other.tower.example"), ("http://app.example:9",), host="tower.example", origin=origin)
    assert answer is not None
    assert answer.status == 403


@pytest.mark.parametrize(("version", "status"), [("", 426), ("8", 426)])
def test_another_version_is_told_which_one_is_spoken(version: str, status: int) -> None:
    answer = get_refusal(sec_websocket_version=version)
    assert answer is not None
    assert answer.status == status
    assert b"\r\nSec-WebSocket-Version: 13\r\n" in answer.encode()


@pytest.mark.parametrize("key", ["", "short", "c2l4dGVlbiBieXRlcyBva2F5", "§"])
def test_a_bad_key_is_refused(key: str) -> None:
    answer = get_refusal(sec_websocket_key=key)
    assert answer is not None
    assert answer.status == 400


def test_a_refusal_is_a_whole_http_answer() -> None:
    assert upgrade.UpgradeRefusal(401, "no").encode() == (
        b"HTTP/1.1 401 Unauthorized\r\nContent-Type: text/plain; charset=utf-8\r\nWWW-Authenticate: Bearer\r\n"
        b"Content-Length: 3\r\nConnection: close\r\n\r\nno\n"
    )


def test_where_any_name_will_do_a_page_must_still_come_from_where_it_is_shown() -> None:
    assert get_refusal(("*",), host="192.168.0.7:3141") is None
    assert get_refusal(("*",), host="tower.example", origin="http://tower.example") is None
    elsewhere = get_refusal(("*",), host="tower.example", origin="http://evil.example")
    assert elsewhere is not None
    assert elsewhere.status == 403
    assert get_refusal(("*",), host="not a name") is not None
