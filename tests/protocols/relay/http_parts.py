"""A hub with its accounts behind both of its HTTP servers, all real; and a client that says exactly what it is told to.

Only the programs in the terminals are doubles: each does what its test says.
"""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from switchtower.accounts.accounts import Accounts
from switchtower.accounts.passwords import HashCost
from switchtower.core import codec, commands, events, redact
from switchtower.core.ports import engine, journal
from switchtower.protocols.relay import messages, wire_values
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.protocols.relay.hub.hub import Hub
from switchtower.protocols.relay.hub.mirror import Mirror
from switchtower.protocols.relay.settings import HostSettings
from switchtower.runtime.runtime import Runtime
from switchtower.testing.host_services import StubHostServices
from switchtower.testing.memory.journal import MemoryJournal
from switchtower.testing.memory.registry import MemoryRegistry
from switchtower.transports import http, upgrade
from switchtower.transports.stream import ConnectionOrigin
from switchtower.web_api import app as web_api_app

TIMEOUT = 60.0
OWNER_TOKEN = "owner-token-that-nobody-guesses"
SECRET = b"a secret of thirty-two bytes ...."
PASSWORD = "correct horse battery"
ORIGIN = "hub.example"
KEEP_ALL = journal.Retention(0, 0)

Work = Callable[[engine.Task, engine.RunContext], Awaitable[engine.RunResult]]


class ByteHttpReply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class HttpExchange:
    """One connection on which one request is made, piece by piece if need be."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.chunked = False

    def begin(self, method: str, path: str, headers: dict[str, str]) -> None:
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        self.writer.write("\r\n".join(lines).encode())

    async def read_head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(TIMEOUT):
            first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
        self.chunked = headers.get("transfer-encoding") == "chunked"
        return int(first.split()[1]), headers

    async def read_chunk(self) -> bytes:
        """The next piece of a chunked answer; empty at its end."""
        async with asyncio.timeout(TIMEOUT):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def read_rest(self) -> bytes:
        pieces = []
        while piece := await self.read_chunk():
            pieces.append(piece)
        return b"".join(pieces)

    async def read_until(self, wanted: bytes) -> bytes:
        got = b""
        while wanted not in got:
            piece = await self.read_chunk()
            assert piece, f"ended before {wanted!r} came, after {got!r}"
            got += piece
        return got

    async def answer(self, method: str = "GET") -> ByteHttpReply:
        status, headers = await self.read_head()
        if method == "HEAD" or status == 204:
            return ByteHttpReply(status, headers, b"")
        async with asyncio.timeout(TIMEOUT):
            body = await self.read_rest() if self.chunked else await self.reader.readexactly(int(headers["content-length"]))
        return ByteHttpReply(status, headers, body)

    def send_chunk(self, data: bytes) -> None:
        self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def leave(self) -> None:
        self.writer.transport.abort()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


class ByteHttpClient:
    """`token` None sends no `Authorization`."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], token: str | None) -> None:
        self.token = token
        self._connect = connect
        self._open: list[HttpExchange] = []

    async def open(self, method: str, path: str, **headers: str) -> HttpExchange:
        exchange = HttpExchange(*await self._connect())
        self._open.append(exchange)
        told = {"Host": "127.0.0.1"}
        if self.token is not None:
            told["Authorization"] = f"Bearer {self.token}"
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        exchange.begin(method, path, told)
        return exchange

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> ByteHttpReply:
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if content or method in ("POST", "PUT", "PATCH"):
            headers.setdefault("Content_Length", str(len(content)))
        exchange = await self.open(method, path, **headers)
        exchange.writer.write(content)
        answer = await exchange.answer(method)
        await exchange.leave()
        return answer

    async def get(self, path: str, **headers: str) -> ByteHttpReply:
        return await self.ask("GET", path, **headers)

    async def post(self, path: str, body: Any = None, **headers: str) -> ByteHttpReply:
        return await self.ask("POST", path, body, **headers)

    async def close(self) -> None:
        for exchange in self._open:
            await exchange.leave()


class TerminalEngineStub:
    """An engine that is a program in a terminal, as the journal sees one. `work` is what it does."""

    def __init__(self) -> None:
        self.work: Work = wait_until_stopped

    async def run(self, task: engine.Task, context: engine.RunContext) -> engine.RunResult:
        return await self.work(task, context)


async def wait_until_stopped(task: engine.Task, context: engine.RunContext) -> engine.RunResult:
    await asyncio.Event().wait()
    raise AssertionError


def put_out(text: str) -> events.ToolProgressed:
    return events.ToolProgressed(call_id="call_1", text=text)


