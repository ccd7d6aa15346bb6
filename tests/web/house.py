"""Somebody who starts sessions on a daemon without a browser: over push and relay, as any client does."""

import asyncio
import subprocess
import uuid
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.conformance.daemons import ManagedDaemon
from tests.relay.stage import DaemonView

from switchtower.testing.push_client import PushClient, ReceivedEvent
from switchtower.testing.relay_client import RelayApp, RelayHttp

OWN_HOST = "host_here"


class ApiUser:
    def __init__(self, daemon: ManagedDaemon) -> None:
        self.daemon = daemon
        self.http = RelayHttp(daemon.http, daemon.token)
        self._stack = AsyncExitStack()
        self.push: PushClient
        self.app: RelayApp

    async def __aenter__(self) -> "ApiUser":
        self.push = await self._stack.enter_async_context(await PushClient.connect_socket(self.daemon.socket, timeout=20.0))
        await self.push.send_hello()
        self.app = await self._stack.enter_async_context(await RelayApp.open(self.daemon.http, self.daemon.token))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def run_tower(self, *arguments: str) -> str:
        """The command line on this home: what it prints."""
        done = DaemonView(self.daemon.home).run_tower(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def start_agent(self, workspace: Path, *, title: str | None = None) -> str:
        session_id = (await self.push.start_session(workspace)).session_id
        if title is not None:
            await self.rename(session_id, title)
        return session_id

    async def rename(self, session_id: str, title: str) -> None:
        answer = await self.http.request("PATCH", f"/runs/{quote(session_id, safe='')}", {"title": title})
        assert answer.status == 204, answer

    async def send(self, session_id: str, text: str) -> None:
        await self.push.send(session_id, text)

    async def wait_for_event(self, session_id: str, type_: str) -> ReceivedEvent:
        """The next event of this type in this session."""
        while True:
            event = await self.push.next_event()
            if (event.session_id, event.type) == (session_id, type_):
                return event

    async def start_waiting_session(self, workspace: Path, text: str, *, title: str | None = None) -> tuple[str, ReceivedEvent]:
        """A new session that waits for a decision."""
        session_id = await self.start_agent(workspace, title=title)
        await self.send(session_id, text)
        return session_id, await self.wait_for_event(session_id, "approval_required")

    async def start_program(self, command: str, workspace: Path, *, host: str = OWN_HOST, **fields: Any) -> str:
        return await self.app.start(host, command, cwd=str(workspace), **fields)

    async def create_user(self, password: str) -> str:
        """A new one's name."""
        name = f"anna-{uuid.uuid4().hex[:8]}"
        answer = await self.http.request("POST", "/users", {"name": name, "password": password})
        assert answer.status in (200, 201, 204), answer
        return name


async def make_repository(workspace: Path, *, branch: str = "main") -> None:
    """With one commit of all that is in the folder."""
    name = ["-c", "user.name=Test", "-c", "user.email=test@localhost"]
    for arguments in (["init", "-q"], ["checkout", "-q", "-b", branch], ["add", "-A"], [*name, "commit", "-q", "-m", "first"]):
        await asyncio.to_thread(subprocess.run, ["git", *arguments], cwd=workspace, check=True, capture_output=True)
