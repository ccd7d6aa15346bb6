"""The settings of a host and of its link to a hub, and the link's status."""

import ipaddress
from typing import Literal
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Struct

from switchtower.protocols.relay import wire_values


class HostSettings(Struct, frozen=True, kw_only=True):
    host_id: str
    version: str
    default_cwd: str
    """The folder of a run whose request names none."""
    approval_timeout_ms: int
    log_path: str | None
    server_base_url: str | None = None
    local_unix_socket: str | None = None
    journal_path: str | None = None
    node_id: str | None = None
    """The id of this node in its cluster; None for a single node."""
    bash_timeout_s: float = 120.0
    sandbox_network: bool = False
    """Commands in a sandbox reach the network."""


_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}

Phase = Literal["connecting", "connected", "refused", "waiting"]


class InvalidHubUrl(ValueError):
    """The address of the hub is not one; hint: `https://hub.example` or `http://127.0.0.1:8787`."""

    def __init__(self) -> None:
        super().__init__((type(self).__doc__ or "").rstrip("."))


def is_unencrypted(hub_url: str) -> bool:
    """Returns whether this address leads to another machine without TLS."""
    address = urlsplit(hub_url)
    if _SCHEMES.get(address.scheme) != "ws" or address.hostname == "localhost":
        return False
    try:
        return not ipaddress.ip_address(address.hostname or "").is_loopback
    except ValueError:
        return True  # a name, which may lead anywhere


class LinkSettings(Struct, frozen=True, kw_only=True):
    hub_url: str
    host_id: str
    host_token: str
    host_name: str
    hub_may: Literal["watch", "decide", "start"] = "decide"
    """The level of requests that the hub may make."""
    heartbeat_s: float = 10.0
    started_at_ms: int | None = None
    """A new hub gets the events since this time. None is when the link is first loaded."""
    backoff_min_s: float = 0.5
    backoff_max_s: float = 5.0
    """The longest delay between two attempts: a hub that was down has its hosts back within seconds."""
    refused_s: float = 30.0
    """The shortest delay after a hub refused us: its operator has to change something first."""
    window_events: int = 5_000
    """Events that the hub may have been sent and not have acknowledged."""
    max_frame_bytes: int = wire_values.DEFAULT_MAX_FRAME_BYTES
    """The longest frame that is sent to the hub, and read from it."""
    lanes: int = 8
    """Sessions whose backlog is read at the same time."""

    def __repr__(self) -> str:
        """Leaves out the token."""
        return f"LinkSettings(hub={self.hub!r}, host_id={self.host_id!r})"

    @property
    def hub(self) -> str:
        """The hub's name in the registry and in the log: its address, without parts that may be secret."""
        scheme, authority, path = self._parse_url()
        return f"{scheme}://{authority.rpartition('@')[2]}{path}"

    @property
    def dial_url(self) -> str:
        """The address without the token, which is sent in a header: proxies write addresses into their logs."""
        return self._build_url({"host_id": self.host_id, "name": self.host_name})

    @property
    def dial_url_with_token(self) -> str:
        """Secret. The address with the token, as in the document, for a hub that does not read the header."""
        return self._build_url({"host_id": self.host_id, "host_token": self.host_token, "name": self.host_name})

    @property
    def has_password(self) -> bool:
        """The address names a user and a password for a proxy, which then take the place of a token in the header."""
        return "@" in self._parse_url()[1]

    def _build_url(self, query: dict[str, str]) -> str:
        scheme, authority, path = self._parse_url()
        return f"{scheme}://{authority}{path}/ws/host?{urlencode(query, quote_via=quote)}"

    def _parse_url(self) -> tuple[str, str, str]:
        try:
            address = urlsplit(self.hub_url.strip())
            usable = address.scheme in _SCHEMES and bool(address.hostname)
        except ValueError:
            usable = False
        if not usable:
            raise InvalidHubUrl
        named, at, host = address.netloc.rpartition("@")
        return _SCHEMES[address.scheme], f"{named}{at}{host.lower()}", quote(address.path.rstrip("/"), safe="/%")


class LinkStatus(Struct, frozen=True):
    """The status of a link, for displays."""

    phase: Phase
    since_ms: int
    problem: str = ""
    """The cause of the last failure to connect."""
    backlog: int = 0
    """Sessions that the hub does not have completely."""
    unacknowledged: int = 0
    """Events that the hub was sent and has not acknowledged."""