class WebApiHarness:
    def __init__(self, folder: Path, *, retention: journal.Retention = KEEP_ALL, registry: MemoryRegistry | None = None) -> None:
        self.folder = folder
        self.now = 1_700_000_000.0
        self.program = TerminalEngineStub()
        self.of_a_run: set[str] = set()
        """Addresses whose processes belong to a run; `unix` stands for all that come over the socket."""
        self.own_run = "run_of_another_session"
        """The run that these belong to."""
        self.journal = MemoryJournal()
        self.registry = registry or MemoryRegistry()
        self.runtime = Runtime(
            self.journal,
            {"pty": self.program, "agent": self.program},
            StubHostServices(),
            redactor=redact.Redactor(),
            approval_timeout_ms=3_600_000,
            receipt_ttl_ms=3_600_000,
            retention=retention,
        )
        settings = HostSettings(
            host_id="host_1", version="1.2.3", default_cwd=str(folder), approval_timeout_ms=3_600_000, log_path=None
        )
        self.rpc = HostRpcHandler(self.runtime, settings)
        self.hub = Hub(self.runtime, self.registry, self.rpc, host_name="here", lost_after_s=60)
        self.accounts = Accounts(self.registry, SECRET, OWNER_TOKEN, lambda: self.now, cost=HashCost(1, 8, 1))
        self.path = folder / "hostd.sock"

    def find_run(self, origin: ConnectionOrigin) -> str | None:
        return self.own_run if origin.transport in self.of_a_run else None

    async def connect_from_run(self, session_id: str) -> None:
        """From now on the socket's clients are processes of that session's run."""
        card = await self.runtime.find_card(session_id)
        assert card is not None
        assert card.active_run_id is not None
        self.own_run = card.active_run_id
        self.of_a_run.add("unix")

    @contextlib.asynccontextmanager
    async def open_api(self) -> AsyncIterator["WebApiHarness"]:
        async with contextlib.AsyncExitStack() as stack:
            await self.journal.open()
            await self.registry.open()
            await self.runtime.start()
            stack.push_async_callback(self.runtime.stop)
            await self.hub.start()
            stack.push_async_callback(self.hub.close)
            stack.callback(self.accounts.close)
            app = web_api_app.make_app(
                self.hub,
                self.accounts,
                version="1.2.3",
                find_run=self.find_run,
                host="127.0.0.1",
                origins=(ORIGIN,),
                body_timeout_s=0.3,
            )
            self.listener = await http.serve(
                app, "127.0.0.1", 0, _reject_websockets, max_message_bytes=100_000, output_limit_bytes=100_000
            )
            stack.push_async_callback(self.listener.close, grace=0)
            local = web_api_app.make_owner_app(
                self.hub,
                self.accounts,
                self.runtime,
                self.rpc,
                version="1.2.3",
                find_run=self.find_run,
            )
            self.local_listener = await http.serve_unix(local, self.path)
            stack.push_async_callback(self.local_listener.close, grace=0)
            self.app = ByteHttpClient(lambda: asyncio.open_connection("127.0.0.1", self.listener.port), OWNER_TOKEN)
            self.stranger = ByteHttpClient(lambda: asyncio.open_connection("127.0.0.1", self.listener.port), None)
            self.local = ByteHttpClient(lambda: asyncio.open_unix_connection(self.path), None)
            for client in (self.app, self.stranger, self.local):
                stack.push_async_callback(client.close)
            yield self

    async def start_run(self, work: Work = wait_until_stopped, **asked: Any) -> str:
        self.program.work = work
        answer = await self.local.post("/runs", {"tool": "codex", "cmd": "codex --help", **asked})
        assert answer.status == 200, answer.body
        return str(answer.json["run_id"])

    async def start_agent(self) -> str:
        """A session without a terminal."""
        session_id = self.runtime.mint("sess")
        await self.runtime.ask(
            commands.StartSession(
                session_id=session_id,
                engine="agent",
                mode="interactive",
                provider="demo",
                sandbox="local",
                workspace=events.Workspace(root=str(self.folder)),
                attach_token_sha256="0" * 64,
            )
        )
        return session_id

    async def mirror_run(self, run_id: str = "far/1", host_id: str = "host_2") -> str:
        """A run that lives on another host, which is not connected now."""
        stored = asyncio.Event()
        mirror = Mirror(self.runtime, host_id, lambda *_: stored.set())
        data = msgspec.Raw(json.dumps({"tool": "vim", "cwd": "/far", "command": "vim x"}).encode())
        mirror.add([messages.Envelope(type="run.started", run_id=run_id, seq=1, data=data)])
        async with asyncio.timeout(TIMEOUT):
            await stored.wait()
        mirror.close()
        return run_id

    async def list_events(self, run_id: str) -> list[events.AnyEvent]:
        entries = await self.runtime.read_entries(wire_values.parse_run_id(run_id), 0, 1_000_000)
        return [codec.decode(entry.kind, entry.data) for entry in entries]

    async def wait_for_events(self, run_id: str, kind: type[events.Event], count: int = 1) -> list[Any]:
        """All such events of the run, once there are that many."""
        news = asyncio.Event()
        unwatch = self.runtime.watch(lambda *_: news.set())
        try:
            async with asyncio.timeout(TIMEOUT):
                while len(found := [event for event in await self.list_events(run_id) if isinstance(event, kind)]) < count:
                    await news.wait()
                    news.clear()
        finally:
            unwatch()
        return found

    async def wait_for_end(self, run_id: str) -> None:
        await self.wait_for_events(run_id, events.RunCompleted)


def _reject_websockets(request: upgrade.UpgradeRequest) -> upgrade.UpgradeRefusal:
    return upgrade.UpgradeRefusal(404, "none here")


@contextlib.asynccontextmanager
async def open_stage(**options: Any) -> AsyncIterator[WebApiHarness]:
    """In a folder with a short name, because the paths of sockets must be short. It is the home too: what `bash -l` reads there
    is nobody's own."""
    with tempfile.TemporaryDirectory(prefix="tower-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", folder)
        async with WebApiHarness(Path(folder), **options).open_api() as stage:
            yield stage


def make_success() -> engine.RunResult:
    return engine.RunResult(events.Outcome.SUCCESS, "done")
