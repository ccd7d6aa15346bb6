"""Notifications to an address of the owner's choice: as JSON for programs, or as ntfy's topics want them."""

from base64 import b64encode
from datetime import UTC, datetime
from urllib.parse import urlsplit

import msgspec

from switchtower.daemon import notify, notify_http

_NTFY_TAGS = {notify.DECISION: "raised_hand", notify.FINISHED: "white_check_mark", notify.FAILED: "x"}
_NTFY_PRIORITY = {notify.DECISION: "4", notify.FINISHED: "3", notify.FAILED: "4"}


class WebhookChannel:
    """Implements `notify.Channel`."""

    def __init__(self, url: str, format_: str) -> None:
        self._url = url
        self._format = format_

    @property
    def name(self) -> str:
        return f"the webhook at {urlsplit(self._url).hostname}"

    def __repr__(self) -> str:
        """Without the path: with many services that is the secret."""
        return f"Webhook({urlsplit(self._url).hostname!r})"

    async def send(self, notification: notify.Notification) -> None:
        if self._format == "ntfy":
            await notify_http.post_notification(self._url, _make_ntfy_body(notification), _make_ntfy_headers(notification))
        else:
            await notify_http.post_notification(
                self._url, msgspec.json.encode(encode_json(notification)), {"Content-Type": "application/json"}
            )


def encode_json(notification: notify.Notification) -> dict[str, object]:
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


def _make_ntfy_body(notification: notify.Notification) -> bytes:
    return "\n".join(part for part in (notification.run_title, notification.text) if part).encode()


def _make_ntfy_headers(notification: notify.Notification) -> dict[str, str]:
    headers = {
        "Title": _encode_header(notification.title),
        "Tags": _NTFY_TAGS[notification.event],
        "Priority": _NTFY_PRIORITY[notification.event],
    }
    return headers if notification.url is None else {**headers, "Click": _encode_header(notification.url)}


def _encode_header(text: str) -> str:
    """As it is where a header can hold it; otherwise in RFC 2047's words, which ntfy reads."""
    if text.isascii() and text.isprintable():
        return text
    return f"=?UTF-8?B?{b64encode(text.encode()).decode()}?="
