"""The MiniCodex server: what all its clients share (the cache of session views, and the heartbeat), and its settings."""

import asyncio
import hashlib
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from switchtower.core import commands, events, roles
from switchtower.core.ports import session_service
from switchtower.core.roles import Access
from switchtower.core.rules import user_actions
from switchtower.protocols.minicodex import connection
from switchtower.protocols.minicodex.connection import MiniCodexConnection
from switchtower.protocols.minicodex.session_views import SessionViewCache
from switchtower.transports.stream import Packet, Receiver


class MiniCodexSettings(Struct, frozen=True, kw_only=True):
    heartbeat_s: float = 15.0
    replay_entries: int = 10_000
    """The maximum number of entries that are replayed; a client that missed more has to fetch a snapshot."""
    default_cwd: str = "/"
    """The working directory of a session whose client names none."""


class MiniCodexServer:
    def __init__(self, tower_: session_service.SessionService, settings: MiniCodexSettings) -> None:
        self._tower = tower_
        self._settings = settings
        self._views = SessionViewCache(tower_)
        self._connections: set[MiniCodexConnection] = set()
        self._timer: asyncio.TimerHandle | None = None

    def accept(
        self,
        access: Access,
        *,
        session_id: str | None,
        preset: str | None = None,
        cwd: str | None = None,
        command: str | None = None,
        wishes: Mapping[str, str] = MappingProxyType({}),
    ) -> Receiver:
        """`command` is the command line of a program: the session is then that program in a terminal. `wishes` are the other
        options of a new session: `provider`, `model`, `policy`, `thinking`, `title`."""

        async def open_session(actor: events.Actor) -> str:
            if session_id is None:
                access.check_action(roles.Action.START)
                if policy := wishes.get("policy"):
                    roles.check_policy(access.role, policy, self._tower.host_services.usual_policy)
                return await self._start_session(actor, preset, cwd or self._settings.default_cwd, command, wishes)
            await self._tower.get_session(session_id)  # raises if it does not exist
            return session_id

        if self._timer is None and self._settings.heartbeat_s:
            self._send_heartbeats()
        return MiniCodexConnection(
            self._views,
            self._connections,
            access,
            open_session,
            replay_entries=self._settings.replay_entries,
            session_id=session_id,
        )

    async def _start_session(
        self, actor: events.Actor, preset: str | None, cwd: str, program: str | None, wishes: Mapping[str, str]
    ) -> str:
        session_id = self._tower.mint("sess")
        token = self._tower.mint_secret("att")  # it is not given out: over other protocols only the owner attaches
        command = commands.StartSession(
            session_id=session_id,
            actor=actor,
            engine="agent",
            mode="interactive",
            provider=wishes.get("provider") or "auto",
            model=wishes.get("model") or None,
            policy=wishes.get("policy") or None,
            thinking=wishes.get("thinking") or None,
            title=wishes.get("title") or None,
            workspace=events.Workspace(root=cwd),
            attach_token_sha256=hashlib.sha256(token.encode()).hexdigest(),
            id_is_fresh=True,
            preset=preset,
            program=user_actions.make_program(program) if program else None,
        )
        await self._tower.host_services.look_up_model(command)
        await self._tower.ask(self._tower.host_services.prepare_session(command))
        return session_id

    def _send_heartbeats(self) -> None:
        seconds = self._settings.heartbeat_s
        packet = Packet([connection.encode_heartbeat(round(seconds * 1_000))])
        for peer in tuple(self._connections):
            peer.send_heartbeat(packet)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._send_heartbeats)

    def close_for_restart(self) -> None:
        """Disconnects all clients because the daemon stops. A client that reconnects, here or at another node, sends `resume`
        with the last event that it saw; it sends commands without an answer again, with the same `client_msg_id`."""
        for peer in tuple(self._connections):
            peer.close_for_restart()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
