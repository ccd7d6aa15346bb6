"""A request to become a WebSocket, and the reasons to say no before anyone is asked. Pure: no I/O.

Any web page can make a browser connect to a port of this machine, so two things must hold: the page comes from here
(`Origin`), and the name that it was reached by is one of ours (`Host`), or an attacker's own name could point at us.
"""

import base64
import binascii
import re
from collections.abc import Collection
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote

from msgspec import Struct

from switchtower.transports.stream import Complaint, Origin, Receiver

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
ANY_HOST = "*"
"""Among the names that we may be reached by: whoever is let in has shown more than that he found us."""

_AUTHORITY = re.compile(r"(?:\[(?P<ipv6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]{1,5})?", re.ASCII)


class Upgrade(Struct, frozen=True):
    """What a client asks for. Its token is in `origin` and nowhere else."""

    path: str
    query: dict[str, str]
    """The last value of each name."""
    headers: dict[str, str]
    """By their names in lower case."""
    origin: Origin


class Refusal(Struct, frozen=True):
    """A plain HTTP answer in place of the upgrade."""

    status: int
    reason: str

    def encode(self) -> bytes:
        body = self.reason.encode() + b"\n"
        head = f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        if self.status == HTTPStatus.UPGRADE_REQUIRED:
            head += "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


class Admission(Struct, frozen=True):
    """Let in on terms of its own, where those of the port do not fit."""

    receiver: Receiver
    max_message_bytes: int
    complaint: Complaint
    """Told of a message of up to twice the limit, and the connection goes on after it. A longer frame closes it, as elsewhere."""


def read(head: bytes, address: str, reached_at: str = "") -> Upgrade:
    """The head of an HTTP request that a server has already found well-formed."""
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
    origin = Origin(transport="websocket", address=address, reached_at=reached_at, token=token or None)
    return Upgrade(path=unquote(target), query=query, headers=headers, origin=origin)


def objection(request: Upgrade, hosts: Collection[str]) -> Refusal | None:
    """Why this request goes no further, whoever asks. `hosts` are the names that we may be reached by besides loopback's."""
    headers = request.headers
    host = hostname(headers.get("host", ""))
    if host is None or (host not in LOOPBACK and host not in hosts and ANY_HOST not in hosts):
        return Refusal(403, "this host name is not served here")
    if "origin" in headers and not from_here(headers["origin"], host):
        return Refusal(403, "pages of another site may not connect")
    if headers.get("sec-websocket-version") != "13":
        return Refusal(426, "only version 13 of the WebSocket protocol is spoken here")
    if not _is_key(headers.get("sec-websocket-key", "")):
        return Refusal(400, "the WebSocket key is not valid")
    return None


def hostname(authority: str) -> str | None:
    """The name in `HOST[:PORT]`, without the brackets of IPv6; None when it is not of that form."""
    match = _AUTHORITY.fullmatch(authority.lower())
    return match and (match["ipv6"] or match["name"].removesuffix("."))


def from_here(origin: str, host: str) -> bool:
    """Whether a page of this origin may talk to us, who were reached as `host`. `null`, a page that hides its origin, may not."""
    _, separator, authority = origin.partition("://")
    name = hostname(authority) if separator else None
    return name is not None and (name == host or name in LOOPBACK)


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False
