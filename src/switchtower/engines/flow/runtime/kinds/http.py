"""The kinds `http.get` and `http.request`. They use the HTTP library that comes with the MCP SDK, and import it with the first
step that needs it.

An address may contain a token, so messages name the host alone.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar
from urllib.parse import urlsplit

from switchtower.engines.flow.runtime import event_buffer, failures, values
from switchtower.engines.flow.runtime.kinds import port
from switchtower.tools import concurrency

LONGEST_ANSWER = 1024 * 1024
_TIMEOUT = 60.0
"""The seconds for a connection, and between two pieces of a response. A step's own limit covers all of it."""
_MOST_REDIRECTS = 5
_MAY_PASS = frozenset({408, 425, 429})
"""The status codes below 500 that may change with another attempt."""


class HttpGetKind:
    summary = "Fetch an address"
    inputs: ClassVar[Mapping[str, str]] = {
        "url": "begins with http:// or https://",
        "headers": "names and texts",
        "params": "names and texts of the query",
        "fail_on_status": "whether a status from 400 fails the step; `true` by default",
    }
    outputs: ClassVar[Mapping[str, str]] = {
        "status": "the number",
        "headers": "names and texts",
        "body": "the text, at most 1 MiB",
        "json": "the body, where it is JSON",
    }

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        return await _request("GET", given)


class HttpRequestKind:
    summary = "Send an HTTP request"
    inputs: ClassVar[Mapping[str, str]] = {
        **HttpGetKind.inputs,
        "method": "`GET` by default",
        "body": "a text to send; or `json`",
        "json": "a value to send as JSON",
    }
    outputs = HttpGetKind.outputs

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        method = values.get_text(given, "method", "GET").upper()
        if not (method.isascii() and method.isalpha() and len(method) <= 20):
            raise failures.StepFailed("`method` is not the name of an HTTP method")
        return await _request(method, given)


def _load() -> Any:
    import logging

    import httpx2

    for name in ("httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they log addresses
    return httpx2


async def _request(method: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    url = values.get_text(given, "url")
    host = _find_host(url)
    headers, content = values.get_texts(given, "headers"), None
    if method != "GET" and "json" in given:
        content = event_buffer.encode_json(given["json"])
        headers = {"content-type": "application/json", **headers}
    elif method != "GET" and "body" in given:
        content = values.get_text(given, "body").encode("utf-8", "replace")
    does_fail = values.get_flag(given, "fail_on_status", default=True)
    params = values.get_texts(given, "params")
    httpx2 = await concurrency.run_in_thread(_load)
    try:
        async with httpx2.AsyncClient(timeout=_TIMEOUT, follow_redirects=True, max_redirects=_MOST_REDIRECTS) as client:
            async with client.stream(method, url, headers=headers, params=params or None, content=content) as response:
                body = await _read_body(response, host)
                answer = _make_outputs(response, body)
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.TooManyRedirects, UnicodeError, ValueError, TypeError) as error:
        raise failures.StepFailed(f"`{host}` cannot be asked ({type(error).__name__})") from None
    except httpx2.HTTPError as error:
        raise failures.StepFailed(f"`{host}` cannot be reached ({type(error).__name__})", retriable=True) from None
    status = answer["status"]
    if does_fail and status >= 400:
        raise failures.StepFailed(
            f"`{host}` answered {status}",
            retriable=status >= 500 or status in _MAY_PASS,
            details={"status": status, "body": event_buffer.clip_text(answer["body"], 2000)},
        )
    return answer


async def _read_body(response: Any, host: str) -> bytes:
    body = bytearray()
    async for piece in response.aiter_bytes(64 * 1024):
        body += piece
        if len(body) > LONGEST_ANSWER:
            raise failures.StepFailed(f"the answer of `{host}` is larger than {LONGEST_ANSWER // 1024**2} MiB")
    return bytes(body)


def _make_outputs(response: Any, body: bytes) -> dict[str, Any]:
    kind = response.headers.get("content-type", "")
    try:
        text = body.decode(response.charset_encoding or "utf-8", "replace")
    except LookupError:
        text = body.decode("utf-8", "replace")
    answer = {"status": response.status_code, "headers": dict(response.headers), "body": text}
    if "json" in kind:
        with suppress(ValueError, RecursionError):  # the content type may be wrong; the body is kept unchanged
            answer["json"] = json.loads(text)
    return answer


def _find_host(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise failures.StepFailed("`url` is not an address that begins with `http://` or `https://`")
    return host[:200]
