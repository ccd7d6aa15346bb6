"""The requests of the protocol as methods, on one connection that keeps no events and is opened again when it is lost."""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from switchtower import config
from switchtower.client import discover, errors
from switchtower.client.connection import Connection
from switchtower.client.patience import PATIENCE, persist
from switchtower.client.session import Session
from switchtower.core import ids
from switchtower.protocols.push import messages

_BEYOND_ANY_SEQ = 2**53 - 1

Answer = TypeVar("Answer", bound=Struct)


class Client:
    def __init__(self, settings: config.Settings, connection: Connection) -> None:
        self.settings = settings
        self._connection = connection
        self._attach_tokens: dict[str, str] = {}

    @classmethod
    async def connect(cls, settings: config.Settings, *, start: bool = True) -> "Client":
        """With `start`, a daemon is started when none runs. Raises `DaemonUnreachable`."""
        opener = discover.connect_or_start if start else discover.connect
        return cls(settings, await opener(settings))

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @property
    def runtime_version(self) -> str:
        greeting = self._connection.greeting
        return greeting.runtimeVersion if greeting else "unknown"

    def close(self) -> None:
        self._connection.close()

    async def ping(self) -> messages.Pong:
        return await self._ask(messages.Ping(), messages.Pong)

    async def start_session(self, request: messages.StartSession) -> messages.StartSessionAnswer:
        """Not asked again when the connection is lost: it may have started one."""
        answer = await self._ask(request, messages.StartSessionAnswer, repeatable=False)
        self.remember(answer.sessionId, answer.attachToken)
        return answer

    def remember(self, session_id: str, attach_token: str) -> None:
        """The token to show where the daemon asks for it."""
        self._attach_tokens[session_id] = attach_token

    async def list_sessions(self, limit: int = 20) -> list[messages.ListedSession]:
        return (await self._ask(messages.ListSessions(limit), messages.ListSessionsAnswer)).sessions

    async def send(self, session_id: str, text: str, *, acceptance: Sequence[messages.AcceptanceCriterion] = ()) -> str:
        """Starts a run, once, however often the connection is lost meanwhile; returns its id."""
        message_id = ids.spell("msg", time.time_ns() // 1_000_000, secrets.randbits(80))
        request = messages.SendUserMessage(message_id, text, session_id, list(acceptance))
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
        patience: float = PATIENCE,
        on_lost: Callable[[], None] | None = None,
    ) -> Session:
        return Session(
            self.settings,
            session_id,
            last_seen_seq=last_seen_seq,
            attach_token=self._attach_tokens.get(session_id),
            patience=patience,
            on_lost=on_lost,
        )

    async def _ask(
        self, request: messages.Request, answer_type: type[Answer], session_id: str | None = None, *, repeatable: bool = True
    ) -> Answer:
        async def attempt() -> Answer:
            if not self._connection.is_open:
                self._connection = await discover.connect(self.settings)
            try:
                return await self._connection.request(request, answer_type, session_id=session_id)
            except errors.RequestFailed as problem:
                if problem.code != "ATTACH_FORBIDDEN" or session_id not in self._attach_tokens:
                    raise
            await self._show_token(session_id)
            return await self._connection.request(request, answer_type, session_id=session_id)

        return await persist(attempt, patience=PATIENCE if repeatable else 0)

    async def _show_token(self, session_id: str) -> None:
        """Where a token is required, a connection commands only what it is attached to. Beyond the head, nothing is replayed."""
        attach = messages.AttachSession(_BEYOND_ANY_SEQ, session_id, self._attach_tokens[session_id])
        await self._connection.request(attach, messages.AttachAnswer, session_id=session_id)
