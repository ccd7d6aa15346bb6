"""The one key pair of a tower: who holds it is a node of it, and nobody else is. It is kept by whoever made it, not here.

Names and addresses say nothing between nodes, so none is checked; the certificate must be this very one, on both sides.
"""

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

_CANNOT_MAKE = "the key between nodes needs `cryptography`, hint: install `switchtower[postgres]`"
_NOT_A_KEY = "the key between nodes cannot be read, hint: it must be the same unchanged pair on every node of the tower"


class MeshKeyError(Exception):
    """There is no usable key between nodes."""


class MeshKey(Struct, frozen=True):
    """A private key and its self-signed certificate, as PEM."""

    certificate: str
    private_key: str

    def __repr__(self) -> str:
        """Without the private key: this may come into a log."""
        return "Key(<redacted>)"

    def create_server_context(self) -> ssl.SSLContext:
        context = self._create_context(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = 0  # connections last; nobody resumes
        return context

    def create_client_context(self) -> ssl.SSLContext:
        return self._create_context(ssl.PROTOCOL_TLS_CLIENT)

    def is_own_certificate(self, certificate: bytes | None) -> bool:
        """Whether the other side has shown this certificate, and not another that this key has signed. `certificate` as DER."""
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
    """A new pair. Takes some milliseconds and a heavy import."""
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
        # Clocks of nodes differ, and a tower does not stop on a date: the pair is good until another is made.
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
    """Otherwise OpenSSL would ask at the terminal for that of a key that has one."""
    raise ValueError("the key has a password")


@contextlib.contextmanager
def _open_key_file(text: str) -> Iterator[str]:
    """`ssl` reads keys from files only. In memory where the system can, otherwise a file of ours that is gone at once."""
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
