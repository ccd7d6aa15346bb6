"""Who has not the key gets nothing, whatever else it has."""

import os
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.contracts import mesh
from tests.transports.mesh import strangers
from tests.transports.mesh.conftest import MakeMesh, make_peer

from switchtower.cluster.mesh import tls
from switchtower.cluster.mesh.tls import MeshKey

TLS_ALERT = 21


async def is_only_tls(stranger: strangers.RawMeshPeer) -> bool:
    """Whether it was hung up on without a word of ours: at most with alerts of TLS in plain text."""
    said = await stranger.read_to_end()
    return b"node_1" not in said and (not said or said[0] == TLS_ALERT)


async def test_plain_tcp_gets_nothing(make_mesh: MakeMesh) -> None:
    mesh = await make_mesh("node_1")
    async with strangers.dial(mesh.address, None) as stranger:
        stranger.send_hello(make_peer("node_2"))
        assert await is_only_tls(stranger)


async def test_http_gets_nothing(make_mesh: MakeMesh) -> None:
    mesh = await make_mesh("node_1")
    async with strangers.dial(mesh.address, None) as stranger:
        stranger.writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + os.urandom(100_000))
        assert await is_only_tls(stranger)


async def test_who_connects_and_says_nothing_is_hung_up_on(make_mesh: MakeMesh) -> None:
    mesh = await make_mesh("node_1", silence=0.2)
    async with strangers.dial(mesh.address, None) as stranger:
        assert await stranger.read_to_end() == b""


async def test_who_holds_the_key_and_does_not_say_who_it_is_is_hung_up_on(make_mesh: MakeMesh, key: MeshKey) -> None:
    mesh = await make_mesh("node_1", silence=0.2)
    async with strangers.dial(mesh.address, key.create_client_context()) as stranger:
        assert b"node_1" in await stranger.read_to_end()


async def test_tls_without_a_certificate_gets_nothing(make_mesh: MakeMesh) -> None:
    mesh = await make_mesh("node_1")
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    async with strangers.dial(mesh.address, anybody) as stranger:
        stranger.send_hello(make_peer("node_2"))
        assert await stranger.read_to_end() == b""


async def test_another_self_signed_certificate_gets_nothing(make_mesh: MakeMesh) -> None:
    mesh = await make_mesh("node_1")
    forged = tls.generate_key().create_client_context()
    forged.verify_mode = ssl.CERT_NONE
    async with strangers.dial(mesh.address, forged) as stranger:
        stranger.send_hello(make_peer("node_2"))
        assert await stranger.read_to_end() == b""


async def test_a_node_does_not_speak_to_who_has_another_key(
    make_mesh: MakeMesh, key: MeshKey, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither side of it, and it is dialled again: the address may become the right one."""
    mine = await make_mesh("node_1")
    forged = tls.generate_key()
    forged_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_text(forged.private_key + forged.certificate)
        forged_server.load_cert_chain(file.name)

    class Lenient(MeshKey, frozen=True):
        def server_context(self) -> ssl.SSLContext:
            return forged_server

    async with strangers.open_listener(Lenient(forged.certificate, forged.private_key)) as (address, came):
        mine.update_nodes([("node_2", address)])
        theirs = await make_mesh("node_2", port=0)
        while "self-signed certificate" not in caplog.text:
            await mesh.request(mine, "node_2", "echo")
        assert came.empty(), "the handshake did not even succeed"
        assert mine.peers == {}
        mine.update_nodes([("node_2", theirs.address)])
        await mesh.wait_until_met(mine, "node_2")


async def test_an_older_tls_gets_nothing(make_mesh: MakeMesh, key: MeshKey) -> None:
    mesh = await make_mesh("node_1")
    old = key.create_client_context()
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        async with strangers.dial(mesh.address, old):
            pass


async def test_a_certificate_that_the_key_has_signed_is_not_the_key(key: MeshKey) -> None:
    assert key.is_own_certificate(ssl.PEM_cert_to_DER_cert(key.certificate))
    assert not key.is_own_certificate(ssl.PEM_cert_to_DER_cert(tls.generate_key().certificate))
    assert not key.is_own_certificate(None)


def test_a_key_is_not_in_its_repr_and_keys_differ(key: MeshKey) -> None:
    assert "PRIVATE" in key.private_key
    assert "PRIVATE" not in repr(key) + str(key) + f"{key!r:}"
    assert key != tls.generate_key()


def test_the_private_key_is_in_no_file_afterwards(key: MeshKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = len(list(Path("/proc/self/fd").iterdir()))
    key.create_client_context()
    monkeypatch.delattr(os, "memfd_create")
    key.create_server_context()
    assert list(tmp_path.iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("certificate", "private_key"),
    [("", ""), ("rubbish", "rubbish"), ("\0", "\0"), ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "x")],
)
def test_what_is_no_key_says_so_without_showing_it(certificate: str, private_key: str) -> None:
    with pytest.raises(tls.MeshKeyError, match="hint:"):
        MeshKey(certificate, private_key).create_server_context()


def test_the_halves_of_two_keys_are_no_key(key: MeshKey) -> None:
    with pytest.raises(tls.MeshKeyError) as problem:
        MeshKey(key.certificate, tls.generate_key().private_key).create_client_context()
    assert "PRIVATE" not in str(problem.value)


def test_importing_the_mesh_does_not_load_cryptography() -> None:
    program = "import sys, switchtower.cluster.mesh.mesh; print('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
