"""The guard in front of every endpoint: it checks the host name and the page's origin, and adds the headers of every response.

Any web page can make a browser send requests to a port of this machine, so the rules for WebSockets apply here too (see
`transports/upgrade.py`). Handlers get the path as it was spelled: an escaped character stays in its part of the path.
"""

import asyncio
from collections.abc import Collection, MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders

from switchtower.transports import origins, upgrade
from switchtower.transports.origins import AllowedOrigins, OriginVerdict
from switchtower.web_api import responses
from switchtower.web_api.responses import HttpError

DRAIN_TIMEOUT = 1.0
MAX_DRAINED_BYTES = 16 * 1_048_576
"""The time and the size up to which we continue to read an unwanted body: a client that still sends would miss the answer
otherwise."""

_RESPONSE_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type",
    "Access-Control-Max-Age": "600",
}

AsgiMessage = MutableMapping[str, Any]


class OriginGuard:
    def __init__(self, app: Any, *, hosts: Collection[str], sites: AllowedOrigins) -> None:
        """`hosts` are our host names besides loopback's, `sites` the pages that may send requests; the configured ones may read
        answers."""
        self._app = app
        self._hosts = frozenset(name.lower() for name in (*hosts, *sites.names))
        self._sites = sites

    async def __call__(self, scope: AsgiMessage, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        exchange = GuardedExchange(headers, receive, send)
        response: Any
        if (problem := self._find_refusal(headers, scope.get("server"))) is not None:
            response = responses.make_error_response(problem)
        else:
            shared_with = self._make_cors_headers(headers)
            exchange.extra |= shared_with
            if shared_with and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                exchange.extra |= _PREFLIGHT
                response = responses.make_response(None)
            else:
                scope, response = {**scope, "path": scope["raw_path"].decode("ascii")}, self._app
        await response(scope, exchange.receive, exchange.send)

    def _find_refusal(self, headers: Headers, server: tuple[str, int | None] | None) -> HttpError | None:
        host = origins.parse_hostname(",".join(headers.getlist("host")))
        # The address that the connection reached: no page can make its own name lead there and pass for ours.
        served = {*origins.LOOPBACK, *self._hosts, *((server[0],) if server is not None else ())}
        if host is None or (host not in served and upgrade.ANY_HOST not in served):
            return HttpError(403, "this host name is not served here", hint="add it to the setting `origins`")
        if "origin" in headers and judge_origin(headers, self._sites) is OriginVerdict.FOREIGN:
            return HttpError(403, "pages of another site may not connect", hint="add its origin to the setting `origins`")
        return None

    def _make_cors_headers(self, headers: Headers) -> dict[str, str]:
        """Returns the headers that let a browser give our answer to another site's page."""
        origin = ",".join(headers.getlist("origin"))
        return {"Access-Control-Allow-Origin": origin, "Vary": "Origin"} if self._sites.is_shared_with(origin) else {}


def judge_origin(headers: Headers, sites: AllowedOrigins) -> OriginVerdict:
    """Judges the page that sends a request, which must have an `Origin`."""
    origin, host = (",".join(headers.getlist(name)) for name in ("origin", "host"))
    return sites.judge(origin, host, forwarded_proto=headers.get("x-forwarded-proto", ""))


class OwnerSocketGuard:
    """The guard of the owner's socket: it adds the headers of every response. The socket needs no token, so no page is served
    there, not even through a program that forwards a port to it."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: AsgiMessage, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        exchange = GuardedExchange(headers, receive, send)
        if "origin" in headers:
            response: Any = responses.make_error_response(
                HttpError(403, "no page is served at this socket", hint="use the HTTP port")
            )
        else:
            scope, response = {**scope, "path": scope["raw_path"].decode("ascii")}, self._app
        await response(scope, exchange.receive, exchange.send)


class GuardedExchange:
    """One request and its response, which gets our headers and waits until the request's body is read."""

    def __init__(self, headers: Headers, receive: Any, send: Any) -> None:
        self.extra: dict[str, str] = {}
        self._receive = receive
        self._send = send
        self._unread = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        self._expects_continue = "expect" in headers
        """The client sends no body before `100 Continue`, so an answer cannot cross it."""

    async def receive(self) -> AsgiMessage:
        message: AsgiMessage = await self._receive()
        self._expects_continue = False
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._unread = False
        return message

    async def send(self, message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in {**_RESPONSE_HEADERS, **self.extra}.items():
                headers.setdefault(name, value)
            if self._unread:
                headers["Connection"] = "close"
            await self._send(message)
        elif self._unread and not self._expects_continue and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._drain_request()
            await self._send({"type": "http.response.body", "body": b""})
        else:
            await self._send(message)

    async def _drain_request(self) -> None:
        thrown_away = 0
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT):
                while self._unread and thrown_away <= MAX_DRAINED_BYTES:
                    thrown_away += len((await self.receive()).get("body", b""))
        except TimeoutError:
            pass
