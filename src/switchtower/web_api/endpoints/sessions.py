"""Endpoints for runs (list, read, input), for hosts (list, and an admin's actions), and for sessions beyond relay's own: rename,
fork and delete, the options of a new session, and all pending approvals with their details."""

import hashlib
from typing import Annotated, Any

from msgspec import Meta, Struct

from switchtower.core import commands, conversation, errors, events, policy
from switchtower.core.fold import summarize_approval
from switchtower.core.ports import registry, session_service
from switchtower.core.roles import Action
from switchtower.core.session import Session
from switchtower.protocols.relay import messages, wire_values
from switchtower.web_api import ports, requests, responses
from switchtower.web_api.requests import HttpCall
from switchtower.web_api.routes import EndpointRoute

MAX_RUNS = 200
DEFAULT_RECENT_RUNS = 50
DEFAULT_MESSAGES, MAX_MESSAGES = 200, 500


class RunEndpoints:
    def __init__(self, hub: ports.HubPort) -> None:
        self._hub = hub

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        # The public page asks for sessions, the command line for runs; they are the same.
        return (
            EndpointRoute("GET", "/runs", self.list, action=Action.WATCH),
            EndpointRoute("GET", "/sessions", self.list, action=Action.WATCH),
            EndpointRoute("GET", "/sessions/recent", self.list_recent, action=Action.WATCH),
            EndpointRoute("GET", "/runs/{run_id}", self.get, action=Action.WATCH),
            EndpointRoute("GET", "/sessions/{run_id}", self.get, action=Action.WATCH),
            EndpointRoute("GET", "/runs/{run_id}/messages", self.list_messages, action=Action.WATCH),
            EndpointRoute("GET", "/sessions/{run_id}/messages", self.list_messages, action=Action.WATCH),
            EndpointRoute("GET", "/runs/{run_id}/screen", self.get_screen, action=Action.WATCH),
            EndpointRoute("POST", "/runs/{run_id}/input", self.send_input, action=Action.SEND),
        )

    async def list(self, call: HttpCall) -> Any:
        return await self._hub.list_runs(MAX_RUNS)

    async def list_recent(self, call: HttpCall) -> Any:
        return await self._hub.list_runs(call.get_clamped("limit", DEFAULT_RECENT_RUNS, MAX_RUNS))

    async def get(self, call: HttpCall) -> Any:
        return _require_run(await self._hub.find_run(call.run_id))

    async def list_messages(self, call: HttpCall) -> Any:
        history = await self._hub.read_history(
            call.run_id,
            limit=call.get_clamped("limit", DEFAULT_MESSAGES, MAX_MESSAGES),
            before_id=call.get_number("before_id"),
            include_output=call.get_flag("include_output", default=True),
        )
        return _require_run(history)

    async def get_screen(self, call: HttpCall) -> Any:
        """Our addition."""
        return _require_run(await self._hub.read_screen(call.run_id))

    async def send_input(self, call: HttpCall) -> Any:
        asked = await call.read_body(messages.SendInput)
        await self._hub.send_input(call.run_id, asked, call.caller.make_actor(asked.actor))


def _require_run(found: Any) -> Any:
    if found is None:
        raise responses.make_unknown_run()
    return found


class HostEndpoints:
    def __init__(self, hub: ports.HubPort) -> None:
        self._hub = hub

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        return (
            EndpointRoute("GET", "/hosts", self.list, action=Action.WATCH),
            EndpointRoute("PATCH", "/hosts/{host_id}", self.rename, action=Action.MANAGE_HOSTS),
            EndpointRoute("DELETE", "/hosts/{host_id}", self.remove, action=Action.MANAGE_HOSTS),
            EndpointRoute("POST", "/hosts/{host_id}/approve", self.approve, action=Action.MANAGE_HOSTS),
            EndpointRoute("POST", "/hosts/{host_id}/refuse", self.refuse, action=Action.MANAGE_HOSTS),
            EndpointRoute("POST", "/hosts/{host_id}/rotate", self.rotate, action=Action.MANAGE_HOSTS),
        )

    async def list(self, call: HttpCall) -> Any:
        return await self._hub.list_hosts()

    async def rename(self, call: HttpCall) -> Any:
        asked = await call.read_body(requests.NewNameBody)
        _require_host(known=await self._hub.rename_host(call.host_id, asked.name, call.caller.make_actor()))

    async def remove(self, call: HttpCall) -> Any:
        _require_host(known=await self._hub.remove_host(call.host_id, call.caller.make_actor()))

    async def approve(self, call: HttpCall) -> Any:
        await self._set_state(call, registry.HostState.APPROVED)

    async def refuse(self, call: HttpCall) -> Any:
        await self._set_state(call, registry.HostState.REFUSED)

    async def _set_state(self, call: HttpCall, state: registry.HostState) -> None:
        _require_host(known=await self._hub.set_host_state(call.host_id, state.value, call.caller.make_actor()))

    async def rotate(self, call: HttpCall) -> Any:
        _require_host(known=await self._hub.rotate_host(call.host_id, call.caller.make_actor()))


