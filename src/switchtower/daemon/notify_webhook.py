"""Notifications to an address of the owner's choice: as JSON for programs, or as ntfy's topics want them."""

from base64 import b64encode
from datetime import UTC, datetime
from urllib.parse import urlsplit

import msgspec

from switchtower.daemon import notify, notify_http

_NTFY_TAGS = {notify.DECISION: "raised_hand", notify.FINISHED: "white_check_mark", notify.FAILED: "x"}
_NTFY_PRIORITY = {notify.DECISION: "4", notify.FINISHED: "3", notify.FAILED: "4"}


class Webhook:
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

    async def send(self, news: notify.News) -> None:
        if self._format == "ntfy":
            await notify_http.post(self._url, _ntfy_body(news), _ntfy_headers(news))
        else:
            await notify_http.post(self._url, msgspec.json.encode(as_json(news)), {"Content-Type": "application/json"})


def as_json(news: notify.News) -> dict[str, object]:
    return {
        "event": news.event,
        "title": news.title,
        "text": news.text,
        "session_id": news.session_id,
        "session_title": news.run_title,
        "host": news.host,
        "tool": news.tool or None,
        "request_id": news.request,
        "url": news.url,
        "at": datetime.fromtimestamp(news.at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }


def _ntfy_body(news: notify.News) -> bytes:
    return "\n".join(part for part in (news.run_title, news.text) if part).encode()


def _ntfy_headers(news: notify.News) -> dict[str, str]:
    headers = {"Title": _header(news.title), "Tags": _NTFY_TAGS[news.event], "Priority": _NTFY_PRIORITY[news.event]}
    return headers if news.url is None else {**headers, "Click": _header(news.url)}


def _header(text: str) -> str:
    """As it is where a header can hold it; otherwise in RFC 2047's words, which ntfy reads."""
    if text.isascii() and text.isprintable():
        return text
    return f"=?UTF-8?B?{b64encode(text.encode()).decode()}?="
