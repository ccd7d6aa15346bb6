"""TLS at the HTTP port itself: page, login and every WebSocket; and what is said where other machines are served without it."""

import asyncio
import http.client
import json
import os
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from tests.conftest import StartDaemon
from tests.security.certificates import Certificate

from switchtower import config
from switchtower.cli import reachability
from switchtower.daemon import listeners
from switchtower.settings.sources import ConfigError


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return Certificate(tmp_path)


@pytest.fixture
def tls_daemon(dedicated_daemon: StartDaemon, certificate: Certificate) -> Any:
    return dedicated_daemon(http="127.0.0.1:0", tls_cert=str(certificate.cert), tls_key=str(certificate.key))


def get_port(daemon: Any) -> int:
    return int(daemon.http.rpartition(":")[2])


def ask(daemon: Any, certificate: Certificate, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPSConnection("127.0.0.1", get_port(daemon), context=certificate.trusting, timeout=60)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def test_the_endpoints_have_https(tls_daemon: Any) -> None:
    assert tls_daemon.http.startswith("https://127.0.0.1:")


def test_the_page_and_the_health_are_served_over_tls(tls_daemon: Any, certificate: Certificate) -> None:
    assert ask(tls_daemon, certificate, "/health").status == 200


def test_plain_http_gets_no_answer(tls_daemon: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", get_port(tls_daemon), timeout=60)
    connection.request("GET", "/health")
    with pytest.raises((http.client.HTTPException, OSError)):
        connection.getresponse()


async def open_websocket_tls(
    daemon: Any, certificate: Certificate, path: str, **headers: str
) -> tuple[str, asyncio.StreamReader, Any]:
    port = get_port(daemon)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=certificate.trusting)
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    async with asyncio.timeout(60):
        status = (await reader.readline()).decode().split()[1]
    return status, reader, writer


@pytest.mark.parametrize("path", ["/ws/push", "/ws/pi", "/ws/app", "/ws/minicodex"])
async def test_every_websocket_is_served_over_tls(tls_daemon: Any, certificate: Certificate, path: str) -> None:
    status, _, writer = await open_websocket_tls(tls_daemon, certificate, f"{path}?token={tls_daemon.token}")
    writer.close()
    assert status == "101"


async def test_a_push_client_is_answered_over_tls(tls_daemon: Any, certificate: Certificate) -> None:
    status, reader, writer = await open_websocket_tls(tls_daemon, certificate, f"/ws/push?token={tls_daemon.token}")
    assert status == "101"
    hello = json.dumps(
        {
            "v": "push.runtime.v1",
            "kind": "request",
            "requestId": "req_1",
            "type": "hello",
            "payload": {"clientName": "t", "clientVersion": "1", "capabilities": []},
        }
    ).encode()
    writer.write(b"\x81" + bytes([0x80 | 126]) + len(hello).to_bytes(2) + bytes(4) + hello)
    async with asyncio.timeout(60):
        answer = await reader.readuntil(b'"runtimeName"')
    writer.close()
    assert b'"requestId":"req_1"' in answer


async def test_our_page_connects_over_tls_and_a_foreign_one_does_not(tls_daemon: Any, certificate: Certificate) -> None:
    # Without TLS, a page of the same address may be anyone's on the way. At loopback it is one that may connect with a token.
    pages = {tls_daemon.http: "101", "https://evil.example": "403", "http://evil.example": "403"}
    for page, expected in pages.items():
        status, _, writer = await open_websocket_tls(tls_daemon, certificate, f"/ws/app?token={tls_daemon.token}", Origin=page)
        writer.close()
        assert status == expected


async def test_a_page_of_the_same_address_without_tls_is_foreign(dedicated_daemon: StartDaemon, certificate: Certificate) -> None:
    daemon = dedicated_daemon(http="0.0.0.0:0", tls_cert=str(certificate.cert), tls_key=str(certificate.key))
    own = f"{reachability._find_own_address()}:{get_port(daemon)}"
    untrusting = ssl.create_default_context()
    untrusting.check_hostname, untrusting.verify_mode = False, ssl.VerifyMode.CERT_NONE
    got = {}
    for page in (f"https://{own}", f"http://{own}"):
        connection = http.client.HTTPSConnection(own, context=untrusting, timeout=60)
        connection.request("GET", "/runs", headers={"Origin": page, "Authorization": f"Bearer {daemon.token}"})
        got[page] = connection.getresponse().status
        connection.close()
    assert got == {f"https://{own}": 200, f"http://{own}": 403}


def run_tower(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOWER_")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "switchtower", *arguments],
        env={**inherited, "TOWER_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def serve_home(home: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return run_tower(home, "serve", "--http", "127.0.0.1:0", "--pi", "off", *flags)


def test_a_certificate_without_its_key_is_one_line_and_a_remedy(tmp_path: Path, certificate: Certificate) -> None:
    ended = serve_home(tmp_path / "h", "--tls-cert", str(certificate.cert))
    assert ended.returncode == 1
    assert ended.stderr == "tower: `tls_key` from the settings: is missing beside `tls_cert`; hint: set both, or neither\n"


def test_a_certificate_or_key_that_cannot_be_used_is_one_line_and_a_remedy(tmp_path: Path, certificate: Certificate) -> None:
    (tmp_path / "other").mkdir()
    other = Certificate(tmp_path / "other").key
    cert, key, missing, empty, locked = (
        certificate.cert,
        certificate.key,
        *(tmp_path / name for name in ("no", "text", "locked")),
    )
    empty.write_text("no PEM\n")
    locked.write_bytes(
        serialization.load_pem_private_key(key.read_bytes(), None).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
        )
    )
    name_cert = "hint: name the PEM file of the certificate, with its chain"
    name_key = "hint: name the PEM file of the certificate's private key"
    readable = "and let the daemon's user read it"
    without = "hint: write a copy without it, `openssl pkey -in KEY -out NEW`, that only you can read"
    expected = {
        (cert, other): f"`tls_key` from `{other}`: does not belong to the certificate `{cert}`; "
        "hint: name the key that the certificate was made with",
        (missing, key): f"`tls_cert` from `{missing}`: cannot be read: No such file or directory; {name_cert}, {readable}",
        (cert, tmp_path): f"`tls_key` from `{tmp_path}`: cannot be read: Is a directory; {name_key}, {readable}",
        (empty, key): f"`tls_cert` from `{empty}`: has no certificate in PEM form; {name_cert}",
        (cert, empty): f"`tls_key` from `{empty}`: has no private key in PEM form; {name_key}",
        (cert, locked): f"`tls_key` from `{locked}`: the key has a passphrase; {without}",
    }
    got = {}
    for files in expected:
        settings = config.load({"tls_cert": str(files[0]), "tls_key": str(files[1])}, {"HOME": "/nowhere"})
        with pytest.raises(ConfigError) as problem:
            listeners.load_certificate(settings)
        got[files] = str(problem.value)
    assert got == expected
    ended = serve_home(tmp_path / "h", "--tls-cert", str(cert), "--tls-key", str(other))
    assert (ended.returncode, ended.stderr) == (1, f"tower: {expected[cert, other]}\n")


def test_a_port_for_other_machines_without_tls_is_warned_of() -> None:
    def reached(bound: str, scheme: str = "http", *, pi: str = "127.0.0.1:1", public_url: str | None = None) -> Any:
        ws = scheme.replace("http", "ws")
        listening = {"http": bound, "pi": pi}
        http, pi = f"{scheme}://127.0.0.1:8787", f"{ws}://127.0.0.1:3141"
        return reachability.describe_reachability(http=http, pi=pi, listening=listening, public_url=public_url)

    for alone in ("127.0.0.1:8787", "127.8.8.8:8787", "localhost:8787", "[::1]:8787"):
        assert (*reached(alone), reached(alone).warning) == (None, None, None)
    named = reached("203.0.113.7:8787")
    assert named.http == "http://203.0.113.7:8787"
    assert named.warning.startswith("other machines reach http://203.0.113.7:8787 without TLS: ")
    assert reached("[2001:db8::7]:8787").http == "http://[2001:db8::7]:8787"
    everywhere = reached("0.0.0.0:8787")
    assert "127.0.0.1" not in everywhere.http
    assert everywhere.http.endswith(":8787")
    assert everywhere.warning is not None
    secure = reached("0.0.0.0:8787", "https", pi="203.0.113.7:3141")
    assert secure.http.startswith("https://")
    assert (secure.pi, secure.warning) == ("wss://203.0.113.7:3141", None)
    behind = reached("0.0.0.0:8787", public_url="https://tower.example")
    assert (behind.http, behind.warning) == ("https://tower.example", None)
    of_pi = reached("127.0.0.1:8787", pi="203.0.113.7:3141")
    assert (of_pi.http, of_pi.pi) == (None, "ws://203.0.113.7:3141")
    assert of_pi.warning.startswith("other machines reach ws://203.0.113.7:3141 without TLS: ")


@pytest.mark.parametrize("encrypted", [False, True])
def test_each_command_names_the_address_for_other_machines(
    dedicated_daemon: StartDaemon, certificate: Certificate, encrypted: bool
) -> None:
    """Also a command that was not started with the daemon's settings."""
    tls = {"tls_cert": str(certificate.cert), "tls_key": str(certificate.key)} if encrypted else {}
    daemon = dedicated_daemon(http="0.0.0.0:0", **tls)
    address = f"{'https' if encrypted else 'http'}://{reachability._find_own_address()}:{get_port(daemon)}"
    warning = f"other machines reach {address} without TLS: tokens, and what you type and see, can be read on the way"
    url = run_tower(daemon.home, "token", "url")
    assert url.stdout.startswith(f"{address}/?token=")
    assert url.stderr == ("" if encrypted else f"warning: {warning}\nhint: {reachability.TLS_REMEDY}\n")
    checks = {check["name"]: check for check in json.loads(run_tower(daemon.home, "doctor", "--json").stdout)["checks"]}
    found = checks["other machines"]
    expected = ("ok", address) if encrypted else ("warn", warning)
    assert (found["status"], found["detail"]) == expected


def test_the_address_for_other_machines_is_served(dedicated_daemon: StartDaemon) -> None:
    """The printed address is one that the daemon answers at, though no setting names it."""
    daemon = dedicated_daemon(http="0.0.0.0:0")
    host = reachability._find_own_address()
    connection = http.client.HTTPConnection(host, get_port(daemon), timeout=60)
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200
    connection = http.client.HTTPConnection(host, get_port(daemon), timeout=60)
    connection.request("GET", "/health", headers={"Host": "rebound.example"})
    assert connection.getresponse().status == 403
