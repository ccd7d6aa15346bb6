"""The one page of a port that is there for its WebSockets: whether the daemon is well."""

from typing import Any

_JSON = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


async def serve_health(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        raise RuntimeError("this app has nothing to begin or to end")  # as ASGI wants it said
    found = scope["path"] == "/healthz" and scope["method"] in ("GET", "HEAD")
    await send({"type": "http.response.start", "status": 200 if found else 404, "headers": _JSON})
    await send({"type": "http.response.body", "body": b'{"ok":true}' if found else b'{"error":"not found"}'})
