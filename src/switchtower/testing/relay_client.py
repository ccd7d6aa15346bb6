"""Both ends of relay for tests: an app, a scripted host, and the hub's HTTP API.

Each reads only when the test asks for something, so a test decides which one is slow. They never reconnect or retry, and they
tolerate no error.
"""

import asyncio
import base64
import contextlib
import http.client
import itertools
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from switchtower.testing.wire import UpgradeRefused, WebSocketWire

TIMEOUT = 60.0
"""Seconds that any operation may take before it times out."""
STAMP = "2025-01-01T00:00:00Z"

Frame = dict[str, Any]
FramePredicate = Callable[[Frame], bool]


async def open_websocket(
    http_url: str, path: str, query: Mapping[str, str], headers: Mapping[str, str] | None = None
) -> WebSocketWire:
    """Opens a WebSocket with additional headers. Raises `UpgradeRefused`."""
    address = urlsplit(http_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    key = base64.b64encode(b"sixteen bytes ok").decode()
    sent = {
        "Host": address.netloc,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": key,
        **(headers or {}),
    }
    spelled = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    writer.write(f"GET {path}?{urlencode(query, quote_via=quote)} HTTP/1.1\r\n{spelled}\r\n".encode())
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.transport.abort()
        raise UpgradeRefused(0) from None
    status = int(head.split(None, 2)[1])
    if status != 101:
        writer.transport.abort()
        raise UpgradeRefused(status)
    return WebSocketWire(reader, writer)


class _RelayClient:
    """The common part of both ends of the hub."""

    def __init__(self, wire: WebSocketWire, *, timeout: float = TIMEOUT) -> None:
        self.wire = wire
        self.timeout = timeout
        self.frames: list[Frame] = []
        """All frames that have arrived, in order."""
        self.raw: list[bytes] = []
        self._seen = 0
        """The number of frames that `next` has passed."""
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.wire.abort()

    def make_id(self, kind: str = "q") -> str:
        return f"{kind}{next(self._numbers)}-{id(self):x}"

    async def send_frames(self, *frames: bytes | Mapping[str, object]) -> None:
        """Sends without waiting for a response; bytes are sent unchanged."""
        self.wire.send(*(frame if isinstance(frame, bytes) else msgspec.json.encode(frame) for frame in frames))
        async with asyncio.timeout(self.timeout):
            await self.wire.drain()

    async def receive(self) -> Frame:
        """Returns the next frame as it arrives."""
        async with asyncio.timeout(self.timeout):
            raw = await self.wire.receive()
        frame: Frame = msgspec.json.decode(raw)
        self.raw.append(raw)
        self.frames.append(frame)
        return frame

    async def wait_for(self, wanted: FramePredicate) -> Frame:
        """Returns the first matching frame among all that have arrived or will arrive."""
        place = 0
        while True:
            while place < len(self.frames):
                if wanted(self.frames[place]):
                    return self.frames[place]
                place += 1
            await self.receive()

    async def next(self, wanted: FramePredicate) -> Frame:
        """Like `wait_for`, but searches only after the last match."""
        while True:
            while self._seen < len(self.frames):
                self._seen += 1
                if wanted(self.frames[self._seen - 1]):
                    return self.frames[self._seen - 1]
            await self.receive()

    async def next_of_type(self, type_: str, run_id: str | None = None) -> Frame:
        return await self.next(lambda frame: frame["type"] == type_ and run_id in (None, frame.get("run_id")))

    async def wait_closed(self) -> int | None:
        """Returns the code with which the hub has closed the connection; frames that arrive before are kept."""
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                await self.receive()
        return self.wire.close_code


class RelayApp(_RelayClient):
    """A client of `/ws/app`."""

    @classmethod
    async def open(
        cls, http_url: str, token: str | None, *, headers: Mapping[str, str] | None = None, timeout: float = TIMEOUT
    ) -> Self:
        """Raises `UpgradeRefused`."""
        query = {} if token is None else {"token": token}
        async with asyncio.timeout(timeout):
            return cls(await open_websocket(http_url, "/ws/app", query, headers), timeout=timeout)

    async def send_command(self, type_: str, run_id: str | None = None, /, **data: object) -> None:
        envelope: Frame = {"type": type_, "ts": STAMP, "data": data}
        if run_id is not None:
            envelope["run_id"] = run_id
        await self.send_frames(envelope)

    async def request(self, type_: str, run_id: str | None = None, /, **data: object) -> Frame:
        """Sends an RPC; returns the data of its response, whether or not it succeeded."""
        request_id = str(data.pop("request_id", None) or self.make_id())
        await self.send_command(type_, run_id, request_id=request_id, **data)
        return await self.wait_for_answer(request_id)

    async def wait_for_answer(self, request_id: str) -> Frame:
        frame = await self.wait_for(lambda frame: frame["type"] == "rpc.response" and frame["data"]["request_id"] == request_id)
        data: Frame = frame["data"]
        return data

    async def call(self, type_: str, run_id: str | None = None, /, **data: object) -> Any:
        """Sends an RPC that is expected to succeed; returns its result."""
        answer = await self.request(type_, run_id, **data)
        assert answer["ok"], answer
        return answer.get("result")

    async def start(self, host_id: str, cmd: str, *, cwd: str, tool: str = "test", **fields: object) -> str:
        """Starts a run on that host; returns its id."""
        return str((await self.call("rpc.run.start", host_id=host_id, cmd=cmd, cwd=cwd, tool=tool, **fields))["run_id"])

    async def subscribe(self, run_id: str, **data: object) -> None:
        await self.send_command("run.subscribe", run_id, **data)

    async def wait_until_processed(self) -> None:
        """Returns when everything that was sent before has been processed: commands run in order, and this one is refused."""
        mark = self.make_id("mark")
        await self.send_command("run.send_input", "no-such-run", input_id=mark, text="")
        await self.next(lambda frame: frame["type"] == "run.error" and frame["data"].get("input_id") == mark)

    def list_events(self, run_id: str) -> list[Frame]:
        """Returns the events of a run from the journal that have arrived."""
        return [frame for frame in self.frames if frame.get("run_id") == run_id and "id" in frame]

    def join_output(self, run_id: str) -> str:
        return "".join(frame["data"]["text"] for frame in self.list_events(run_id) if frame["type"] == "run.output")


class RelayHost(_RelayClient):
    """A client of `/ws/host`, which sends only what the test sends."""

    def __init__(self, wire: WebSocketWire, host_id: str, *, timeout: float = TIMEOUT) -> None:
        super().__init__(wire, timeout=timeout)
        self.host_id = host_id

    @classmethod
    async def open(
        cls,
        http_url: str,
        host_id: str,
        token: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT,
        **query: str,
    ) -> Self:
        """Raises `UpgradeRefused`."""
        async with asyncio.timeout(timeout):
            given = {"host_id": host_id, "host_token": token, **query}
            return cls(await open_websocket(http_url, "/ws/host", given, headers), host_id, timeout=timeout)

    def make_event(self, type_: str, run_id: str, seq: object, /, data: object = None, **envelope: object) -> Frame:
        """Returns a numbered message. Further keywords replace fields of the envelope."""
        whole = {"type": type_, "ts": STAMP, "host_id": self.host_id, "run_id": run_id, "seq": seq}
        return {**whole, "data": {} if data is None else data, **envelope}

    def make_started(self, run_id: str, seq: int = 1, *, tool: str = "codex", cwd: str = "/x", command: str = "codex") -> Frame:
        return self.make_event("run.started", run_id, seq, {"tool": tool, "cwd": cwd, "command": command})

    def make_output(self, run_id: str, seq: int, text: str | None = None, **envelope: object) -> Frame:
        told = {"stream": "stdout", "text": f"line {seq}\n" if text is None else text}
        return self.make_event("run.output", run_id, seq, told, **envelope)

    def make_question(self, run_id: str, seq: int, request_id: str, prompt: str = "Proceed?") -> Frame:
        told = {"request_id": request_id, "reason": "permission", "prompt": prompt, "approve_text": "y\n", "deny_text": "n\n"}
        return self.make_event("run.permission_requested", run_id, seq, told)

    async def wait_for_ack(self, run_id: str, seq: int) -> int:
        """Waits for an acknowledgement of this number or a later one; returns the number."""
        frame = await self.wait_for(lambda frame: _count_acked(frame, run_id) >= seq)
        return _count_acked(frame, run_id)

    def list_acks(self, run_id: str) -> list[int]:
        return [seq for frame in self.frames if (seq := _count_acked(frame, run_id)) >= 0]

    async def respond(self, asked: Frame, *, ok: bool = True, **fields: object) -> None:
        """Answers an RPC."""
        data = {"request_id": asked["data"]["request_id"], "ok": ok, "rpc_type": asked["type"], **fields}
        await self.send_frames({"type": "rpc.response", "ts": STAMP, "run_id": asked.get("run_id"), "data": data})

    async def wait_until_read(self) -> None:
        """Returns when everything that was sent before has been read: a message without a number gets an error."""
        mark = self.make_id("mark")
        await self.send_frames({"type": mark, "data": {}})
        await self.next(lambda frame: frame["type"] == "error" and mark in frame["data"]["error"])


def _count_acked(frame: Frame, run_id: str) -> int:
    """-1: it acknowledges nothing of this run."""
    if frame["type"] != "run.ack" or frame["data"]["run_id"] != run_id:
        return -1
    return int(frame["data"]["last_seq"])


class HttpResponse(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class RelayHttp:
    """The hub's HTTP API, with one user's token."""

    def __init__(self, http_url: str, token: str | None) -> None:
        self.url = http_url
        self.token = token

    async def request(
        self, method: str, path: str, body: object = None, *, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        return await asyncio.to_thread(self._request, method, path, body, headers or {})

    def _request(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> HttpResponse:
        address = urlsplit(self.url)
        assert address.hostname is not None
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=TIMEOUT)
        sent = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        content = None if body is None else msgspec.json.encode(body)
        try:
            connection.request(method, path, content, {**sent, "Content-Type": "application/json", **headers})
            response = connection.getresponse()
            return HttpResponse(response.status, response.read(), {name.lower(): value for name, value in response.getheaders()})
        finally:
            connection.close()

    async def get(self, path: str) -> Any:
        """Gets a resource that is expected to exist."""
        answer = await self.request("GET", path)
        assert answer.status == 200, answer
        return answer.json

    async def get_run(self, run_id: str) -> Frame:
        row: Frame = await self.get(f"/runs/{quote(run_id, safe='')}")
        return row

    async def list_hosts(self) -> dict[str, Frame]:
        return {row["id"]: row for row in await self.get("/hosts")}

    async def list_messages(self, run_id: str, *, page: int = 500, include_output: bool = True) -> list[Frame]:
        """Returns the whole history, page by page from the end."""
        found: list[Frame] = []
        asked = {"limit": str(page), "include_output": "true" if include_output else "false"}
        while True:
            if found:
                asked["before_id"] = str(found[0]["id"])
            older: list[Frame] = await self.get(f"/runs/{quote(run_id, safe='')}/messages?{urlencode(asked)}")
            if not older:
                return found
            found = older + found

    async def login(self, username: str, password: str) -> HttpResponse:
        return await RelayHttp(self.url, None).request("POST", "/auth/login", {"username": username, "password": password})
