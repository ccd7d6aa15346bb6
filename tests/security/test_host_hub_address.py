"""How a host reaches its hub: not without TLS to another machine unless told so, and with its token in a header."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conformance.relay.fake_hub import FakeHub
from tests.relay.stage import TIMEOUT, RelayNetwork, wait_until
from tests.relay.stage import relay_network as relay_network
from tests.security.certificates import Certificate
from tests.warm import processes
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.sync import server

from switchtower.protocols.relay import settings as link_settings


def run_tower(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TOWER_", "PUSHD_", "SERVER_BASE"))}
    return processes.run(
        [sys.executable, "-m", "switchtower", *arguments],
        env={**inherited, "TOWER_HOME": str(home)},
        input="",
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://hub.example", True),
        ("ws://hub.example:8787", True),
        ("http://192.168.1.7:8787", True),
        ("http://[fe80::1]:8787", True),
        ("http://127.0.0.1.example.org", True),
        ("http://localhost.example.org", True),
        ("https://hub.example", False),
        ("wss://10.0.0.1", False),
        ("http://127.0.0.1:8787", False),
        ("http://127.8.8.8", False),
        ("http://[::1]:1", False),
        ("http://localhost:1", False),
    ],
)
def test_what_leads_to_another_machine_without_tls(url: str, expected: bool) -> None:
    assert link_settings.is_unencrypted(url) is expected


@pytest.mark.parametrize("command", [("host",), ("serve", "--http", "off", "--pi", "off")])
def test_a_hub_without_tls_on_another_machine_is_refused_with_a_remedy(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = run_tower(tmp_path / "home", *command, "--hub", "http://192.0.2.1:8787")
    assert done.returncode != 0
    assert "has no TLS" in done.stderr
    assert "--insecure-hub" in done.stderr
    assert not (tmp_path / "home" / "run" / "endpoints.json").exists()


async def test_it_is_dialled_with_the_flag(relay_network: RelayNetwork) -> None:
    """Nobody is at that address: it is for documentation."""
    host = await relay_network.start_daemon("brave", hub="http://192.0.2.1:8787", insecure_hub=True)
    await wait_until(lambda: "http://192.0.2.1:8787" in host.run_tower("status").stdout)


class HubRequestRecorder:
    """A hub that lets nobody in, and keeps how it was asked."""

    def __init__(self, *, status: int, challenge: str | None) -> None:
        self.asked: list[tuple[str, str | None]] = []

        def answer(connection: server.ServerConnection, request: Request) -> Response:
            self.asked.append((request.path, request.headers.get("Authorization")))
            headers = Headers() if challenge is None else Headers({"WWW-Authenticate": challenge})
            return Response(status, "No", headers, b"")

        self._server = server.serve(lambda _: None, "127.0.0.1", 0, process_request=answer)
        self._serving = asyncio.get_running_loop().run_in_executor(None, self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.socket.getsockname()[1]}"

    async def close(self) -> None:
        await asyncio.to_thread(self._server.shutdown)
        await self._serving


async def test_our_hub_is_never_sent_the_token_in_an_address(relay_network: RelayNetwork) -> None:
    """What says that it reads the header, as our hub does, is not asked in another way, also when it refuses."""
    hub = HubRequestRecorder(status=401, challenge="Bearer")
    try:
        host = await relay_network.start_daemon("polite", hub=hub.url)
        await wait_until(lambda: "the hub refuses this host" in host.log())
        token = (host.home / "data" / "host.json").read_text().partition('"host_token":"')[2].partition('"')[0]
        assert hub.asked
        assert {(token in path, sent) for path, sent in hub.asked} == {(False, f"Bearer {token}")}
    finally:
        await hub.close()


async def test_a_hub_that_knows_the_document_alone_gets_it_there_and_the_log_says_so(relay_network: RelayNetwork) -> None:
    hub = FakeHub()
    try:
        host = await relay_network.start_daemon("old", hub=hub.url)
        assert await asyncio.to_thread(lambda: hub.line)
        assert ["host_token" in path for path in hub.paths] == [False, True]
        await wait_until(lambda: "reads this host's token in the address alone" in host.log())
    finally:
        await asyncio.to_thread(hub.close)


async def test_a_hub_whose_certificate_no_authority_vouches_for_is_refused_with_a_remedy(
    relay_network: RelayNetwork, tmp_path: Path
) -> None:
    certificate = Certificate(tmp_path)
    hub = await relay_network.open_hub(tls_cert=certificate.cert, tls_key=certificate.key)
    assert hub.url.startswith("https://127.0.0.1:")
    host = await relay_network.start_host("wary")
    expected = (
        "the hub cannot be reached: its certificate is refused: self-signed certificate; hint: set `SSL_CERT_FILE` to a PEM file "
        "with the certificate of its authority, and start the daemon again"
    )
    await wait_until(lambda: expected in host.log())
    assert expected in host.run_tower("status").stdout
    assert "host_wary" not in hub.run_tower("hosts").stdout, "the token was not sent"


async def test_a_hub_whose_authority_is_named_is_dialled_by_its_own_name_alone(
    relay_network: RelayNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = Certificate(tmp_path)
    hub = await relay_network.open_hub(http="0.0.0.0:0", tls_cert=certificate.cert, tls_key=certificate.key)
    port = hub.url.rpartition(":")[2]
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.cert))
    await relay_network.start_host("near")
    await wait_until(lambda: "online" in hub.run_tower("hosts").stdout.partition("near")[2].partition("\n")[0])
    lost = await relay_network.start_host("lost", url=f"https://127.0.0.2:{port}")
    await wait_until(lambda: "hint: dial a name or an address that the certificate has" in lost.log())
    assert "host_lost" not in hub.run_tower("hosts").stdout


async def test_a_real_hub_takes_the_header(relay_network: RelayNetwork) -> None:
    await relay_network.open_hub()
    host = await relay_network.start_host("near")
    await relay_network.wait_online(host.host_id)
    assert "in the address alone" not in host.log()
