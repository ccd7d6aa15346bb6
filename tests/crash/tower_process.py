"""A daemon in its own process and a plain push client. Both know the daemon only from outside: files, socket, signals."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct
from tests.conformance.daemons import UNHINDERED, get_default_provider
from tests.warm import processes

TIMEOUT = 60.0
"""For what must happen; generous, because the machine may be busy with other tests."""

_SERVE = """
import os, sys
from switchtower import config
from switchtower.daemon import app
announce = int(sys.argv[1])
try:
    app.run_daemon(config.load(), lambda endpoints: os.write(announce, b"listening"))
except app.DaemonStartError as problem:
    sys.exit(f"cannot start: {problem}")
"""


class DaemonDidNotStart(Exception):
    """What the daemon said on stderr, and its exit code."""


class DaemonProcess:
    """One life of a daemon on one home."""

    def __init__(self, home: Path, **settings: object) -> None:
        self.home = home
        self.socket = Path(str(settings.get("socket", home / "run" / "pushd.sock")))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TOWER_", "PUSHD_"))}
        given = {
            f"TOWER_{name.upper()}": str(value)
            for name, value in {"http": "off", "pi": "off", **UNHINDERED, **get_default_provider(home), **settings}.items()
        }
        self._announced, announce = os.pipe()
        try:
            self.process = processes.Popen(
                [sys.executable, "-c", _SERVE, str(announce)],
                loaded=processes.choose_preload(home),
                env={**inherited, "TOWER_HOME": str(home), **given},
                pass_fds=[announce],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        finally:
            os.close(announce)

    async def wait_listening(self) -> "DaemonProcess":
        """Returns when clients can connect. Raises `DidNotStart` when the process ends instead."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._announced, readable.set)
        try:
            async with asyncio.timeout(TIMEOUT):
                await readable.wait()
        finally:
            loop.remove_reader(self._announced)
        if not os.read(self._announced, 64):
            raise DaemonDidNotStart(*self.read_last_output())
        return self

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """As a crash: nothing is cleaned up, and nobody is told."""
        self.process.send_signal(signal.SIGKILL)

    def end(self) -> None:
        """Whatever became of it, nothing is left of it."""
        self.process.kill()
        self.process.wait(TIMEOUT)
        if self._announced >= 0:
            os.close(self._announced)
            self._announced = -1
        if self.process.stderr is not None:
            self.process.stderr.close()

    async def stop(self) -> int:
        """Asks it to end and waits until it has. Returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        exit_code = await asyncio.to_thread(self.process.wait, TIMEOUT)
        self.end()
        return exit_code

    def read_last_output(self) -> tuple[str, int]:
        _, stderr = self.process.communicate(timeout=TIMEOUT)
        return stderr.decode(), self.process.returncode

    def log(self) -> str:
        return (self.home / "logs" / "tower.log").read_text()


class AnyPushFrame(Struct):
    """Any response or event, as far as a client needs to look into it."""

    kind: str
    type: str
    seq: int = 0
    sessionId: str = ""
    runId: str | None = None
    requestId: str = ""
    ok: bool = False
    payload: Raw = Raw(b"null")
    error: dict[str, Any] | None = None

    @property
    def content(self) -> dict[str, Any]:
        return dict(msgspec.json.decode(self.payload))


decode = msgspec.json.Decoder(AnyPushFrame).decode


class PushRequestRefused(Exception):
    """The daemon's `error`."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error)
        self.code = str(error["code"])
        self.retryable = bool(error["retryable"])


class PushConnectionLost(Exception):
    """The connection has ended, so no answer will come."""


OnEvent = Callable[[bytes, AnyPushFrame], None]


