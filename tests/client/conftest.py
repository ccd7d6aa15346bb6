"""A daemon's side of the wire, written out by each test: what it reads and what it sends, byte for byte."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from switchtower import config

SESSION = "sess_A"


class ScriptedConnection:
    """One accepted connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> dict[str, Any]:
        request: dict[str, Any] = json.loads(await self.reader.readline())
        return request

    async def send_greeting(self, *capabilities: str) -> None:
        answer = {"runtimeName": "pushd", "runtimeVersion": "9", "protocolVersion": "push.runtime.v1"}
        await self.answer(await self.request(), {**answer, "capabilities": list(capabilities)})

    async def answer(self, request: dict[str, Any], payload: dict[str, Any]) -> None:
        await self.send({**make_response(request), "ok": True, "payload": payload, "error": None})

    async def refuse(self, request: dict[str, Any], code: str, *, retryable: bool = False) -> None:
        error = {"code": code, "message": f"refused with {code}", "retryable": retryable}
        await self.send({**make_response(request), "ok": False, "payload": {}, "error": error})

    async def answer_attach(self, *, from_seq: int, to_seq: int, gap: bool = False) -> dict[str, Any]:
        """Greets, answers an attach and returns what was asked."""
        await self.send_greeting()
        request = await self.request()
        replay = {"fromSeq": from_seq, "toSeq": to_seq, "completed": True, "gap": gap}
        await self.answer(request, {"sessionId": SESSION, "state": "running", "replay": replay})
        payload: dict[str, Any] = request["payload"]
        return payload

    async def send(self, *frames: dict[str, Any]) -> None:
        self.writer.write(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))
        await self.writer.drain()

    async def wait_closed(self) -> None:
        """Returns when the client has gone."""
        while await self.reader.read(65_536):
            pass


def make_response(request: dict[str, Any]) -> dict[str, Any]:
    return {"v": "push.runtime.v1", "kind": "response", "requestId": request["requestId"], "type": request["type"]}


def make_event(seq: int, type: str = "assistant_token", payload: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    if payload is None:
        payload = {"text": f"{seq} "}
    envelope = {
        "v": "push.runtime.v1",
        "kind": "event",
        "sessionId": SESSION,
        "runId": "run_A",
        "seq": seq,
        "ts": 1,
        "type": type,
    }
    return {**envelope, "payload": payload, **more}


Script = Callable[[ScriptedConnection], Awaitable[None]]


class ScriptedPushServer:
    """Serves one script a connection, in order."""

    def __init__(self, settings: config.Settings) -> None:
        self.settings = settings
        self.failures: list[BaseException] = []
        self._scripts: list[Script] = []
        self._server: asyncio.Server | None = None

    async def serve(self, *scripts: Script) -> None:
        self._scripts += scripts
        self.settings.run_dir.mkdir(parents=True, exist_ok=True)
        self._server = await asyncio.start_unix_server(self._accept, self.settings.socket)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self.settings.socket.unlink(missing_ok=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._scripts.pop(0)(ScriptedConnection(reader, writer))
        except (ConnectionError, asyncio.CancelledError):
            pass
        except BaseException as failure:
            self.failures.append(failure)
        finally:
            writer.close()


@pytest.fixture
def settings() -> Any:
    home = Path(tempfile.mkdtemp(dir="/tmp"))
    yield config.Settings(home=home)
    shutil.rmtree(home)


@pytest.fixture
async def daemon(settings: config.Settings) -> AsyncIterator[ScriptedPushServer]:
    daemon = ScriptedPushServer(settings)
    yield daemon
    await daemon.stop()
    assert not daemon.failures


@pytest.fixture(name="event")
def event_maker() -> Callable[..., dict[str, Any]]:
    return make_event
