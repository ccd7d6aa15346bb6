"""A daemon with the pi protocol's doors open, on a home that is also the user's, and clients of both protocols to it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.crash.tower_process import DaemonProcess

from switchtower.testing.model_server import ModelServer
from switchtower.testing.pi_client import Frame, PiClient
from switchtower.testing.push_client import PushClient
from switchtower.testing.wire import ClientWire, SocketWire, WebSocketWire

TIMEOUT = 60.0
"""Longer than the clients' own: here a machine of two cores is made busy on purpose."""

MODEL_KEY = "sk-test-0123456789abcdefghijklmnop"


class PiHarness:
    def __init__(self, home: Path, start: Callable[..., Awaitable[DaemonProcess]], stack: AsyncExitStack) -> None:
        self.home = home
        self.workspace = home / "ws"
        self._start = start
        self._stack = stack
        self.daemon: DaemonProcess

    async def open(self, **settings: object) -> DaemonProcess:
        """Without rate limits, unless the test asks for them: a test is faster than a person."""
        usual = {"http": "127.0.0.1:0", "pi": "127.0.0.1:0", "pi_session_rate": 0, "pi_client_rate": 0}
        self.daemon = await self._start(**{**usual, **settings})
        return self.daemon

    async def open_again(self, **settings: object) -> DaemonProcess:
        """After a crash: as `kill -9`, and a new daemon on the same home."""
        self.daemon.kill()
        self.daemon.end()
        return await self.open(**settings)

    async def start_model_server(self, *answers: Any) -> ModelServer:
        """To be asked before `open`; the daemon then knows it as the provider `openai`."""
        server = await self._stack.enter_async_context(ModelServer(answers))
        (self.home / "config.toml").write_text(
            f'provider = "openai"\n[models.openai]\nprovider = "openai"\nmodel = "m-1"\nbase_url = "{server.url}"\n'
            'key_env = "FAKE_KEY"\ncontext_window = 100000\n'
        )
        return server

    @property
    def endpoints(self) -> dict[str, Any]:
        return dict(msgspec.json.decode((self.home / "run" / "endpoints.json").read_bytes()))

    @property
    def sessions_dir(self) -> Path:
        return self.home / ".pi" / "agent" / "sessions"

    async def open_wire(self, *, lifecycle: bool = True, unix: bool = False) -> ClientWire:
        if unix:
            return await SocketWire.open(self.endpoints["piSocket"])
        path = "/" if lifecycle else "/?lifecycle=off"
        return await WebSocketWire.open(self.endpoints["pi"].replace("ws://", "http://"), None, path=path)

    async def connect(self, *, lifecycle: bool = True, unix: bool = False, timeout: float = TIMEOUT) -> PiClient:
        """A client that was told that the server is ready."""
        client = PiClient(await self.open_wire(lifecycle=lifecycle, unix=unix), timeout=timeout)
        await self._stack.enter_async_context(client)
        assert (await client.receive())["type"] == "server_ready"
        return client

    async def push(self) -> PushClient:
        client = await PushClient.connect_socket(self.daemon.socket, timeout=TIMEOUT)
        return await self._stack.enter_async_context(client)

    async def start_session(self, client: PiClient) -> str:
        """A new one in the workspace, which this client follows."""
        made = await client.execute("create_session", cwd=str(self.workspace))
        await client.execute("switch_session", sessionId=made["sessionId"])
        return str(made["sessionId"])

    def measure_resident_mb(self) -> float:
        """What the daemon has in memory."""
        status = Path(f"/proc/{self.daemon.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@pytest.fixture
async def pi_harness(
    home: Path, start_daemon_process: Callable[..., Awaitable[DaemonProcess]], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PiHarness]:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("FAKE_KEY", MODEL_KEY)
    async with AsyncExitStack() as stack:
        yield PiHarness(home, start_daemon_process, stack)


def join_deltas(events: list[Frame], kind: str = "text") -> str:
    """What the pieces come to."""
    return "".join(
        event["assistantMessageEvent"]["delta"]
        for event in events
        if event["type"] == "message_update" and event["assistantMessageEvent"]["type"] == f"{kind}_delta"
    )


def get_text(message: Frame) -> str:
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


def list_assistant_texts(messages: list[Frame]) -> list[str]:
    return [get_text(message) for message in messages if message["role"] == "assistant"]


def list_event_types(events: list[Frame]) -> list[str]:
    """Without the updates, of which there are many."""
    return [event["type"] for event in events if event["type"] != "message_update"]


async def answer_to(client: PiClient, command: Frame) -> Frame:
    """Sends it as it is, perhaps not for the first time; the response that comes from now on."""
    place = len(client.frames)
    await client.send_frames(command)
    while True:
        while place < len(client.frames):
            frame = client.frames[place]
            place += 1
            if frame["type"] == "response" and frame.get("id") == command.get("id"):
                return frame
        await client.receive()
