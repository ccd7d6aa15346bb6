"""TLS on one connection as bytes in and bytes out. Does no I/O.

The event loops have their own, which tells nobody of who connects and does not finish the handshake; here such strangers are
seen and counted. A read takes one record's length at a time, and asks again only if more is there.
"""

import contextlib
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from switchtower.transports.mesh.identity import MeshKey

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
        """The handshake is done, and the other side has the key."""

    def take_outgoing(self) -> bytes:
        """What must be sent to the other side, whoever wanted it."""
        return self._outgoing.read()

    def start(self) -> None:
        """Raises `Refused`."""
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
        """The plain text in what came; None: the other side has said goodbye. Raises `Refused`."""
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
        """Raises `Refused`."""
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
        with contextlib.suppress(ssl.SSLError):  # the other side's goodbye is not waited for
            self._object.unwrap()
        return self._outgoing.read()


def _describe_ssl_error(problem: ssl.SSLError) -> str:
    """Without the file and line of OpenSSL's source."""
    return getattr(problem, "verify_message", "") or problem.reason or "no TLS"
