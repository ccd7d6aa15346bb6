"""Sessions beyond relay's own words: named, forked and deleted; what a new one can begin with; and all that waits for a decision,
with everything that is known of it."""

import hashlib
from typing import Annotated, Any

from msgspec import Meta, Struct

from switchtower.core import commands, errors, events, forks, policy, tower
from switchtower.core.roles import Action
from switchtower.core.session import Session, question_of
from switchtower.protocols.relay import names, stamps
from switchtower.protocols.relay.http import answers, problems
from switchtower.protocols.relay.http.calls import Call
from switchtower.protocols.relay.http.routing import Row

FEATURES = ("fork", "rename", "delete", "approvals", "models", "presets")
MOST_APPROVALS = 200
_PAGE = 1_000
_WAITING = (events.SessionState.AWAITING_APPROVAL,)


class NewTitle(Struct, frozen=True):
    title: Annotated[str, Meta(min_length=1, max_length=500)]


class ForkAt(Struct, frozen=True):
    at_id: Annotated[int, Meta(ge=1, le=2**53 - 1)] | None = None
    """The `id` of a `run.input`: the fork has what was said before it. None takes all."""


class Sessions:
    def __init__(self, tower_: tower.Tower) -> None:
        self._tower = tower_

    def rows(self) -> tuple[Row, ...]:
        return (
            Row("PATCH", "/runs/{run_id}", self.rename, action=Action.CONFIGURE),
            Row("DELETE", "/runs/{run_id}", self.delete, action=Action.DELETE),
            Row("POST", "/runs/{run_id}/fork", self.fork, action=Action.FORK),
            Row("GET", "/approvals", self.approvals, action=Action.WATCH),
            Row("GET", "/models", self.models, action=Action.WATCH),
            Row("GET", "/presets", self.presets, action=Action.WATCH),
        )

    async def rename(self, call: Call) -> Any:
        asked = await call.asked(NewTitle)
        command = commands.ConfigureSession(session_id=call.session_id, actor=call.caller.actor(), title=asked.title)
        await self._tower.ask(command)

    async def delete(self, call: Call) -> Any:
        await self._tower.ask(commands.DeleteSession(session_id=call.session_id, actor=call.caller.actor()))

    async def fork(self, call: Call) -> Any:
        asked = await call.asked_with(ForkAt)
        parent = await self._tower.session(call.session_id)
        if parent.terminal is not None or parent.flow is not None or parent.host is not None:
            raise problems.Problem(409, "only a conversation with an agent of this machine can be forked")
        forked = await self._read(parent, asked.at_id)
        command = commands.StartSession(
            session_id=self._tower.mint("sess"),
            actor=call.caller.actor(),
            engine="agent",
            mode="interactive",
            provider=parent.provider,
            workspace=parent.workspace,
            # Whoever is a user needs none; who has nothing else could not have asked.
            attach_token_sha256=hashlib.sha256(self._tower.mint_secret("att").encode()).hexdigest(),
            conversation=forked.conversation(),
            title=f"{parent.title} (fork)" if parent.title else None,
            id_is_fresh=True,
        )
        await self._tower.workshop.look_up_model(command)
        await self._tower.ask(forks.like(self._tower.workshop.prepared(forks.like(command, parent)), parent))
        return answers.json({"run_id": names.run_of(command.session_id), "text": forked.text}, 201)

    async def _read(self, parent: Session, at_id: int | None) -> forks.Fork:
        forked = forks.Fork(at_id)
        after_seq = 0
        while not forked.reached and (entries := await self._tower.entries(parent.id, after_seq, _PAGE)):
            forked.read(entries)
            after_seq = entries[-1].seq
        return forked

    async def approvals(self, call: Call) -> Any:
        """The ones that expire first come first."""
        limit = call.clamped("limit", MOST_APPROVALS, MOST_APPROVALS)
        waiting: list[tuple[Session, events.Approval]] = []
        for card in await self._tower.cards(limit, states=_WAITING):
            try:
                session = await self._tower.session(card.session_id)
            except errors.SessionNotFound:
                continue  # deleted meanwhile
            if session.run is not None:
                waiting += [(session, approval) for approval in session.run.pending.values()]
        waiting.sort(key=lambda one: one[1].expires_at_ms)
        return [_pending(*one) for one in waiting[:limit]]

    async def models(self, call: Call) -> Any:
        return [
            {
                "name": offer.name,
                "provider": offer.provider,
                "model": offer.model,
                "usable": offer.usable,
                "problem": offer.reason or None,
                "default": offer.is_default,
                "context_window": offer.context_window,
            }
            for offer in await self._tower.workshop.models()
        ]

    async def presets(self, call: Call) -> Any:
        return [
            {
                "name": offer.name,
                "origin": offer.origin,
                "description": offer.description,
                "provider": offer.provider,
                "model": offer.model,
                "policy": offer.policy,
                "usable": offer.usable,
                "problem": offer.reason or None,
            }
            for offer in await self._tower.workshop.presets(call.text("cwd") or "/")
        ]


def _pending(session: Session, approval: events.Approval) -> dict[str, Any]:
    return {
        "run_id": names.run_of(session.id),
        "run_title": session.title,
        "host_id": session.host,
        "cwd": session.workspace.root,
        "request_id": names.request_of(approval.id),
        "call_id": approval.call_id,
        "kind": approval.kind,
        "tool": question_of(approval).tool,
        "title": approval.title,
        "summary": approval.summary,
        "details": approval.details,
        "options": list(approval.options),
        "risk": "high" if approval.details.get("destructive") is True else "normal",
        "always": None if approval.rule is None else policy.describe_always(approval.rule),
        "expires_at": stamps.spelled(approval.expires_at_ms),
    }
