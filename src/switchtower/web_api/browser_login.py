"""Browser logins: a token for one visit, and the cookie with which a browser stays logged in. None of it is logged.

A browser sends cookies by itself, even for another site's page, and to every port of a machine alike. So a cookie counts only
together with the browser's own statement that our page asks, down to the port; a token in a header needs no such statement.
"""

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
"""Visits that are open at a time; a new one replaces the oldest."""


class VisitTokens:
    """Tokens that are valid once, for a short while, and no longer than the daemon runs. Only their hashes are kept."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._expiries: dict[str, float] = {}

    def issue(self) -> tuple[str, int]:
        """Returns a new token, and its end in milliseconds."""
        while len(self._expiries) >= MAX_VISITS:
            del self._expiries[next(iter(self._expiries))]
        token = secrets.token_urlsafe(32)
        expires_at = self._now() + VISIT_SECONDS
        self._expiries[_hash_token(token)] = expires_at
        return token, int(expires_at * 1_000)

    def redeem(self, token: str) -> bool:
        """Returns whether the token was valid. It no longer is."""
        # The lookup is by hash: its duration reveals nothing about the valid tokens.
        return self._expiries.pop(_hash_token(token), 0.0) > self._now()


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def apply_cookie_token(request: "upgrade.UpgradeRequest", public_url: str | None) -> "upgrade.UpgradeRequest":
    """Returns the same request; if it comes from our own page without another token, it has its cookie's token."""
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
"""Seconds for which a device is remembered."""
SAME_ORIGIN, NO_SITE = "same-origin", "none"
"""The values of `Sec-Fetch-Site` for our own page, and for an address that a user typed."""


def make_cookie_name(host: str) -> str:
    """Makes the name of one daemon's cookie: several may listen on one machine, and a browser shares cookies among all ports."""
    port = host.rpartition(":")[2]
    return f"{COOKIE_NAME}_{port}" if ":" in host and port.isascii() and port.isdecimal() else COOKIE_NAME


def read_cookie(cookie: str | None, host: str) -> str | None:
    """Returns the token in a `Cookie` header. None also when there are two: one of them is not ours."""
    pairs = (part.partition("=") for part in (cookie or "").split(";"))
    ours = [value.strip() for key, _, value in pairs if key.strip() == make_cookie_name(host)]
    return (ours[0] or None) if len(ours) == 1 else None


def make_cookie(host: str, token: str, *, seconds: int, secure: bool) -> str:
    """Makes the value of `Set-Cookie`. No script sees the cookie, no other site's page sends it, and it ends with its token."""
    return f"{make_cookie_name(host)}={token}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"


def make_expired_cookie(host: str, *, secure: bool) -> str:
    return make_cookie(host, "", seconds=0, secure=secure)


def read_device_cookie(cookie: str | None, host: str) -> str:
    """Returns the token that identifies a device which has logged in before; it admits no client."""
    pairs = (part.partition("=") for part in (cookie or "").split(";"))
    ours = [value.strip() for key, _, value in pairs if key.strip() == f"{make_cookie_name(host)}_device"]
    return ours[0] if len(ours) == 1 else ""


def make_device_cookie(host: str, device: str, *, secure: bool) -> str:
    """Makes the value of `Set-Cookie`. The cookie is only sent to the login's paths."""
    lasting = f"Max-Age={DEVICE_SECONDS}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
    return f"{make_cookie_name(host)}_device={device}; Path=/auth; {lasting}"


def is_own_page(
    origin: str | None, fetch_site: str | None, host: str, public_url: str | None, *, forwarded_proto: str = ""
) -> bool:
    """Returns whether the browser states that our own page asks. Without a statement: no."""
    if origin is None:
        return fetch_site == SAME_ORIGIN
    return AllowedOrigins(public_url=public_url).judge(origin, host, forwarded_proto=forwarded_proto) is OriginVerdict.OWN


def parse_origin(public_url: str | None) -> str | None:
    if public_url is None:
        return None
    parts = urlsplit(public_url)
    return f"{parts.scheme}://{parts.netloc}".lower()
