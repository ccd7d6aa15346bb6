"""Delivers notifications by HTTP POST, as JSON for programs or in ntfy's form.

A POST runs in a thread, has a time limit, and goes to exactly the address that was named. No redirect is followed: it could lead
anywhere, and the content is for one address alone.
"""

import asyncio
import http.client
import ssl
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from urllib.parse import urlsplit

import msgspec

from switchtower.notifications import notifier
from switchtower.notifications.notifier import DeliveryFailed
from switchtower.tools.concurrency import run_in_detached_thread

TIMEOUT = 10.0
_MAX_READ = 65_536
_RETRYABLE_STATUSES = frozenset({408, 425, 429})


async def post_notification(url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float = TIMEOUT) -> int:
    """Returns the status, which is a success. Raises `DeliveryFailed`."""
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


_NTFY_TAGS = {notifier.DECISION: "raised_hand", notifier.FINISHED: "white_check_mark", notifier.FAILED: "x"}
_NTFY_PRIORITY = {notifier.DECISION: "4", notifier.FINISHED: "3", notifier.FAILED: "4"}


class WebhookChannel:
    """Implements `notifier.NotificationChannel`."""

    def __init__(self, url: str, format_: str) -> None:
        self._url = url
        self._format = format_

    @property
    def name(self) -> str:
        return f"the webhook at {urlsplit(self._url).hostname}"

    def __repr__(self) -> str:
        """Leaves out the path: with many services it is the secret."""
        return f"Webhook({urlsplit(self._url).hostname!r})"

    async def send(self, notification: notifier.Notification) -> None:
        if self._format == "ntfy":
            await post_notification(self._url, _make_ntfy_body(notification), _make_ntfy_headers(notification))
        else:
            await post_notification(
                self._url, msgspec.json.encode(encode_json(notification)), {"Content-Type": "application/json"}
            )


def encode_json(notification: notifier.Notification) -> dict[str, object]:
    return {
        "event": notification.event,
        "title": notification.title,
        "text": notification.text,
        "session_id": notification.session_id,
        "session_title": notification.run_title,
        "host": notification.host,
        "tool": notification.tool or None,
        "request_id": notification.request,
        "url": notification.url,
        "at": datetime.fromtimestamp(notification.at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }


def _make_ntfy_body(notification: notifier.Notification) -> bytes:
    return "\n".join(part for part in (notification.run_title, notification.text) if part).encode()


def _make_ntfy_headers(notification: notifier.Notification) -> dict[str, str]:
    headers = {
        "Title": _encode_header(notification.title),
        "Tags": _NTFY_TAGS[notification.event],
        "Priority": _NTFY_PRIORITY[notification.event],
    }
    return headers if notification.url is None else {**headers, "Click": _encode_header(notification.url)}


def _encode_header(text: str) -> str:
    """Returns the text itself if a header can hold it; otherwise encoded by RFC 2047, which ntfy reads."""
    if text.isascii() and text.isprintable():
        return text
    return f"=?UTF-8?B?{b64encode(text.encode()).decode()}?="
