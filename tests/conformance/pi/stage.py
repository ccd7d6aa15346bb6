"""The fixtures of pi's tests: a real daemon with its own home, `tower stdio` as a real process, and a client that checks every
received frame."""

import asyncio
import contextlib
import itertools
import subprocess
import sys
from typing import Any
from uuid import uuid4

from tests.conformance.daemons import ManagedDaemon
from tests.conformance.pi import closed
from tests.warm import processes

from switchtower.testing.pi_client import Frame, PiClient
from switchtower.testing.wire import ClientWire, SocketWire, WebSocketWire

LIFECYCLE = ("command_accepted", "command_started", "command_finished")


class PiDaemon(ManagedDaemon):
    """A daemon whose `HOME` is its home too, because pi's stored sessions are below it. It limits no rate unless a test sets
    one."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**{"pi": "127.0.0.1:0", "pi_session_rate": 0, "pi_client_rate": 0, "pi_max_sessions": 1_000, **settings})

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "HOME": str(self.home)}

    @property
    def pi(self) -> str:
        """The HTTP address of pi's port."""
        return str(self._endpoints["pi"]).replace("ws://", "http://")


class StdioWire(SocketWire):
    """A connection through `tower stdio --protocol pi`."""

    process: processes.Popen

    @classmethod
    async def start(cls, daemon: PiDaemon) -> "StdioWire":
        process = processes.Popen(
            [sys.executable, "-P", "-m", "switchtower", "stdio", "--protocol", "pi"],
            env=daemon.environment,
            cwd=daemon.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        wire = cls(*await processes.open_streams(process))
        wire.process = process
        return wire

    async def kill(self) -> None:
        self.process.kill()
        while await self.reader.read(65_536):
            pass
        await asyncio.to_thread(self.process.wait)
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


class CheckedClient(PiClient):
    """A client whose ids are unique among all clients, including those of earlier tests."""

    def __init__(self, wire: ClientWire) -> None:
        super().__init__(wire)
        self._name = uuid4().hex[:12]
        self._count = itertools.count(1)

    def make_id(self) -> str:
        return f"{self._name}-{next(self._count)}"

    async def receive(self) -> Frame:
        frame = await super().receive()
        closed.check(frame)
        return frame

    # Common steps of tests

    async def start_session(self, cwd: object = None, **fields: object) -> str:
        """Creates a session and follows it."""
        given = {} if cwd is None else {"cwd": str(cwd)}
        session_id = str((await self.execute("create_session", **given, **fields))["sessionId"])
        await self.execute("switch_session", sessionId=session_id)
        return session_id

    async def expect_refusal(self, type_: str, **fields: object) -> str:
        """Sends a command that is expected to fail, and returns the error."""
        response = await self.request(type_, **fields)
        assert response["success"] is False, response
        return str(response["error"])

    async def get_version(self, session_id: str) -> int:
        return int((await self.request("get_state", sessionId=session_id))["sessionVersion"])

    async def drain(self) -> None:
        """Reads every frame that was sent before this call."""
        await self.execute("list_sessions")

    def list_phases(self, command_id: str) -> list[str]:
        """Lists the types of one command's lifecycle events in order."""
        return [str(frame["type"]) for frame in self.list_lifecycle(command_id)]

    async def get_lifecycle_data(self, command_id: str, type_: str) -> Frame:
        """Waits for one lifecycle event of a command, and returns its data."""
        frame = await self.wait_for(lambda frame: frame["type"] == type_ and frame["data"]["commandId"] == command_id)
        data: Frame = frame["data"]
        return data

    async def start_prompt(self, session_id: str, message: str, **fields: object) -> str:
        """Sends a prompt, waits until its agent has started, and returns the command's id."""
        id_ = await self.begin("prompt", sessionId=session_id, message=message, **fields)
        await self.next_event("agent_start")
        return id_


async def connect(daemon: PiDaemon, transport: str, *, path: str = "/") -> CheckedClient:
    """Connects a client and reads the server's greeting."""
    wire: ClientWire
    if transport == "websocket":
        wire = await WebSocketWire.open(daemon.pi, None, path=path)
    else:
        wire = await StdioWire.start(daemon)
    client = CheckedClient(wire)
    await client.receive()
    return client


async def leave(client: PiClient) -> None:
    if isinstance(client.wire, StdioWire):
        await client.wire.kill()
    else:
        client.wire.abort()


def list_types(frames: list[dict[str, Any]]) -> list[str]:
    return [str(frame["type"]) for frame in frames]
