"""Servers over streamable HTTP on loopback: a real one made with the official SDK, and one that answers as it is told."""

import asyncio
import gzip
import json
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from tests.tools.mcp.parts import SERVERS, Bench

TOKEN = "t0ken-that-nobody-may-see"


class WebServer:
    """The friendly server, which can be taken down and brought back at the same address."""

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def up(self) -> None:
        with socket.create_server(("127.0.0.1", self.port)) as listener:
            self.port = listener.getsockname()[1]
            program = [sys.executable, str(SERVERS / "friendly.py"), "http", str(listener.fileno())]
            self._process = subprocess.Popen(program, pass_fds=[listener.fileno()])

    def down(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def web() -> Iterator[WebServer]:
    server = WebServer()
    server.up()
    yield server
    server.down()


async def test_tools_over_http_can_be_called_with_the_headers_of_the_entry(bench: Bench, web: WebServer) -> None:
    bench.variables["TOKEN"] = TOKEN
    bench.configure({"web": {"type": "http", "url": web.url, "headers": {"Authorization": "Bearer ${TOKEN}"}}})
    tools = await bench.tools()
    assert (await bench.call(tools["web_add"], a=2, b=3)).text == "5"
    assert json.loads((await bench.call(tools["web_headers"])).text)["authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in bench.asked[0].subject
    assert TOKEN not in repr(bench.asked[0].shown)
    assert TOKEN in bench.learnt
    assert (await bench.call(tools["web_count"], to=2)).text == "counted"
    assert bench.progress == ["1 of 2: at 1\n", "2 of 2: at 2\n"]
    assert bench.reports == []


async def test_a_cancelled_call_over_http_is_cancelled_at_the_server(bench: Bench, web: WebServer) -> None:
    bench.configure({"web": {"url": web.url}})
    tools = await bench.tools()
    witness = bench.workspace / "witness"
    call = asyncio.create_task(bench.call(tools["web_wait"], file=str(witness)))
    async with asyncio.timeout(60):
        while not witness.exists():
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while witness.read_text() != "cancelled":
            await asyncio.sleep(0.01)


async def test_a_server_that_goes_away_and_comes_back_is_used_again(bench: Bench, web: WebServer) -> None:
    bench.configure({"web": {"url": web.url}})
    tools = await bench.tools()
    web.down()
    output = await bench.call(tools["web_add"], a=1, b=1)
    assert output.is_error
    assert "cannot be reached" in output.text
    assert await bench.tools() == {}
    assert bench.codes() == ["MCP_SERVER_FAILED"]
    assert "cannot be reached" in bench.told()
    web.up()
    assert (await bench.call(tools["web_add"], a=1, b=1)).text == "2"
    tools = await bench.tools()
    assert (await bench.call(tools["web_add"], a=2, b=2)).text == "4"


async def test_a_server_that_dies_during_a_call_is_an_error_and_not_the_end(bench: Bench, web: WebServer) -> None:
    bench.configure({"web": {"url": web.url}})
    tools = await bench.tools()
    assert (await bench.call(tools["web_leave"], code=1)).is_error
    web.down()
    web.up()
    assert (await bench.call(tools["web_add"], a=1, b=1)).text == "2"


class Request:
    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.message: dict[str, Any] = json.loads(body) if body else {}


Answer = tuple[int, dict[str, str], bytes]
Respond = Callable[[Request], Answer | None]


@asynccontextmanager
async def answering(respond: Respond) -> AsyncIterator[tuple[str, list[Request]]]:
    """An HTTP server that answers each request as it is told; `None` is silence."""
    seen: list[Request] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while line := await reader.readline():
                method, path, _ = line.decode().split(" ", 2)
                headers: dict[str, str] = {}
                while (field := (await reader.readline()).decode().strip()) != "":
                    name, _, value = field.partition(":")
                    headers[name.lower()] = value.strip()
                request = Request(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))
                seen.append(request)
                answer = respond(request)
                if answer is None:
                    await asyncio.Event().wait()
                    return
                status, fields, body = answer
                head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
                writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{head}\r\n".encode() + body)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/mcp", seen
    finally:
        server.close()


def result(request: Request, value: dict[str, Any], **fields: str) -> Answer:
    body = json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": value}).encode()
    return 200, {"content-type": "application/json", **fields}, body


def older(request: Request, *, call: Callable[[Request], Answer | None], session: str = "s1") -> Answer | None:
    """A server of the versions with a handshake and a session."""
    match request.message.get("method"):
        case "initialize":
            version = request.message["params"]["protocolVersion"]
            info = {"name": "older", "version": "1"}
            ready = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            return result(request, ready, **{"mcp-session-id": session})
        case "tools/list":
            return result(request, {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]})
        case "tools/call":
            return call(request)
        case None:
            return 405, {}, b""
        case method if method.startswith("notifications/"):
            return 202, {}, b""
        case _:
            return 400, {}, b""


