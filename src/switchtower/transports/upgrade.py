"""A request to become a WebSocket, and the reasons to refuse it before it is passed on. It does no I/O.

Any web page can make a browser connect to a port of this machine, so two things must hold: the page may connect (`Origin`, see
`origins`), and the request's name for us (`Host`) is a configured one, or an attacker's own name could point at us. A page that
may connect still needs a token, at every listener.
"""

import base64
import binascii
from collections.abc import Collection
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote

from msgspec import Struct

from switchtower.transports.origins import (
    LOOPBACK,
    NO_PROXIES,
    AllowedOrigins,
    OriginVerdict,
    TrustedProxies,
    parse_hostname,
    strip_port,
)
from switchtower.transports.stream import ConnectionOrigin, OversizedMessage, Receiver

ANY_HOST = "*"
"""An entry of the accepted host names that matches any name, for listeners whose clients must authenticate anyway."""

_NO_SITES = AllowedOrigins()


class UpgradeRequest(Struct, frozen=True):
    """The client's request. Its token is in `origin` and nowhere else."""

    path: str
    query: dict[str, str]
    """The last value of each name."""
    headers: dict[str, str]
    """The headers by their names in lower case."""
    origin: ConnectionOrigin


class UpgradeRefusal(Struct, frozen=True):
    """A plain HTTP response in place of the upgrade."""

    status: int
    reason: str

    def encode(self) -> bytes:
        body = self.reason.encode() + b"\n"
        head = f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        if self.status == HTTPStatus.UPGRADE_REQUIRED:
            head += "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        if self.status == HTTPStatus.UNAUTHORIZED:
            head += "WWW-Authenticate: Bearer\r\n"
        return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


class UpgradeAdmission(Struct, frozen=True):
    """An admission with separate limits, where those of the port do not fit."""

    receiver: Receiver
    max_message_bytes: int
    complaint: OversizedMessage
    """The error for a message of up to twice the limit; the connection continues after it. A longer frame closes it, as
    elsewhere.
    """
    authenticated: bool = True
    """False for a client that only gets the reason of its refusal."""
    discards_long_frames: bool = False
    """A frame above the limit is discarded as it arrives, however long it is, and the complaint is sent at once."""
    ping_seconds: float | None = None
    """The seconds that the client may be silent before it is pinged; None for the port's own."""


def parse_upgrade(head: bytes, address: str, reached_at: str = "", *, proxies: TrustedProxies = NO_PROXIES) -> UpgradeRequest:
    """Parses the head of an HTTP request that a server has already validated."""
    first, *lines = head.decode("latin-1").split("\r\n")
    target, _, query_string = first.split(" ")[1].partition("?")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            name = name.lower()
            headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
    query = dict(parse_qsl(query_string, keep_blank_values=True))
    token = query.pop("token", None)
    token = query.pop("host_token", None) or token
    scheme, _, credentials = headers.pop("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and credentials:
        token = credentials.strip()
    origin = ConnectionOrigin(
        transport="websocket",
        address=address,
        reached_at=reached_at,
        token=token or None,
        is_page="origin" in headers,
        client=proxies.find_client(
            strip_port(address),
            forwarded=headers.get("forwarded", ""),
            x_forwarded_for=headers.get("x-forwarded-for", ""),
        ),
    )
    return UpgradeRequest(path=unquote(target), query=query, headers=headers, origin=origin)


def find_refusal(request: UpgradeRequest, hosts: Collection[str], sites: AllowedOrigins = _NO_SITES) -> UpgradeRefusal | None:
    """Returns the reason to refuse this request, whichever client sends it. `hosts` are the names that we may be reached by
    besides loopback's, `sites` the pages that may connect.
    """
    headers = request.headers
    host = parse_hostname(headers.get("host", ""))
    served = {*LOOPBACK, *hosts, strip_port(request.origin.reached_at)}
    if host is None or (host not in served and ANY_HOST not in served):
        return UpgradeRefusal(403, "this host name is not served here")
    if "origin" in headers and judge_origin(request, sites) is OriginVerdict.FOREIGN:
        return UpgradeRefusal(403, "pages of another site may not connect")
    if headers.get("sec-websocket-version") != "13":
        return UpgradeRefusal(426, "only version 13 of the WebSocket protocol is spoken here")
    if not _is_key(headers.get("sec-websocket-key", "")):
        return UpgradeRefusal(400, "the WebSocket key is not valid")
    return None


def judge_origin(request: UpgradeRequest, sites: AllowedOrigins) -> OriginVerdict:
    """Classifies the page of the request. Only for a request with an `Origin`."""
    headers = request.headers
    return sites.judge(headers["origin"], headers.get("host", ""), forwarded_proto=headers.get("x-forwarded-proto", ""))


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False