def _require_host(*, known: bool) -> None:
    if not known:
        raise responses.make_unknown_host()


FEATURES = ("fork", "rename", "delete", "approvals", "models", "presets")
MAX_APPROVALS = 200
_PAGE_SIZE = 1_000
_WAITING = (events.SessionState.AWAITING_APPROVAL,)


class NewTitleBody(Struct, frozen=True):
    title: Annotated[str, Meta(min_length=1, max_length=500)]


class ForkBody(Struct, frozen=True):
    at_id: Annotated[int, Meta(ge=1, le=2**53 - 1)] | None = None
    """The `id` of a `run.input`: the fork has the messages before it. None takes all."""


class SessionEndpoints:
    def __init__(self, tower_: session_service.SessionService) -> None:
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
            raise responses.HttpError(409, "only a conversation with an agent of this machine can be forked")
        forked = await self._read_fork(parent, asked.at_id)
        command = commands.StartSession(
            session_id=self._tower.mint("sess"),
            actor=call.caller.make_actor(),
            engine="agent",
            mode="interactive",
            provider=parent.provider,
            workspace=parent.workspace,
            # A user needs no attach token, and a client that has only an attach token cannot make this request.
            attach_token_sha256=hashlib.sha256(self._tower.mint_secret("att").encode()).hexdigest(),
            conversation=forked.build_conversation(),
            title=f"{parent.title} (fork)" if parent.title else None,
            id_is_fresh=True,
        )
        await self._tower.host_services.look_up_model(command)
        await self._tower.ask(
            conversation.inherit_settings(
                self._tower.host_services.prepare_session(conversation.inherit_settings(command, parent)), parent
            )
        )
        return responses.make_json_response({"run_id": wire_values.format_run_id(command.session_id), "text": forked.text}, 201)

    async def _read_fork(self, parent: Session, at_id: int | None) -> conversation.ConversationFork:
        forked = conversation.ConversationFork(at_id)
        after_seq = 0
        while not forked.reached and (entries := await self._tower.read_entries(parent.id, after_seq, _PAGE_SIZE)):
            forked.add_entries(entries)
            after_seq = entries[-1].seq
        return forked

    async def list_approvals(self, call: HttpCall) -> Any:
        """Lists approvals, those that expire first at the start."""
        limit = call.get_clamped("limit", MAX_APPROVALS, MAX_APPROVALS)
        waiting: list[tuple[Session, events.Approval]] = []
        for card in await self._tower.list_cards(limit, states=_WAITING):
            try:
                session = await self._tower.get_session(card.session_id)
            except errors.SessionNotFound:
                continue  # it was deleted meanwhile
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
        "run_id": wire_values.format_run_id(session.id),
        "run_title": session.title,
        "host_id": session.host,
        "cwd": session.workspace.root,
        "request_id": wire_values.format_request_id(approval.id),
        "call_id": approval.call_id,
        "kind": approval.kind,
        "tool": summarize_approval(approval).tool,
        "title": approval.title,
        "summary": approval.summary,
        "details": approval.details,
        "options": list(approval.options),
        "risk": "high" if approval.details.get("destructive") is True else "normal",
        "always": None if approval.rule is None else policy.describe_always(approval.rule),
        "expires_at": wire_values.format_timestamp(approval.expires_at_ms),
    }
