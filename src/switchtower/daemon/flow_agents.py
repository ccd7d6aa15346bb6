"""Agents for the steps of flows: a session of the tower does the work, like one that a person has started, and anybody can
watch it and decide in it. Asked for again after a restart, the same session is waited for.
"""

import asyncio
from contextlib import suppress

from switchtower.core import codec, commands, errors, events, tower
from switchtower.core.session import Session
from switchtower.engines.flow import ports

_PAGE = 200


class SessionAgents:
    """Implements `ports.Agents`."""

    def __init__(self, service: tower.SessionService) -> None:
        self._service = service

    async def run_agent(self, order: ports.AgentOrder) -> ports.AgentResult:
        moved = asyncio.Event()

        def saw(session: Session, event: events.AnyEvent) -> None:
            if session.id == order.session_id and isinstance(event, events.RunCompleted):
                moved.set()

        unwatch = self._service.watch(saw)
        try:
            await self._begin(order)
            while True:
                moved.clear()
                session = await self._service.get_session(order.session_id)
                if session.run is None and session.last_run is not None:
                    return await self._make_agent_result(session)
                await moved.wait()
        except errors.CoreError as refusal:
            raise ports.AgentRefused(str(refusal), retriable=refusal.retryable) from refusal
        finally:
            unwatch()

    async def stop_agent(self, session_id: str) -> None:
        with suppress(errors.CoreError):
            await self._service.ask(commands.CancelRun(session_id=session_id, reason="its flow does not wait for it any more"))

    async def _begin(self, order: ports.AgentOrder) -> None:
        """What a restart left undone of it; all of it the first time."""
        try:
            session = await self._service.get_session(order.session_id)
        except errors.SessionNotFound:
            await self._service.ask(await self._build_start_command(order))
            session = await self._service.get_session(order.session_id)
        if session.runs_started == 0:
            send = commands.SendMessage(
                session_id=order.session_id,
                actor=order.by,
                idempotency_key=f"{order.session_id}:prompt",
                text=order.prompt,
                acceptance=order.acceptance,
            )
            await self._service.ask(send)

    async def _build_start_command(self, order: ports.AgentOrder) -> commands.StartSession:
        workshop = self._service.host_services
        wish = commands.StartSession(
            session_id=order.session_id,
            actor=order.by,
            engine="agent",
            mode="interactive",
            provider=order.provider,
            model=order.model,
            # Of a flow's sandbox and the configured one the stronger holds.
            sandbox=None if order.sandbox == "local" else order.sandbox,
            workspace=events.Workspace(root=order.workspace),
            attach_token_sha256="",
            metadata=order.metadata,
            policy=order.policy,
            thinking=order.thinking,
            budget=order.budget,
            title=order.title,
            preset=order.preset,
        )
        await workshop.look_up_model(wish)
        command = workshop.prepare_session(wish)
        return await workshop.add_worktree(command) if order.worktree else command

    async def _make_agent_result(self, session: Session) -> ports.AgentResult:
        assert session.last_run is not None, "it has ended"
        completed = await self._load_completion(session)
        return ports.AgentResult(
            run_id=session.last_run.id,
            outcome=session.last_run.outcome,
            summary=session.last_run.summary,
            text=session.last_assistant_text,
            acceptance=completed.acceptance if completed is not None else (),
            tokens=session.usage.tokens,
            cost=session.usage.cost,
        )

    async def _load_completion(self, session: Session) -> events.RunCompleted | None:
        """How its run ended in full; the session itself keeps only the short of it."""
        for entry in reversed(await self._service.read_entries_before(session.id, session.seq + 1, _PAGE, streamed=False)):
            event = codec.decode(entry.kind, entry.data)
            if isinstance(event, events.RunCompleted):
                return event
        return None
