"""TLS of the mesh: one connection as bytes in and bytes out, without I/O, and the cluster's single key pair. A process that
holds the key is a node of the cluster, and no other is. The key is stored by its creator, not here.

asyncio's own TLS does not report peers that connect and do not finish the handshake; here they are seen and counted. A read
takes one record's length at a time, and reads again only if more is available.

Names and addresses mean nothing between nodes, so none is checked; the certificate must be this very one, on both sides.
"""

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

_RECORD_BYTES = 16_384
"""RFC 8446, 5.1: the longest plain text of one record."""


class TlsHandshakeError(Exception):
    """The other side does not hold the key, or does not speak TLS."""


class TlsChannel:
    def __init__(self, key: "MeshKey", context: ssl.SSLContext, *, server_side: bool) -> None:
        self._key = key
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self.trusted = False
        """The handshake is complete, and the other side has the key."""

    def take_outgoing(self) -> bytes:
        """Returns the bytes that must be sent to the other side."""
        return self._outgoing.read()

    def start(self) -> None:
        """Raises `TlsHandshakeError`."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as problem:
            raise TlsHandshakeError(_describe_ssl_error(problem)) from problem
        if not self._key.is_own_certificate(self._object.getpeercert(binary_form=True)):
            raise TlsHandshakeError("it shows another certificate")
        self.trusted = True

    def decrypt(self, data: bytes) -> bytes | None:
        """Returns the decrypted data; None when the other side has closed the connection. Raises `TlsHandshakeError`."""
        self._incoming.write(data)
        if not self.trusted:
            self.start()
            if not self.trusted:
                return b""
        parts: list[bytes] = []
        try:
            while self._incoming.pending or self._object.pending():
                part = self._object.read(_RECORD_BYTES)
                if not part:
                    return b"".join(parts) or None
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as problem:
            raise TlsHandshakeError(_describe_ssl_error(problem)) from problem
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def encrypt(self, plain: bytes) -> bytes:
        """Raises `TlsHandshakeError`."""
        try:
            written = self._object.write(plain)
            if written < len(plain):
                rest = memoryview(plain)
                while written < len(plain):
                    written += self._object.write(rest[written:])
        except ssl.SSLError as problem:
            raise TlsHandshakeError(_describe_ssl_error(problem)) from problem
        return self._outgoing.read()

    def close_notify(self) -> bytes:
        with contextlib.suppress(ssl.SSLError):  # does not wait for the other side's close_notify
            self._object.unwrap()
        return self._outgoing.read()


def _describe_ssl_error(problem: ssl.SSLError) -> str:
    """Describes the error without the file and line of OpenSSL's source."""
    return getattr(problem, "verify_message", "") or problem.reason or "no TLS"


_CANNOT_MAKE = "the key between nodes needs `cryptography`, hint: install `switchtower[postgres]`"
_NOT_A_KEY = "the key between nodes cannot be read, hint: it must be the same unchanged pair on every node of the tower"


class MeshKeyError(Exception):
    """There is no usable key between nodes."""


class MeshKey(Struct, frozen=True):
    """A private key and its self-signed certificate, as PEM."""

    certificate: str
    private_key: str

    def __repr__(self) -> str:
        """Leaves out the private key: this may be logged."""
        return "Key(<redacted>)"

    def create_server_context(self) -> ssl.SSLContext:
        context = self._create_context(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = 0  # connections are long-lived; none is resumed
        return context

    def create_client_context(self) -> ssl.SSLContext:
        return self._create_context(ssl.PROTOCOL_TLS_CLIENT)

    def is_own_certificate(self, certificate: bytes | None) -> bool:
        """Returns whether the other side has shown this certificate, and not another that this key has signed. `certificate`
        is DER.
        """
        return certificate is not None and certificate == ssl.PEM_cert_to_DER_cert(self.certificate)

    def _create_context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(cadata=self.certificate)
            with _open_key_file(f"{self.private_key}\n{self.certificate}") as path:
                context.load_cert_chain(path, password=_refuse_password)
        except (ssl.SSLError, ValueError) as problem:
            raise MeshKeyError(_NOT_A_KEY) from problem
        return context


def generate_key() -> MeshKey:
    """Generates a new pair. Takes some milliseconds and a heavy import."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError as problem:
        raise MeshKeyError(_CANNOT_MAKE) from problem
    from datetime import UTC, datetime

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "switchtower")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of nodes differ, and a cluster does not stop on a date: the pair is valid until another is made.
        .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(9999, 12, 31, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )
    return MeshKey(
        certificate=certificate.public_bytes(serialization.Encoding.PEM).decode(),
        private_key=private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )


def _refuse_password() -> str:
    """Otherwise OpenSSL would ask at the terminal for the password of an encrypted key."""
    raise ValueError("the key has a password")


@contextlib.contextmanager
def _open_key_file(text: str) -> Iterator[str]:
    """`ssl` reads keys from files only. The file is in memory where the system supports that, otherwise a private file that is
    removed at once.
    """
    path: str | None = None
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("tower-key", os.MFD_CLOEXEC)
    else:
        descriptor, path = tempfile.mkstemp(prefix="tower-key-")  # with mode 0600
    try:
        with open(descriptor, "w", encoding="ascii", closefd=False) as file:
            file.write(text)
        yield path or f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
        if path is not None:
            Path(path).unlink()
