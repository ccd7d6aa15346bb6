"""One POST to somewhere else: in a thread, with a limit of time, and to exactly the address that was named. No redirect is
followed: it could lead anywhere, and what is sent is for one address alone."""

import asyncio
import http.client
import ssl
from collections.abc import Mapping
from functools import partial
from urllib.parse import urlsplit

from switchtower.daemon.apart import run_in_detached_thread
from switchtower.daemon.notify import DeliveryFailed

TIMEOUT = 10.0
_MAX_READ = 65_536
_RETRYABLE_STATUSES = frozenset({408, 425, 429})


async def post_notification(url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float = TIMEOUT) -> int:
    """The status, which is a success. Raises `Undelivered`."""
    try:
        async with asyncio.timeout(2 * timeout_s):  # each step has its own limit; together they may take no longer than this
            status, retry_after = await run_in_detached_thread(
                partial(_send_request, url, body, headers, timeout_s), "notification"
            )
    except TimeoutError:
        raise DeliveryFailed("it did not answer in time", again=True) from None
    except (OSError, http.client.HTTPException, ValueError) as problem:
        raise DeliveryFailed(f"it could not be reached ({type(problem).__name__})", again=True) from None
    if 200 <= status < 300:
        return status
    if 300 <= status < 400:
        raise DeliveryFailed(f"it answered {status}, which leads elsewhere and is not followed", again=False)
    raise DeliveryRejected(status, retry_after)


class DeliveryRejected(DeliveryFailed):
    def __init__(self, status: int, retry_after: float | None) -> None:
        super().__init__(f"it answered {status}", again=status in _RETRYABLE_STATUSES or status >= 500, after=retry_after)
        self.status = status


def _send_request(url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> tuple[int, float | None]:
    parts = urlsplit(url)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, {"User-Agent": "switchtower", **headers})
        answer = connection.getresponse()
        answer.read(_MAX_READ)
        after = answer.getheader("Retry-After") or ""
        return answer.status, float(after) if after.isascii() and after.isdecimal() and len(after) < 6 else None
    finally:
        connection.close()
