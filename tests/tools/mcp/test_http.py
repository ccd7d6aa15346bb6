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
from tests.tools.mcp.parts import SERVERS, McpSessionHarness

TOKEN = "t0ken-that-nobody-may-see"


class McpHttpServer:
    """The friendly server, which can be taken down and brought back at the same address."""

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def start(self) -> None:
        with socket.create_server(("127.0.0.1", self.port)) as listener:
            self.port = listener.getsockname()[1]
            program = [sys.executable, str(SERVERS / "friendly.py"), "http", str(listener.fileno())]
            self._process = subprocess.Popen(program, pass_fds=[listener.fileno()])

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def web() -> Iterator[McpHttpServer]:
    server = McpHttpServer()
    server.start()
    yield server
    server.stop()


async def test_tools_over_http_can_be_called_with_the_headers_of_the_entry(
    mcp_session: McpSessionHarness, web: McpHttpServer
) -> None:
    mcp_session.variables["TOKEN"] = TOKEN
    mcp_session.configure({"web": {"type": "http", "url": web.url, "headers": {"Authorization": "Bearer ${TOKEN}"}}})
    tools = await mcp_session.list_tools()
    assert (await mcp_session.call(tools["web_add"], a=2, b=3)).text == "5"
    assert json.loads((await mcp_session.call(tools["web_headers"])).text)["authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in mcp_session.asked[0].subject
    assert TOKEN not in repr(mcp_session.asked[0].shown)
    assert TOKEN in mcp_session.learnt
    assert (await mcp_session.call(tools["web_count"], to=2)).text == "counted"
    assert mcp_session.progress == ["1 of 2: at 1\n", "2 of 2: at 2\n"]
    assert mcp_session.reports == []


async def test_a_cancelled_call_over_http_is_cancelled_at_the_server(mcp_session: McpSessionHarness, web: McpHttpServer) -> None:
    mcp_session.configure({"web": {"url": web.url}})
    tools = await mcp_session.list_tools()
    witness = mcp_session.workspace / "witness"
    call = asyncio.create_task(mcp_session.call(tools["web_wait"], file=str(witness)))
    async with asyncio.timeout(60):
        while not witness.exists():
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while witness.read_text() != "cancelled":
            await asyncio.sleep(0.01)


async def test_a_server_that_goes_away_and_comes_back_is_used_again(mcp_session: McpSessionHarness, web: McpHttpServer) -> None:
    mcp_session.configure({"web": {"url": web.url}})
    tools = await mcp_session.list_tools()
    web.stop()
    output = await mcp_session.call(tools["web_add"], a=1, b=1)
    assert output.is_error
    assert "cannot be reached" in output.text
    assert await mcp_session.list_tools() == {}
    assert mcp_session.list_codes() == ["MCP_SERVER_FAILED"]
    assert "cannot be reached" in mcp_session.read_reports()
    web.start()
    assert (await mcp_session.call(tools["web_add"], a=1, b=1)).text == "2"
    tools = await mcp_session.list_tools()
    assert (await mcp_session.call(tools["web_add"], a=2, b=2)).text == "4"


async def test_a_server_that_dies_during_a_call_is_an_error_and_not_the_end(
    mcp_session: McpSessionHarness, web: McpHttpServer
) -> None:
    mcp_session.configure({"web": {"url": web.url}})
    tools = await mcp_session.list_tools()
    assert (await mcp_session.call(tools["web_leave"], code=1)).is_error
    web.stop()
    web.start()
    assert (await mcp_session.call(tools["web_add"], a=1, b=1)).text == "2"


class McpHttpRequest:
    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.message: dict[str, Any] = json.loads(body) if body else {}


Answer = tuple[int, dict[str, str], bytes]
Respond = Callable[[McpHttpRequest], Answer | None]


@asynccontextmanager
async def serve_answers(respond: Respond) -> AsyncIterator[tuple[str, list[McpHttpRequest]]]:
    """An HTTP server that answers each request as it is told; `None` is silence."""
    seen: list[McpHttpRequest] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while line := await reader.readline():
                method, path, _ = line.decode().split(" ", 2)
                headers: dict[str, str] = {}
                while (field := (await reader.readline()).decode().strip()) != "":
                    name, _, value = field.partition(":")
                    headers[name.lower()] = value.strip()
                request = McpHttpRequest(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))
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


def make_result(request: McpHttpRequest, value: dict[str, Any], **fields: str) -> Answer:
    body = json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": value}).encode()
    return 200, {"content-type": "application/json", **fields}, body


def answer_older_version(
    request: McpHttpRequest, *, call: Callable[[McpHttpRequest], Answer | None], session: str = "s1"
) -> Answer | None:
    """A server of the versions with a handshake and a session."""
    match request.message.get("method"):
        case "initialize":
            version = request.message["params"]["protocolVersion"]
            info = {"name": "older", "version": "1"}
            ready = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            return make_result(request, ready, **{"mcp-session-id": session})
        case "tools/list":
            return make_result(request, {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]})
        case "tools/call":
            return call(request)
        case None:
            return 405, {}, b""
        case method if method.startswith("notifications/"):
            return 202, {}, b""
        case _:
            return 400, {}, b""


def answer_fine(request: McpHttpRequest) -> Answer:
    return make_result(request, {"content": [{"type": "text", "text": "fine"}]})


