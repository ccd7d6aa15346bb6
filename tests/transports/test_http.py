import asyncio
import contextlib
import logging
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.transports.conftest import Dial, Serve

from switchtower.transports import stream


async def get(port: int, path: str = "/", host: str = "127.0.0.1") -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    status, *lines = head.decode().split("\r\n")
    return int(status.split()[1]), dict(line.split(": ", 1) for line in lines), body


async def test_an_app_is_served_on_a_free_port(serve: Serve) -> None:
    async def echo(request: Request) -> Response:
        return JSONResponse({"path": request.url.path, "ready": request.state.ready})

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, bool]]:
        yield {"ready": True}
        ended.set()

    ended = asyncio.Event()
    server = await serve(Starlette(routes=[Route("/page", echo)], lifespan=lifespan))
    assert server.listener.port > 0
    assert server.listener.url == f"http://127.0.0.1:{server.listener.port}"
    status, headers, body = await get(server.listener.port, "/page")
    assert (status, body) == (200, b'{"path":"/page","ready":true}')
    assert parsedate_to_datetime(headers["date"]).tzinfo is not None
    assert "server" not in headers
    assert (await get(server.listener.port, "/nowhere"))[0] == 404
    await server.listener.close()
    assert ended.is_set()
    await server.listener.close()


async def test_an_address_of_all_interfaces_is_reached_at_loopback(serve: Serve) -> None:
    server = await serve(host="0.0.0.0")
    assert server.listener.url.startswith("http://127.0.0.1:")


async def test_a_port_that_is_taken_is_named_with_a_remedy(serve: Serve) -> None:
    server = await serve()
    with pytest.raises(stream.AddressInUse, match=rf"127\.0\.0\.1:{server.listener.port}; hint: .*another port"):
        await serve(port=server.listener.port)
    assert (await get(server.listener.port))[2] == b"hello"


@pytest.mark.parametrize("host", ["203.0.113.1", "no-such-host.invalid"])
async def test_a_host_that_is_not_ours_is_named_with_a_remedy(serve: Serve, host: str) -> None:
    with pytest.raises(stream.AddressUnusable, match=rf"{host}:0 .*hint: use `127\.0\.0\.1`"):
        await serve(host=host)


async def test_tokens_reach_no_log_at_any_level(serve: Serve, connect_raw: Dial, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    logging.getLogger("picows").setLevel(1)
    server = await serve()
    accepted = await connect_raw(server.listener.port, "/ws?token=hush-hush", Authorization="Bearer hush-hush")
    refused = await connect_raw(server.listener.port, "/elsewhere?token=hush-hush")
    assert (accepted.status, refused.status) == (101, 404)
    assert (await get(server.listener.port, "/?token=hush-hush"))[0] == 200
    server.inboxes[0].stream.close()
    await server.listener.close(grace=0.01)
    assert "hush" not in caplog.text


async def test_an_answer_under_way_is_finished_before_the_listener_is_closed(serve: Serve) -> None:
    asked, finish = asyncio.Event(), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        asked.set()
        await finish.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    server = await serve(_reject_websockets(slow))
    answer = asyncio.create_task(get(server.listener.port))
    await asked.wait()
    closing = asyncio.create_task(server.listener.close())
    asyncio.get_running_loop().call_soon(finish.set)
    assert b"done" in (await answer)[2]
    await closing


async def test_an_answer_that_never_ends_is_cut_off(serve: Serve) -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    server = await serve(_reject_websockets(endless))
    _, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await asked.wait()
    await server.listener.close(grace=0.01)
    assert cancelled.is_set()
    writer.close()


async def test_signals_are_left_to_the_process(serve: Serve) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    await serve()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_the_other_transports_load_no_web_server() -> None:
    program = (
        "import sys; from switchtower.transports import unix as socket_file, stream, unix, upgrade; "
        "from switchtower.testing.memory import stream;"
        "print([name for name in ('uvicorn', 'starlette', 'picows', 'h11', 'uvloop') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def _reject_websockets(app: Any) -> Any:
    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await app(scope, receive, send)

    return guarded
