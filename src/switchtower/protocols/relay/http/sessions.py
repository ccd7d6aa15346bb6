"""Sessions beyond relay's own words: named, forked and deleted; what a new one can begin with; and all that waits for a decision,
with everything that is known of it."""

import hashlib
from typing import Annotated, Any

from msgspec import Meta, Struct

from switchtower.core import commands, errors, events, forks, policy, tower
from switchtower.core.roles import Action
from switchtower.core.session import Session, summarize_approval
from switchtower.protocols.relay import names, stamps
from switchtower.protocols.relay.http import answers, problems
from switchtower.protocols.relay.http.calls import HttpCall
from switchtower.protocols.relay.http.routing import EndpointRoute

FEATURES = ("fork", "rename", "delete", "approvals", "models", "presets")
MAX_APPROVALS = 200
_PAGE_SIZE = 1_000
_WAITING = (events.SessionState.AWAITING_APPROVAL,)


class NewTitleBody(Struct, frozen=True):
    title: Annotated[str, Meta(min_length=1, max_length=500)]


class ForkBody(Struct, frozen=True):
    at_id: Annotated[int, Meta(ge=1, le=2**53 - 1)] | None = None
    """The `id` of a `run.input`: the fork has what was said before it. None takes all."""


class SessionEndpoints:
    def __init__(self, tower_: tower.SessionService) -> None:
        self._tower = tower_

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        return (
            EndpointRoute("PATCH", "/runs/{run_id}", self.rename, action=Action.CONFIGURE),
            EndpointRoute("DELETE", "/runs/{run_id}", self.delete, action=Action.DELETE),
            EndpointRoute("POST", "/runs/{run_id}/fork", self.fork, action=Action.FORK),
            EndpointRoute("GET", "/approvals", self.list_approvals, action=Action.WATCH),
            EndpointRoute("GET", "/models", self.list_models, action=Action.WATCH),
            EndpointRoute("GET", "/presets", self.list_presets, action=Action.WATCH),
        )

    async def rename(self, call: HttpCall) -> Any:
        asked = await call.read_body(NewTitleBody)
        command = commands.ConfigureSession(session_id=call.session_id, actor=call.caller.make_actor(), title=asked.title)
        await self._tower.ask(command)

    async def delete(self, call: HttpCall) -> Any:
        await self._tower.ask(commands.DeleteSession(session_id=call.session_id, actor=call.caller.make_actor()))

    async def fork(self, call: HttpCall) -> Any:
        asked = await call.read_body_with_defaults(ForkBody)
        parent = await self._tower.get_session(call.session_id)
        if parent.terminal is not None or parent.flow is not None or parent.host is not None:
            raise problems.HttpError(409, "only a conversation with an agent of this machine can be forked")
        forked = await self._read_fork(parent, asked.at_id)
        command = commands.StartSession(
            session_id=self._tower.mint("sess"),
            actor=call.caller.make_actor(),
            engine="agent",
            mode="interactive",
            provider=parent.provider,
            workspace=parent.workspace,
            # Whoever is a user needs none; who has nothing else could not have asked.
            attach_token_sha256=hashlib.sha256(self._tower.mint_secret("att").encode()).hexdigest(),
            conversation=forked.build_conversation(),
            title=f"{parent.title} (fork)" if parent.title else None,
            id_is_fresh=True,
        )
        await self._tower.host_services.look_up_model(command)
        await self._tower.ask(
            forks.inherit_settings(self._tower.host_services.prepare_session(forks.inherit_settings(command, parent)), parent)
        )
        return answers.make_json_response({"run_id": names.format_run_id(command.session_id), "text": forked.text}, 201)

    async def _read_fork(self, parent: Session, at_id: int | None) -> forks.ConversationFork:
        forked = forks.ConversationFork(at_id)
        after_seq = 0
        while not forked.reached and (entries := await self._tower.read_entries(parent.id, after_seq, _PAGE_SIZE)):
            forked.add_entries(entries)
            after_seq = entries[-1].seq
        return forked

    async def list_approvals(self, call: HttpCall) -> Any:
        """The ones that expire first come first."""
        limit = call.get_clamped("limit", MAX_APPROVALS, MAX_APPROVALS)
        waiting: list[tuple[Session, events.Approval]] = []
        for card in await self._tower.list_cards(limit, states=_WAITING):
            try:
                session = await self._tower.get_session(card.session_id)
            except errors.SessionNotFound:
                continue  # deleted meanwhile
            if session.run is not None:
                waiting += [(session, approval) for approval in session.run.pending.values()]
        waiting.sort(key=lambda one: one[1].expires_at_ms)
        return [_convert_approval(*one) for one in waiting[:limit]]

    async def list_models(self, call: HttpCall) -> Any:
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
            for offer in await self._tower.host_services.list_models()
        ]

    async def list_presets(self, call: HttpCall) -> Any:
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
            for offer in await self._tower.host_services.list_presets(call.get_text("cwd") or "/")
        ]


def _convert_approval(session: Session, approval: events.Approval) -> dict[str, Any]:
    return {
        "run_id": names.format_run_id(session.id),
        "run_title": session.title,
        "host_id": session.host,
        "cwd": session.workspace.root,
        "request_id": names.format_request_id(approval.id),
        "call_id": approval.call_id,
        "kind": approval.kind,
        "tool": summarize_approval(approval).tool,
        "title": approval.title,
        "summary": approval.summary,
        "details": approval.details,
        "options": list(approval.options),
        "risk": "high" if approval.details.get("destructive") is True else "normal",
        "always": None if approval.rule is None else policy.describe_always(approval.rule),
        "expires_at": stamps.format_timestamp(approval.expires_at_ms),
    }