async def test_a_session_that_the_server_forgot_is_begun_anew(mcp_session: McpSessionHarness) -> None:
    known = ["s1"]

    def respond(request: McpHttpRequest) -> Answer | None:
        if request.message.get("method") != "initialize" and request.headers.get("mcp-session-id", known[0]) != known[0]:
            return 404, {}, b""
        return answer_older_version(request, call=answer_fine, session=known[0])

    async with serve_answers(respond) as (url, _):
        mcp_session.configure({"web": {"url": url}})
        tools = await mcp_session.list_tools()
        assert (await mcp_session.call(tools["web_go"])).text == "fine"
        known[0] = "s2"
        # It did not act on the call that it refused, so that is made again.
        assert (await mcp_session.call(tools["web_go"])).text == "fine"
        assert mcp_session.list_codes() == ["MCP_SERVER_RESTARTED"]
        assert "has forgotten our session" in mcp_session.read_reports()
        known[0] = "s3"
        tools = await mcp_session.list_tools()
        assert (await mcp_session.call(tools["web_go"])).text == "fine"
        assert mcp_session.list_codes() == ["MCP_SERVER_RESTARTED"] * 2
        await mcp_session.servers.close()


async def test_a_redirect_to_elsewhere_is_not_followed(mcp_session: McpSessionHarness) -> None:
    async with serve_answers(lambda request: answer_older_version(request, call=answer_fine)) as (elsewhere, seen):
        async with serve_answers(lambda request: (307, {"location": elsewhere}, b"")) as (url, _):
            mcp_session.configure({"web": {"url": url, "headers": {"Authorization": f"Bearer {TOKEN}"}}})
            assert await mcp_session.list_tools() == {}
    assert seen == []
    assert mcp_session.list_codes() == ["MCP_SERVER_FAILED"]
    assert "not followed" in mcp_session.read_reports()
    assert TOKEN not in mcp_session.read_reports()


@pytest.mark.parametrize(("status", "words"), [(401, "HTTP 401; hint: check the `headers`"), (500, "HTTP 500")])
async def test_a_refusal_says_what_it_was(mcp_session: McpSessionHarness, status: int, words: str) -> None:
    async with serve_answers(lambda request: (status, {}, TOKEN.encode())) as (url, _):
        mcp_session.configure({"web": {"url": url, "headers": {"Authorization": TOKEN}}})
        assert await mcp_session.list_tools() == {}
    assert words in mcp_session.read_reports()
    assert TOKEN not in mcp_session.read_reports()


def _answer_huge(request: McpHttpRequest) -> Answer:
    return make_result(request, {"content": [{"type": "text", "text": "h" * 20_000_000}]})


def _answer_huge_event(request: McpHttpRequest) -> Answer:
    return 200, {"content-type": "text/event-stream"}, b"event: message\ndata: " + _answer_huge(request)[2] + b"\n\n"


def _answer_bomb(request: McpHttpRequest) -> Answer:
    status, fields, body = _answer_huge(request)
    return status, {**fields, "content-encoding": "gzip"}, gzip.compress(body)


def _answer_rubbish(request: McpHttpRequest) -> Answer:
    return 200, {"content-type": "application/json"}, b"\x00\xff rubbish"


def _answer_page(request: McpHttpRequest) -> Answer:
    return 200, {"content-type": "text/html"}, b"<h1>hello</h1>"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (_answer_huge, "longer than 8 MiB"),
        (_answer_huge_event, "exceeded"),
        (_answer_bomb, "compressed"),
        (_answer_rubbish, "Failed to parse"),
        (_answer_page, "Unexpected content type"),
        (lambda request: (202, {}, b""), "202 Accepted"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_an_error_and_the_next_call_works(
    mcp_session: McpSessionHarness, call: Callable[[McpHttpRequest], Answer], words: str
) -> None:
    calls = iter([call, answer_fine])
    async with serve_answers(lambda request: answer_older_version(request, call=lambda asked: next(calls)(asked))) as (url, _):
        mcp_session.configure({"web": {"url": url}})
        tools = await mcp_session.list_tools()
        output = await mcp_session.call(tools["web_go"])
        assert output.is_error
        assert words in output.text
        assert (await mcp_session.call(tools["web_go"])).text == "fine"
        assert mcp_session.reports == []
        await mcp_session.servers.close()


async def test_a_server_that_never_answers_over_http_is_given_up_on(mcp_session: McpSessionHarness) -> None:
    mcp_session.make_manager(call_s=0.3)
    async with serve_answers(lambda request: answer_older_version(request, call=lambda asked: None)) as (url, _):
        mcp_session.configure({"web": {"url": url}})
        output = await mcp_session.call((await mcp_session.list_tools())["web_go"])
        assert "did not answer within 0.3 s" in output.text
        await mcp_session.servers.close()


async def test_nothing_secret_is_logged_whatever_the_level(
    mcp_session: McpSessionHarness, web: McpHttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    mcp_session.configure({"web": {"url": f"{web.url}?token={TOKEN}", "headers": {"Authorization": f"Bearer {TOKEN}"}}})
    tools = await mcp_session.list_tools()
    await mcp_session.call(tools["web_add"], a=1, b=1)
    web.stop()
    await mcp_session.call(tools["web_add"], a=1, b=1)
    await mcp_session.servers.close()
    assert TOKEN not in caplog.text
    assert TOKEN not in mcp_session.read_reports()
