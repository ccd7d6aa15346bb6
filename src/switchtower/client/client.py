"""The requests of the protocol as methods, on one connection that keeps no events and is opened again when it is lost."""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from switchtower import config
from switchtower.client import discover
from switchtower.client.connection import Connection
from switchtower.client.patience import PATIENCE, persist
from switchtower.client.session import Session
from switchtower.core import ids
from switchtower.protocols.push import messages

Answer = TypeVar("Answer", bound=Struct)


class Client:
    def __init__(self, settings: config.Settings, connection: Connection) -> None:
        self.settings = settings
        self._connection = connection

    @classmethod
    async def connect(cls, settings: config.Settings, *, start: bool = True) -> "Client":
        """With `start`, a daemon is started when none runs. Raises `DaemonUnreachable`."""
        opener = discover.connect_or_start if start else discover.connect
        return cls(settings, await opener(settings))

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    async def ping(self) -> messages.Pong:
        return await self._ask(messages.Ping(), messages.Pong)

    async def start_session(self, request: messages.StartSession) -> messages.StartSessionAnswer:
        """Not asked again when the connection is lost: it may have started one."""
        return await self._ask(request, messages.StartSessionAnswer, repeatable=False)

    async def list_sessions(self, limit: int = 20) -> list[messages.ListedSession]:
        return (await self._ask(messages.ListSessions(limit), messages.ListSessionsAnswer)).sessions

    async def send(
        self,
        session_id: str,
        text: str,
        *,
        acceptance: Sequence[messages.AcceptanceCriterion] = (),
        attach_token: str | None = None,
    ) -> str:
        """Starts a run, once, however often the connection is lost meanwhile; returns its id."""
        message_id = ids.spell("msg", time.time_ns() // 1_000_000, secrets.randbits(80))
        request = messages.SendUserMessage(message_id, text, session_id, list(acceptance), attach_token)
        return (await self._ask(request, messages.SendAnswer, session_id)).runId

    async def decide(
        self, session_id: str, run_id: str, approval_id: str, decision: messages.ApprovalDecision, *, comment: str | None = None
    ) -> None:
        """Raises `RequestFailed` with `APPROVAL_EXPIRED` when somebody else was first."""
        request = messages.SubmitApproval(run_id, approval_id, decision, session_id, comment)
        await self._ask(request, messages.Accepted, session_id)

    async def cancel(self, session_id: str, *, run_id: str | None = None, reason: str = "user_cancelled") -> None:
        await self._ask(messages.CancelRun(session_id, run_id, reason), messages.Accepted, session_id)

    def session(
        self,
        session_id: str,
        *,
        last_seen_seq: int = 0,
        attach_token: str | None = None,
        patience: float = PATIENCE,
        on_lost: Callable[[], None] | None = None,
    ) -> Session:
        return Session(
            self.settings, session_id, last_seen_seq=last_seen_seq, attach_token=attach_token, patience=patience, on_lost=on_lost
        )

    async def _ask(
        self, request: messages.Request, answer_type: type[Answer], session_id: str | None = None, *, repeatable: bool = True
    ) -> Answer:
        async def attempt() -> Answer:
            if not self._connection.is_open:
                self._connection = await discover.connect(self.settings)
            return await self._connection.request(request, answer_type, session_id=session_id)

        return await persist(attempt, patience=PATIENCE if repeatable else 0)
