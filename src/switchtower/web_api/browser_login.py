"""How a browser comes in: a token for one visit, and the cookie that a WebSocket brings along. Nothing of it is in a log.

The cookie that a browser stays logged in with, and whether a request that carries it comes from our own page. Pure.

A browser sends cookies by itself, also for a page of somebody else, and to every port of a machine alike. So a cookie counts only
together with the browser's own word that our page asks, down to the port; a token in a header needs no such word."""

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from switchtower.transports.origins import AllowedOrigins, OriginVerdict

if TYPE_CHECKING:
    from switchtower.transports import upgrade


VISIT_SECONDS = 600
MAX_VISITS = 32
"""Open at a time; a new one takes the place of the oldest."""


class VisitTokens:
    """Tokens that are good once, for a short while, and no longer than the daemon runs. Only their hashes are kept."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._expiries: dict[str, float] = {}

    def issue(self) -> tuple[str, int]:
        """A new one, and when it ends in milliseconds."""
        while len(self._expiries) >= MAX_VISITS:
            del self._expiries[next(iter(self._expiries))]
        token = secrets.token_urlsafe(32)
        expires_at = self._now() + VISIT_SECONDS
        self._expiries[_hash_token(token)] = expires_at
        return token, int(expires_at * 1_000)

    def redeem(self, token: str) -> bool:
        """Whether it was good. It is not any more."""
        # Looked up by its hash: how long that takes says nothing about the tokens that there are.
        return self._expiries.pop(_hash_token(token), 0.0) > self._now()


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def apply_cookie_token(request: "upgrade.UpgradeRequest", public_url: str | None) -> "upgrade.UpgradeRequest":
    """The same request; one of our own page without another token has its cookie's."""
    headers = request.headers
    host = headers.get("host", "")
    if request.origin.token is not None or "origin" not in headers:
        return request
    token, proto = read_cookie(headers.get("cookie"), host), headers.get("x-forwarded-proto", "")
    if token is None or not is_own_page(headers["origin"], None, host, public_url, forwarded_proto=proto):
        return request
    return msgspec.structs.replace(request, origin=msgspec.structs.replace(request.origin, token=token))


COOKIE_NAME = "tower"
DEVICE_SECONDS = 180 * 86_400
"""How long a device is remembered."""
SAME_ORIGIN, NO_SITE = "same-origin", "none"
"""What `Sec-Fetch-Site` says of our own page, and of a person who typed the address."""


def make_cookie_name(host: str) -> str:
    """Of one daemon: several may listen at one machine, and a browser keeps the cookies of all ports together."""
    port = host.rpartition(":")[2]
    return f"{COOKIE_NAME}_{port}" if ":" in host and port.isascii() and port.isdecimal() else COOKIE_NAME


def read_cookie(cookie: str | None, host: str) -> str | None:
    """The token in a `Cookie` header. None also when there are two: somebody else has set one of them."""
    pairs = (part.partition("=") for part in (cookie or "").split(";"))
    ours = [value.strip() for key, _, value in pairs if key.strip() == make_cookie_name(host)]
    return (ours[0] or None) if len(ours) == 1 else None


def make_cookie(host: str, token: str, *, seconds: int, secure: bool) -> str:
    """For `Set-Cookie`. No script sees it, no other site's page sends it, and it ends with its token."""
    return f"{make_cookie_name(host)}={token}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"


def make_expired_cookie(host: str, *, secure: bool) -> str:
    return make_cookie(host, "", seconds=0, secure=secure)


def read_device_cookie(cookie: str | None, host: str) -> str:
    """What tells a device that has logged in before from a stranger's; it admits no client."""
    pairs = (part.partition("=") for part in (cookie or "").split(";"))
    ours = [value.strip() for key, _, value in pairs if key.strip() == f"{make_cookie_name(host)}_device"]
    return ours[0] if len(ours) == 1 else ""


def make_device_cookie(host: str, device: str, *, secure: bool) -> str:
    """For `Set-Cookie`. Only sent where one logs in."""
    lasting = f"Max-Age={DEVICE_SECONDS}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
    return f"{make_cookie_name(host)}_device={device}; Path=/auth; {lasting}"


def is_own_page(
    origin: str | None, fetch_site: str | None, host: str, public_url: str | None, *, forwarded_proto: str = ""
) -> bool:
    """Whether the browser says that our own page asks. Without any word of it: no."""
    if origin is None:
        return fetch_site == SAME_ORIGIN
    return AllowedOrigins(public_url=public_url).judge(origin, host, forwarded_proto=forwarded_proto) is OriginVerdict.OWN


def parse_origin(public_url: str | None) -> str | None:
    if public_url is None:
        return None
    parts = urlsplit(public_url)
    return f"{parts.scheme}://{parts.netloc}".lower()
