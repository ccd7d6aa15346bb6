"""Classifies the page that makes a request, by its `Origin` header, and the addresses of clients behind proxies. It does no I/O.

A request with an `Origin` comes from a browser, and a browser has the uid of its user whatever page it shows. So such a request
never counts as the owner's by its uid, and pages are distinguished by scheme, name and port, as browsers do.
"""

import enum
import ipaddress
import re
from collections.abc import Collection
from typing import NamedTuple

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

_AUTHORITY = re.compile(r"(?:\[(?P<ipv6>[0-9a-f.]*:[0-9a-f:.]*)\]|(?P<name>[a-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*", re.ASCII)
_PORTS = {"http": 80, "https": 443}
_BEHIND_TLS = ("https", "wss")


class OriginVerdict(enum.Enum):
    """The relation of a page to this daemon."""

    OWN = enum.auto()
    """The daemon's own page: its scheme, its name and its port, or those of `public_url`."""
    CONFIGURED = enum.auto()
    """A page of the setting `origins`."""
    LOOPBACK = enum.auto()
    """A page of another port of this machine. It may connect with a token."""
    FOREIGN = enum.auto()
    """Any other page, and one that hides its origin. It is refused."""


class WebOrigin(NamedTuple):
    """A browser's origin."""

    scheme: str
    name: str
    port: int | None
    """None for a scheme without a default port."""


class AllowedOrigins:
    """The pages that one listener accepts."""

    def __init__(self, entries: Collection[str] = (), *, public_url: str | None = None) -> None:
        """`entries` are those of the setting `origins`: each an origin, or a name, which means that name at the default ports of
        `http` and `https`.
        """
        names = [entry.lower() for entry in entries if "://" not in entry]
        self.names = frozenset(names)
        """The names among the entries: clients may reach this daemon by them."""
        given = {parse_origin(entry) for entry in entries if "://" in entry}
        given |= {parse_origin(f"{scheme}://{name}") for name in names for scheme in _PORTS}
        self._configured = given - {None}
        self._public = None if public_url is None else parse_origin(public_url)

    def judge(self, origin: str, host: str, *, forwarded_proto: str = "") -> OriginVerdict:
        """Classifies the page of this `Origin`, which reached us as `host`. `forwarded_proto` is a proxy's `X-Forwarded-Proto`,
        which no page can set.
        """
        site = parse_origin(origin)
        if site is None:
            return OriginVerdict.FOREIGN
        if site == self._public or _is_served_here(site, host, forwarded_proto):
            return OriginVerdict.OWN
        if site in self._configured:
            return OriginVerdict.CONFIGURED
        return OriginVerdict.LOOPBACK if site.scheme in _PORTS and site.name in LOOPBACK else OriginVerdict.FOREIGN

    def is_shared_with(self, origin: str) -> bool:
        """Returns whether pages of this origin may read our responses."""
        return parse_origin(origin) in self._configured


def parse_origin(origin: str) -> WebOrigin | None:
    """Returns None for `null` and for any invalid origin."""
    scheme, separator, authority = origin.lower().partition("://")
    match = _AUTHORITY.fullmatch(authority) if separator and origin.isascii() and _SCHEME.fullmatch(scheme) else None
    if match is None:
        return None
    port = int(match["port"]) if match["port"] else _PORTS.get(scheme)
    return WebOrigin(scheme, match["ipv6"] or match["name"].removesuffix("."), port)


def parse_hostname(authority: str) -> str | None:
    """Returns the name in `HOST[:PORT]`, without the brackets of IPv6; None when it is not of that form."""
    match = _AUTHORITY.fullmatch(authority.lower()) if authority.isascii() else None
    return match and (match["ipv6"] or match["name"].removesuffix("."))


def _is_served_here(site: WebOrigin, host: str, forwarded_proto: str) -> bool:
    if site.scheme not in _PORTS or site != parse_origin(f"{site.scheme}://{host}"):
        return False
    # A proxy that terminates TLS for us may not send the header, but this machine's own names lead to us and not to a proxy.
    is_behind_tls = forwarded_proto.partition(",")[0].strip().lower() in _BEHIND_TLS
    if is_behind_tls:
        # A page of the same name without TLS may be forged on the way to the browser.
        return site.scheme == "https"
    return site.scheme == "http" or site.name not in LOOPBACK


IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def strip_port(address: str) -> str:
    """Returns the host of a connection's end, which is spelled `HOST:PORT` without brackets."""
    return address.rpartition(":")[0]


def parse_ip_address(text: str) -> IpAddress | None:
    """Parses an address, perhaps in brackets, with a zone or with a port; IPv4 inside IPv6 is IPv4. None for anything else."""
    host, _, port = text.rpartition(":")
    for candidate in (text, host if port.isdecimal() else text):
        try:
            found = ipaddress.ip_address(candidate.strip("[]").partition("%")[0])
        except ValueError:
            continue
        return getattr(found, "ipv4_mapped", None) or found
    return None


def is_loopback(text: str) -> bool:
    found = parse_ip_address(text)
    return found is not None and found.is_loopback


def group_address(text: str) -> str:
    """Returns the group in which failures and connections count together: an address, or the IPv6 network that one customer
    usually gets.
    """
    found = parse_ip_address(text)
    if found is None:
        return text[:128]
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))


class TrustedProxies:
    """Proxies whose headers about the origin of a request are trusted."""

    def __init__(self, networks: tuple[str, ...] = ()) -> None:
        """Takes addresses, or networks such as `10.0.0.0/8`. Raises ValueError."""
        self._networks = tuple(ipaddress.ip_network(network) for network in networks)

    def __contains__(self, text: str) -> bool:
        found = parse_ip_address(text)
        return found is not None and any(found in network for network in self._networks)

    def find_client(self, address: str, *, forwarded: str = "", x_forwarded_for: str = "") -> str:
        """Returns the client's address: the last hop that is not a trusted proxy. Empty when the connection is the client's own,
        or the headers cannot be trusted.

        Each proxy appends the address that it saw at the right end, and any client may have written the entries further left.
        With both headers, one may be forged by the client: then they have to agree.
        """
        if address not in self:
            return ""
        found = {self._find_last_untrusted(hops) for hops in (_split_hops(x_forwarded_for), _parse_forwarded(forwarded)) if hops}
        return found.pop() if len(found) == 1 else ""

    def _find_last_untrusted(self, hops: list[str]) -> str:
        for hop in reversed(hops):
            found = parse_ip_address(hop)
            if found is None:
                return ""
            if hop not in self:
                return str(found)
        return ""


NO_PROXIES = TrustedProxies()


def _split_hops(header: str) -> list[str]:
    return [hop.strip() for hop in header.split(",")] if header.strip() else []


def _parse_forwarded(header: str) -> list[str]:
    """Returns the `for` of each element; an element without one counts as unreadable."""
    hops = []
    for element in header.split(",") if header.strip() else ():
        pairs = (pair.partition("=") for pair in element.split(";"))
        named = [value.strip().strip('"') for name, _, value in pairs if name.strip().lower() == "for"]
        hops.append(named[0] if len(named) == 1 else "unknown")
    return hops
