"""The peers of relay, which check every received frame: an app and a host on the hub's WebSockets, and plain HTTP to its port or
to the owner-only socket."""

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit
from uuid import uuid4

from tests.conformance.relay import closed
from tests.conformance.relay.closed import Frame

from switchtower.testing import relay_client

TIMEOUT = 60.0
TOKEN = "a-token-of-a-host"


def matches(frame: Frame, type_: str, run_id: str | None, data: Frame) -> bool:
    return (
        frame["type"] == type_
        and run_id in (None, frame.get("run_id"))
        and all(frame["data"].get(name) == value for name, value in data.items())
    )


class CheckedApp(relay_client.RelayApp):
    passes_anything_on = False
    """Foreign hosts may send more fields than the document has."""

    async def receive(self) -> Frame:
        frame = await super().receive()
        if not self.passes_anything_on:
            closed.check_app_frame(frame)
        return frame

    async def wait_for_frame(self, type_: str, run_id: str | None = None, *, since: int = 0, **data: Any) -> Frame:
        """Returns the first such frame from `since` on, and waits for it if it has not arrived yet."""
        while True:
            for frame in self.frames[since:]:
                if matches(frame, type_, run_id, data):
                    return frame
            since = len(self.frames)
            await self.receive()

    async def request_error(self, type_: str, run_id: str | None = None, **data: Any) -> str:
        answer = await self.request(type_, run_id, **data)
        assert not answer["ok"], answer
        return str(answer["error"])

    async def request_envelope(self, type_: str, run_id: str | None = None, **data: Any) -> Frame:
        """Returns the whole answer to a call."""
        answer = await self.request(type_, run_id, **data)
        return await self.wait_for_frame("rpc.response", request_id=answer["request_id"])

    def list_run_frames(self, run_id: str, *types: str) -> list[Frame]:
        return [frame for frame in self.list_events(run_id) if not types or frame["type"] in types]

    def list_types(self, run_id: str) -> list[str]:
        return [frame["type"] for frame in self.list_events(run_id)]

    async def wait_for_output(self, run_id: str, part: str) -> str:
        while part not in (output := self.join_output(run_id)):
            await self.receive()
        return output


class CheckedHost(relay_client.RelayHost):
    takes_anything = False
    """Apps may send more fields than the document has."""

    async def receive(self) -> Frame:
        frame = await super().receive()
        if not self.takes_anything:
            closed.check_host_frame(frame)
        return frame

    async def leave(self) -> None:
        """Ends the connection like a broken network."""
        self.wire.abort()
        with contextlib.suppress(ConnectionError):
            await self.wire.writer.wait_closed()

    async def wait_for_command(self, type_: str, run_id: str | None = None) -> Frame:
        """Waits for the next such command or call, and returns its data without the hub's `command_id`."""
        data = (await self.next_of_type(type_, run_id))["data"]
        return {name: value for name, value in data.items() if name != "command_id"}

    async def send_message(self, type_: str, run_id: str, seq: int, data: Any = None, **envelope: Any) -> None:
        await self.send_frames(self.make_event(type_, run_id, seq, data, **envelope))

    async def begin(self, run_id: str | None = None, **fields: Any) -> str:
        """Starts a run and waits until the hub has acknowledged it."""
        run_id = run_id or f"run_{uuid4().hex[:12]}"
        await self.send_frames(self.make_started(run_id, **fields))
        await self.wait_for_ack(run_id, 1)
        return run_id


class CheckedHttpReply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(self._path)


class CheckedHttp:
    """HTTP to a daemon's port with a token, or to its owner-only socket."""

    def __init__(self, where: str, token: str | None = None) -> None:
        self._where = where
        self.token = token

    def open_connection(self) -> http.client.HTTPConnection:
        if self._where.startswith("/"):
            return UnixConnection(self._where)
        address = urlsplit(self._where)
        assert address.hostname is not None
        return http.client.HTTPConnection(address.hostname, address.port, timeout=TIMEOUT)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> CheckedHttpReply:
        connection = self.open_connection()
        try:
            given = {"Authorization": f"Bearer {self.token}"} if self.token is not None else {}
            content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, content, {**given, **headers})
            response = connection.getresponse()
            return CheckedHttpReply(
                response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
            )
        finally:
            connection.close()

    def get(self, path: str, status: int = 200) -> Any:
        reply = self.ask("GET", path)
        assert reply.status == status, reply
        return reply.json

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        reply = self.ask("POST", path, body)
        assert reply.status == status, reply
        return reply.json if reply.body else None

    def wait_for_row(self, run_id: str, wanted: Callable[[Frame], bool]) -> Frame:
        """Polls until the run's row is as wanted, because a list sends no events."""
        deadline = time.monotonic() + TIMEOUT
        while not wanted(row := self.get(f"/sessions/{quote(run_id, safe='')}")):
            assert time.monotonic() < deadline, row
        return dict(row)

    def wait_for_host_row(self, host_id: str, wanted: Callable[[Frame], bool]) -> Frame:
        deadline = time.monotonic() + TIMEOUT
        while True:
            rows: list[Frame] = [row for row in self.get("/hosts") if row["id"] == host_id]
            if rows and wanted(rows[0]):
                return rows[0]
            assert time.monotonic() < deadline, rows
