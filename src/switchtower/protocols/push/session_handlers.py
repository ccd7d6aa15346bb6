"""Handlers of requests beyond the push document, for one client: each submits a command to the session service or queries it."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, Struct, structs

from switchtower.core import commands, errors, flows
from switchtower.core.ports import session_service
from switchtower.protocols.push import encoder, extension_messages, inbound

if TYPE_CHECKING:
    from switchtower.protocols.push.connection import PushConnection


_PAGE = 1_000
_KINDS: dict[str, Literal["skill", "prompt", "extension"]] = {"skill": "skill", "prompt": "prompt", "extension": "extension"}
_ORIGINS: dict[str, Literal["workspace", "user", "plugin"]] = {"workspace": "workspace", "user": "user", "plugin": "plugin"}


def make_session_handlers(connection: "PushConnection") -> dict[str, Callable[[inbound.PushRequest], None]]:
    extras = _SessionRequests(connection)
    return {
        "get_session": extras.get_session,
        "configure_session": extras.configure_session,
        "queue_message": extras.queue_message,
        "compact_session": extras.compact_session,
        "undo_run": extras.undo_run,
        "diff_session": extras.diff_session,
        "list_models": extras.list_models,
        "list_templates": extras.list_templates,
        "list_presets": extras.list_presets,
        "answer_dialog": extras.answer_dialog,
        "terminal_input": extras.submit_terminal_input,
        "terminal_resize": extras.resize_terminal,
        "list_terminals": extras.list_terminals,
        "get_flow": extras.get_flow,
        "set_provider_variables": extras.set_provider_variables,
    }


class _SessionRequests:
    def __init__(self, connection: "PushConnection") -> None:
        self._connection = connection

    def get_session(self, request: inbound.PushRequest) -> None:
        session_id = self._require_command_access(request)

        async def info() -> Struct:
            tower_ = self._connection.tower
            told = encoder.make_session_info(await tower_.get_session(session_id))
            if tower_.nodes is None:
                return told
            card = await tower_.find_card(session_id)
            return structs.replace(told, home=card.home if card is not None else None)

        self._connection.respond_later(request, info)

    def configure_session(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, extension_messages.ConfigureSession)
        command = inbound.build_configure_session(request.payload, self._require_command_access(request), self._connection.actor)
        self._connection.check_policy(command.policy)

        def submit() -> None:
            self._connection.tower.host_services.check_configuration(command)
            self._connection.submit(
                command,
                request,
                lambda _: self._connection.encode_answer(
                    request, command.session_id, extension_messages.Configured(accepted=True)
                ),
            )

        async def look_up_and_submit() -> None:
            await self._connection.tower.host_services.look_up_model(command)
            submit()

        if command.provider is None:
            submit()
        else:
            self._connection.run_request(request, look_up_and_submit)

    def queue_message(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, extension_messages.QueueMessage)
        session_id = self._require_command_access(request)

        def accepted(outcome: session_service.SubmitOutcome) -> bytes:
            self._connection.subscribe_to_started_run(session_id, outcome)
            queued = extension_messages.Queued(accepted=True, messageId=outcome["message_id"], runId=outcome.get("run_id"))
            return self._connection.encode_answer(request, session_id, queued)

        self._connection.submit(
            inbound.build_queue_message(request.payload, session_id, self._connection.actor), request, accepted
        )

    def compact_session(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, extension_messages.CompactSession)
        session_id = self._require_command_access(request)
        instructions = request.payload.instructions
        self._start_background_run(
            commands.CompactContext(session_id=session_id, actor=self._connection.actor, instructions=instructions), request
        )

    def undo_run(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, extension_messages.UndoRun)
        session_id = self._require_command_access(request)
        redo, force = request.payload.redo, request.payload.force
        self._start_background_run(
            commands.RestoreWorkspace(session_id=session_id, actor=self._connection.actor, redo=redo, force=force), request
        )

    def diff_session(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, extension_messages.DiffSession)
        session_id, run_id = self._require_command_access(request), request.payload.runId

        async def diff() -> Struct:
            session = await self._connection.tower.get_session(session_id)
            changes = [change for change in session.done if run_id in (None, change.run_id)]
            if run_id is not None and not changes:
                raise errors.InvalidCommand(f"{run_id} changed no files of this session that are still kept")
            site = self._connection.tower.host_services.get_workspace(session_id)
            return extension_messages.Diff(await site.diff(session.workspace, changes))

        self._connection.respond_later(request, diff)

    def list_models(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, extension_messages.ListModels)
        provider = request.payload.provider

        async def models() -> Struct:
            workshop = self._connection.tower.host_services
            offers = await workshop.list_models()
            listed = UNSET if provider is None else await workshop.list_server_models(provider)
            return extension_messages.Models(
                [
                    extension_messages.ModelListing(
                        name=offer.name,
                        provider=offer.provider,
                        model=offer.model,
                        usable=offer.usable,
                        reason=offer.reason,
                        isDefault=offer.is_default,
                        contextWindow=offer.context_window,
                        priceIn=offer.price_in,
                        priceOut=offer.price_out,
                        keySource=offer.key_source,
                    )
                    for offer in offers
                ],
                UNSET if listed is UNSET else None if listed is None else list(listed),
            )

        self._connection.respond_later(request, models)

    def set_provider_variables(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, extension_messages.SetProviderVariables)
        self._connection.check_is_owner_process()
        workshop, variables = self._connection.tower.host_services, request.payload.variables

        async def take() -> Struct:
            await asyncio.to_thread(workshop.set_provider_variables, variables)
            return extension_messages.ProviderVariablesSet(sorted(variables))

        self._connection.respond_later(request, take)

    def list_templates(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, extension_messages.ListTemplates)
        root = request.payload.rootPath

        async def templates() -> Struct:
            offers = await self._connection.tower.host_services.list_templates(root)
            return extension_messages.Templates(
                [
                    extension_messages.Template(
                        name=offer.name,
                        kind=_KINDS[offer.kind],
                        description=offer.description,
                        path=offer.path,
                        origin=_ORIGINS[offer.origin],
                    )
                    for offer in offers
                ]
            )

        self._connection.respond_later(request, templates)

    def list_presets(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, extension_messages.ListPresets)
        root = request.payload.rootPath

        async def presets() -> Struct:
            offers = await self._connection.tower.host_services.list_presets(root)
            return extension_messages.Presets(
                [
                    extension_messages.Preset(
                        name=offer.name,
                        origin="user" if offer.origin == "user" else "workspace",
                        path=offer.path,
                        description=offer.description,
                        provider=offer.provider,
                        model=offer.model,
                        policy=offer.policy,
                        thinking=offer.thinking,
                        servers=list(offer.servers),
                        usable=offer.usable,
                        reason=offer.reason,
                    )
                    for offer in offers
                ]
            )

        self._connection.respond_later(request, presets)

    def answer_dialog(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, extension_messages.AnswerDialog)
        command = inbound.build_answer_dialog(request.payload, self._require_command_access(request), self._connection.actor)
        answered = extension_messages.DialogAnswered(accepted=True)
        self._connection.submit(command, request, lambda _: self._connection.encode_answer(request, command.session_id, answered))

    def submit_terminal_input(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, extension_messages.TerminalInput)
        self._submit_input(
            inbound.build_terminal_input(request.payload, self._require_person_access(request), self._connection.actor), request
        )

    def resize_terminal(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, extension_messages.TerminalResize)
        self._submit_input(
            inbound.build_terminal_resize(request.payload, self._require_person_access(request), self._connection.actor), request
        )

    def list_terminals(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, extension_messages.ListTerminals)
        limit = request.payload.limit

        async def terminals() -> Struct:
            cards = await self._connection.tower.list_cards(limit)
            return extension_messages.Terminals([encoder.make_terminal_listing(card) for card in cards if card.tool])

        self._connection.respond_later(request, terminals)

    def get_flow(self, request: inbound.PushRequest) -> None:
        session_id = self._require_command_access(request)

        async def report() -> Struct:
            session = await self._connection.tower.get_session(session_id)
            if session.flow is None:
                raise errors.InvalidCommand(f"{session_id} is not a flow")
            told = flows.FlowSessionReport(session.flow.name)
            while entries := await self._connection.tower.read_entries(session_id, told.last_seq, _PAGE):
                told.add_entries(entries)
            return extension_messages.FlowReport(
                flow=told.flow,
                status=told.status,
                summary=told.summary,
                events=told.events,
                eventsLeftOut=told.left_out,
                exitCode=session.flow.exit_code,
            )

        self._connection.respond_later(request, report)

    def _submit_input(
        self, command: commands.TypeInput | commands.TypeKeys | commands.ResizeTerminal, request: inbound.PushRequest
    ) -> None:
        typed = extension_messages.Typed(accepted=True)
        self._connection.submit(command, request, lambda _: self._connection.encode_answer(request, command.session_id, typed))

    def _start_background_run(
        self, command: commands.CompactContext | commands.RestoreWorkspace, request: inbound.PushRequest
    ) -> None:
        def accepted(outcome: session_service.SubmitOutcome) -> bytes:
            self._connection.subscribe_to_started_run(command.session_id, outcome)
            return self._connection.encode_answer(
                request, command.session_id, extension_messages.ChoreStarted(outcome["run_id"], accepted=True)
            )

        self._connection.submit(command, request, accepted)

    def _require_command_access(self, request: inbound.PushRequest) -> str:
        assert request.session_id is not None, "the request names a session"
        self._connection.check_can_command(request.session_id)
        return request.session_id

    def _require_person_access(self, request: inbound.PushRequest) -> str:
        """A process of a run is refused: with any token that it has found it could answer the prompts that are meant to stop
        it."""
        if self._connection.is_run_process:
            raise errors.AttachForbidden(request.session_id, hint="what a run has started cannot type into terminals")
        return self._require_command_access(request)