def fine(request: Request) -> Answer:
    return result(request, {"content": [{"type": "text", "text": "fine"}]})


async def test_a_session_that_the_server_forgot_is_begun_anew(bench: Bench) -> None:
    known = ["s1"]

    def respond(request: Request) -> Answer | None:
        if request.message.get("method") != "initialize" and request.headers.get("mcp-session-id", known[0]) != known[0]:
            return 404, {}, b""
        return older(request, call=fine, session=known[0])

    async with answering(respond) as (url, _):
        bench.configure({"web": {"url": url}})
        tools = await bench.tools()
        assert (await bench.call(tools["web_go"])).text == "fine"
        known[0] = "s2"
        # It did not act on the call that it refused, so that is made again.
        assert (await bench.call(tools["web_go"])).text == "fine"
        assert bench.codes() == ["MCP_SERVER_RESTARTED"]
        assert "has forgotten our session" in bench.told()
        known[0] = "s3"
        tools = await bench.tools()
        assert (await bench.call(tools["web_go"])).text == "fine"
        assert bench.codes() == ["MCP_SERVER_RESTARTED"] * 2
        await bench.servers.close()


async def test_a_redirect_to_elsewhere_is_not_followed(bench: Bench) -> None:
    async with answering(lambda request: older(request, call=fine)) as (elsewhere, seen):
        async with answering(lambda request: (307, {"location": elsewhere}, b"")) as (url, _):
            bench.configure({"web": {"url": url, "headers": {"Authorization": f"Bearer {TOKEN}"}}})
            assert await bench.tools() == {}
    assert seen == []
    assert bench.codes() == ["MCP_SERVER_FAILED"]
    assert "not followed" in bench.told()
    assert TOKEN not in bench.told()


@pytest.mark.parametrize(("status", "words"), [(401, "HTTP 401; hint: check the `headers`"), (500, "HTTP 500")])
async def test_a_refusal_says_what_it_was(bench: Bench, status: int, words: str) -> None:
    async with answering(lambda request: (status, {}, TOKEN.encode())) as (url, _):
        bench.configure({"web": {"url": url, "headers": {"Authorization": TOKEN}}})
        assert await bench.tools() == {}
    assert words in bench.told()
    assert TOKEN not in bench.told()


def _huge(request: Request) -> Answer:
    return result(request, {"content": [{"type": "text", "text": "h" * 20_000_000}]})


def _huge_event(request: Request) -> Answer:
    return 200, {"content-type": "text/event-stream"}, b"event: message\ndata: " + _huge(request)[2] + b"\n\n"


def _bomb(request: Request) -> Answer:
    status, fields, body = _huge(request)
    return status, {**fields, "content-encoding": "gzip"}, gzip.compress(body)


def _rubbish(request: Request) -> Answer:
    return 200, {"content-type": "application/json"}, b"\x00\xff rubbish"


def _page(request: Request) -> Answer:
    return 200, {"content-type": "text/html"}, b"<h1>hello</h1>"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (_huge, "longer than 8 MiB"),
        (_huge_event, "exceeded"),
        (_bomb, "compressed"),
        (_rubbish, "Failed to parse"),
        (_page, "Unexpected content type"),
        (lambda request: (202, {}, b""), "202 Accepted"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_an_error_and_the_next_call_works(
    bench: Bench, call: Callable[[Request], Answer], words: str
) -> None:
    calls = iter([call, fine])
    async with answering(lambda request: older(request, call=lambda asked: next(calls)(asked))) as (url, _):
        bench.configure({"web": {"url": url}})
        tools = await bench.tools()
        output = await bench.call(tools["web_go"])
        assert output.is_error
        assert words in output.text
        assert (await bench.call(tools["web_go"])).text == "fine"
        assert bench.reports == []
        await bench.servers.close()


async def test_a_server_that_never_answers_over_http_is_given_up_on(bench: Bench) -> None:
    bench.manager(call_s=0.3)
    async with answering(lambda request: older(request, call=lambda asked: None)) as (url, _):
        bench.configure({"web": {"url": url}})
        output = await bench.call((await bench.tools())["web_go"])
        assert "did not answer within 0.3 s" in output.text
        await bench.servers.close()


async def test_nothing_secret_is_logged_whatever_the_level(
    bench: Bench, web: WebServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    bench.configure({"web": {"url": f"{web.url}?token={TOKEN}", "headers": {"Authorization": f"Bearer {TOKEN}"}}})
    tools = await bench.tools()
    await bench.call(tools["web_add"], a=1, b=1)
    web.down()
    await bench.call(tools["web_add"], a=1, b=1)
    await bench.servers.close()
    assert TOKEN not in caplog.text
    assert TOKEN not in bench.told()
