"""By which address other machines reach the daemon's HTTP port, and whether what they send there can be read on the way."""

import socket
from typing import NamedTuple
from urllib.parse import urlsplit

from switchtower import config
from switchtower.settings import values

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104
_DOCUMENTATION = "192.0.2.1"
"""An address that no machine has. To connect a datagram socket sends nothing, and shows the address of this machine's own."""


class Reachability(NamedTuple):
    url: str | None = None
    """For other machines; None when the port serves only this one."""
    is_encrypted: bool = True

    @property
    def warning(self) -> str | None:
        if self.url is None or self.is_encrypted:
            return None
        return "other machines reach this port without TLS: tokens, and what you type and see, can be read on the way"


REMEDY = "give `--tls-cert` and `--tls-key`, put a proxy with TLS before it and set `public_url`, or listen at 127.0.0.1"


def describe(settings: config.Settings, http: str | None) -> Reachability:
    """`http` is the address of the daemon's own port, as `endpoints.json` has it."""
    address = values.address(settings.http)
    if http is None or address is None or address.host in _LOOPBACK or address.host.startswith("127."):
        return Reachability()
    if settings.public_url is not None:
        return Reachability(settings.public_url, settings.public_url.startswith("https://"))
    parts = urlsplit(http)
    host = _own_address() if address.host in _WILDCARDS else address.host
    shown = f"[{host}]" if ":" in host else host
    return Reachability(f"{parts.scheme}://{shown}:{parts.port}", parts.scheme == "https")


def _own_address() -> str:
    """The address by which this machine reaches others; its name where it reaches none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_DOCUMENTATION, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