class RawPushClient(asyncio.Protocol):
    """One connection. `events` are all that it has been told; `on_event` hears of each with its very bytes."""

    def __init__(self, on_event: OnEvent | None = None) -> None:
        self.events: list[AnyPushFrame] = []
        self.closed = asyncio.Event()
        self.trouble: Exception | None = None
        """What was wrong with something that came in, which ends the connection."""
        self._on_event = on_event
        self._rest = b""
        self._asked = 0
        self._answers: dict[str, asyncio.Future[AnyPushFrame]] = {}
        self._changed = asyncio.Event()
        self._transport: asyncio.Transport

    @classmethod
    async def connect(cls, path: Path, on_event: OnEvent | None = None) -> "RawPushClient":
        try:
            _, client = await asyncio.get_running_loop().create_unix_connection(lambda: cls(on_event), str(path))
        except OSError as problem:
            raise PushConnectionLost from problem
        return client

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        try:
            for line in lines:
                self._take(line)
        except Exception as trouble:
            self.trouble = self.trouble or trouble
            self._transport.abort()
        self._changed.set()

    def _take(self, line: bytes) -> None:
        frame = decode(line)
        if frame.kind == "event":
            self.events.append(frame)
            if self._on_event is not None:
                self._on_event(line, frame)
        elif not (answer := self._answers.pop(frame.requestId)).done():
            answer.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(PushConnectionLost())
                answer.exception()  # seen, should nobody be waiting any more
        self.closed.set()
        self._changed.set()

    # What a test calls.

    def start_request(self, type_: str, payload: dict[str, Any], session_id: str | None = None) -> "asyncio.Future[AnyPushFrame]":
        self._asked += 1
        request: dict[str, Any] = {
            "v": "push.runtime.v1",
            "kind": "request",
            "requestId": f"req_{self._asked}",
            "type": type_,
            "payload": payload,
        }
        if session_id is not None:
            request["sessionId"] = session_id
        answer = self._answers[request["requestId"]] = asyncio.get_running_loop().create_future()
        if self.closed.is_set():
            answer.set_exception(PushConnectionLost())
        else:
            self._transport.write(msgspec.json.encode(request) + b"\n")
        return answer

    async def ask(self, type_: str, payload: dict[str, Any], session_id: str | None = None) -> dict[str, Any]:
        """The answer's payload. Raises `Refused` or `Gone`."""
        async with asyncio.timeout(TIMEOUT):
            answer = await self.start_request(type_, payload, session_id)
        if not answer.ok:
            assert answer.error is not None
            raise PushRequestRefused(answer.error)
        return answer.content

    async def start_session(self, workspace: Path, mode: str = "interactive") -> str:
        repo = {"rootPath": str(workspace), "currentBranch": "main", "defaultBranch": "main"}
        payload = {"mode": mode, "provider": "demo", "sandboxProvider": "local", "repo": repo}
        return str((await self.ask("start_session", payload))["sessionId"])

    async def send(self, session_id: str, text: str, message_id: str = "msg_1") -> str:
        payload = {"clientMessageId": message_id, "text": text}
        return str((await self.ask("send_user_message", payload, session_id))["runId"])

    async def decide(self, session_id: str, run_id: str, approval_id: str, decision: str = "approve", **fields: str) -> None:
        payload = {"runId": run_id, "approvalId": approval_id, "decision": decision, **fields}
        await self.ask("submit_approval", payload, session_id)

    async def attach(self, session_id: str, last_seen_seq: int = 0) -> dict[str, Any]:
        return await self.ask("attach_session", {"lastSeenSeq": last_seen_seq}, session_id)

    async def wait_for_event(
        self, *types: str, session_id: str | None = None, run_id: str | None = None, after_seq: int = 0
    ) -> AnyPushFrame:
        """The first event of these types, once it is there. Raises `Gone` when none will come."""
        looked_at = 0
        async with asyncio.timeout(TIMEOUT):
            while True:
                for frame in self.events[looked_at:]:
                    looked_at += 1
                    if (
                        frame.type in types
                        and frame.seq > after_seq
                        and session_id in (None, frame.sessionId)
                        and run_id in (None, frame.runId)
                    ):
                        return frame
                if self.closed.is_set():
                    raise PushConnectionLost
                self._changed.clear()
                await self._changed.wait()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Looks again whenever something has come in."""
        async with asyncio.timeout(TIMEOUT):
            while not condition():
                if self.closed.is_set():
                    raise PushConnectionLost
                self._changed.clear()
                await self._changed.wait()

    def close(self) -> None:
        self._transport.close()
        if self.trouble is not None:
            raise self.trouble


def find_run_processes(run_ids: set[str]) -> dict[str, list[int]]:
    """The living processes that carry one of these runs' marks, by run. Only Linux shows them."""
    found: dict[str, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue
            for variable in environ.split(b"\0"):
                if variable.startswith(b"TOWER_RUN=") and (run_id := variable[10:].decode()) in run_ids:
                    found.setdefault(run_id, []).append(int(entry.name))
    return found
