"""A client's answer to a question of the agent's or of an extension's (pi-server 18.2): an approval, or a dialog."""

from switchtower.core import commands, errors, events
from switchtower.protocols.pi import messages, strings
from switchtower.protocols.pi.handlers.hall import HandlerContext, Client
from switchtower.protocols.pi.order import inbound, ports
from switchtower.protocols.pi.roster import LoadedSession


class UiResponseHandlers:
    def __init__(self, context: HandlerContext) -> None:
        self._context = context

    async def extension_ui_response(
        self, request: inbound.PiRequest, client: Client, loaded: LoadedSession
    ) -> ports.HandlerResult:
        body = request.body
        assert isinstance(body, messages.ExtensionUiResponse)
        session = await self._context.service.get_session(loaded.id)
        run = session.run
        if run is not None and body.requestId in run.pending:
            command: commands.AnyCommand = self._build_decision(body, client, loaded.id)
        elif run is not None and body.requestId in run.dialogs:
            command = self._build_dialog_answer(body, client, loaded.id, run.dialogs[body.requestId])
        else:
            raise ports.PiCommandError(strings.format_no_ui_request(body.requestId))
        try:
            await self._context.submit(command)
        except (errors.ApprovalClosed, errors.ApprovalNotFound, errors.DialogNotFound):
            # pi-server 18: the first answer wins, and there is nothing left to answer.
            raise ports.PiCommandError(strings.format_no_ui_request(body.requestId)) from None
        return ports.HandlerResult()

    def _build_decision(self, body: messages.ExtensionUiResponse, client: Client, session_id: str) -> commands.DecideApproval:
        answer = body.response
        if isinstance(answer, messages.Confirmed):
            approved, always = answer.confirmed, answer.always
        elif isinstance(answer, messages.Cancelled):
            approved, always = False, False
        else:
            raise ports.PiCommandError(strings.format_invalid_field("response.method", "must be confirm or cancelled"))
        return commands.DecideApproval(
            session_id=session_id,
            actor=client.actor,
            approval_id=body.requestId,
            verdict=events.Verdict.APPROVE if approved else events.Verdict.DENY_CONTINUE,
            always=always,
        )

    def _build_dialog_answer(
        self, body: messages.ExtensionUiResponse, client: Client, session_id: str, dialog: events.Dialog
    ) -> commands.AnswerDialog:
        response: dict[str, object] | None
        match body.response:
            case messages.Cancelled():
                response = None
            case messages.Selected(value=value) if dialog.method == "select":
                if value not in dialog.options:
                    raise ports.PiCommandError(strings.format_invalid_field("response.value", "must be one of the options"))
                response = {"value": value}
            case messages.Confirmed(confirmed=confirmed) if dialog.method == "confirm":
                response = {"confirmed": confirmed}
            case messages.Entered(value=value) if dialog.method == "input":
                response = {"value": value}
            case messages.Edited(value=value) if dialog.method == "editor":
                response = {"value": value}
            case messages.Interviewed(responses=responses) if dialog.method == "interview":
                response = {"responses": responses}
            case _:
                raise ports.PiCommandError(
                    strings.format_invalid_field("response.method", f"must be {dialog.method} or cancelled")
                )
        return commands.AnswerDialog(session_id=session_id, actor=client.actor, dialog_id=body.requestId, response=response)
