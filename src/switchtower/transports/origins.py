"""Which page makes a request, from its `Origin` header. Pure: no I/O.

A request with an `Origin` comes from a browser, and a browser has the uid of its user whatever page it shows. So such a request
never counts as the owner's by its uid, and pages are distinguished by scheme, name and port, as browsers do.
"""

import enum
import re
from collections.abc import Collection
from typing import NamedTuple

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

_AUTHORITY = re.compile(r"(?:\[(?P<ipv6>[0-9a-f.]*:[0-9a-f:.]*)\]|(?P<name>[a-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*", re.ASCII)
_PORTS = {"http": 80, "https": 443}
_BEHIND_TLS = ("https", "wss")


class OriginVerdict(enum.Enum):
    """What a page is to this daemon."""

    OWN = enum.auto()
    """The daemon's own page: its scheme, its name and its port, or those of `public_url`."""
    CONFIGURED = enum.auto()
    """A page of the setting `origins`."""
    LOOPBACK = enum.auto()
    """A page of another port of this machine. It may connect with a token in its hands."""
    FOREIGN = enum.auto()
    """Any other page, and one that hides its origin. It is refused."""


class WebOrigin(NamedTuple):
    """A browser's origin."""

    scheme: str
    name: str
    port: int | None
    """None for a scheme without a default port."""


class AllowedOrigins:
    """The pages that one listener knows."""

    def __init__(self, entries: Collection[str] = (), *, public_url: str | None = None) -> None:
        """`entries` are those of the setting `origins`: each an origin, or a name, which stands for that name at the default
        ports of `http` and `https`."""
        names = [entry.lower() for entry in entries if "://" not in entry]
        self.names = frozenset(names)
        """The names among the entries: this daemon may be reached by them."""
        given = {parse_origin(entry) for entry in entries if "://" in entry}
        given |= {parse_origin(f"{scheme}://{name}") for name in names for scheme in _PORTS}
        self._configured = given - {None}
        self._public = None if public_url is None else parse_origin(public_url)

    def judge(self, origin: str, host: str, *, forwarded_proto: str = "") -> OriginVerdict:
        """What the page of this `Origin` is to us, who were reached as `host`. `forwarded_proto` is a proxy's
        `X-Forwarded-Proto`, which no page can set."""
        site = parse_origin(origin)
        if site is None:
            return OriginVerdict.FOREIGN
        if site == self._public or _is_served_here(site, host, forwarded_proto):
            return OriginVerdict.OWN
        if site in self._configured:
            return OriginVerdict.CONFIGURED
        return OriginVerdict.LOOPBACK if site.scheme in _PORTS and site.name in LOOPBACK else OriginVerdict.FOREIGN

    def is_shared_with(self, origin: str) -> bool:
        """Whether pages of this origin may read our answers."""
        return parse_origin(origin) in self._configured


def parse_origin(origin: str) -> WebOrigin | None:
    """None for `null` and for anything that is no origin."""
    scheme, separator, authority = origin.lower().partition("://")
    match = _AUTHORITY.fullmatch(authority) if separator and origin.isascii() and _SCHEME.fullmatch(scheme) else None
    if match is None:
        return None
    port = int(match["port"]) if match["port"] else _PORTS.get(scheme)
    return WebOrigin(scheme, match["ipv6"] or match["name"].removesuffix("."), port)


def parse_hostname(authority: str) -> str | None:
    """The name in `HOST[:PORT]`, without the brackets of IPv6; None when it is not of that form."""
    match = _AUTHORITY.fullmatch(authority.lower()) if authority.isascii() else None
    return match and (match["ipv6"] or match["name"].removesuffix("."))


def _is_served_here(site: WebOrigin, host: str, forwarded_proto: str) -> bool:
    if site.scheme not in _PORTS or site != parse_origin(f"{site.scheme}://{host}"):
        return False
    # A proxy that speaks TLS for us may not say so, but this machine's own names lead to us and not to a proxy.
    is_behind_tls = forwarded_proto.partition(",")[0].strip().lower() in _BEHIND_TLS
    if is_behind_tls:
        # A page of the same name without TLS may be anyone's on the way to the browser.
        return site.scheme == "https"
    return site.scheme == "http" or site.name not in LOOPBACK
