"""Finds the addresses at which other machines reach the daemon's ports, and whether that traffic is encrypted."""

import ipaddress
import socket
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from switchtower.settings import parsers

_ENCRYPTED = ("https", "wss")
_WILDCARD_FAMILIES = {"0.0.0.0": socket.AF_INET, "::": socket.AF_INET6}  # noqa: S104
_DOCUMENTATION_ADDRESSES = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses that no machine has. Connecting a datagram socket to one sends nothing, but reveals this machine's own address."""

TLS_REMEDY = (
    "start the daemon with `--tls-cert FILE --tls-key FILE`, or listen at 127.0.0.1 alone; "
    "behind a proxy with TLS, set `public_url` to its https address"
)


class Reachability(NamedTuple):
    http: str | None = None
    """The web page's address for other machines; None when the port serves only this machine."""
    pi: str | None = None
    """The address of pi's own port for other machines; None when the port serves only this machine."""

    @property
    def warning(self) -> str | None:
        """The cause of the warning; `TLS_REMEDY` is the remedy."""
        plain = [url for url in self if url is not None and urlsplit(url).scheme not in _ENCRYPTED]
        if not plain:
            return None
        return (
            f"other machines reach {' and '.join(plain)} without TLS: tokens, and what you type and see, can be read on the way"
        )


def describe_reachability(
    *, http: str | None, pi: str | None, listening: Mapping[str, str], public_url: str | None = None
) -> Reachability:
    """`http` and `pi` are the ports' URLs on this machine; `listening` has the addresses that they are bound to."""
    reached = _make_external_url(http, listening.get("http"))
    return Reachability(reached and (public_url or reached), _make_external_url(pi, listening.get("pi")))


def _make_external_url(url: str | None, bound: str | None) -> str | None:
    address = None if bound is None else parsers.parse_address(bound)
    if url is None or address is None or _is_loopback(address.host):
        return None
    parts = urlsplit(url)
    host = _find_own_address(_WILDCARD_FAMILIES[address.host]) if address.host in _WILDCARD_FAMILIES else address.host
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}:{parts.port}"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _find_own_address(family: socket.AddressFamily = socket.AF_INET) -> str:
    """Returns the address from which this machine reaches others; its host name when it reaches none."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_DOCUMENTATION_ADDRESSES[family], 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
