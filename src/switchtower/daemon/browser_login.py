"""How a browser comes in: a token for one visit, and the cookie that a WebSocket brings along. Nothing of it is in a log."""

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from switchtower.protocols.relay.http import cookies

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
    token, proto = cookies.read_cookie(headers.get("cookie"), host), headers.get("x-forwarded-proto", "")
    if token is None or not cookies.is_own_page(headers["origin"], None, host, public_url, forwarded_proto=proto):
        return request
    return msgspec.structs.replace(request, origin=msgspec.structs.replace(request.origin, token=token))
