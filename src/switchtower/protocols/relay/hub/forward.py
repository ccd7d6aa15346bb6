"""The core's commands in relay's words, for sessions that live on another host. Pure."""

from typing import Any

from switchtower.core import commands, events, terminals
from switchtower.core import errors as core_errors
from switchtower.protocols.relay import names, outbound


def encode_command(command: commands.AnyCommand, fresh_id: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The message for the host, and what the asker is told once it has gone out. Refuses what relay cannot say. `fresh_id` is for
    what has no identity of its own."""
    who = {"actor": outbound.convert_actor(command.actor), "by": command.actor.name}
    run_id = names.make_core_run_id(command.session_id)
    match command:
        case commands.SendMessage() | commands.QueueMessage():
            text = command.text + terminals.ENTER
            given = command.client_message_id if isinstance(command, commands.SendMessage) else None
            # The same message sent twice has the same id, so the host types it once.
            input_id = command.idempotency_key or given or fresh_id
            told = {"input_id": input_id, "text": text, **who}
            return "run.send_input", told, {"run_id": run_id, "message_id": input_id}
        case commands.TypeInput():
            told = {"input_id": command.input_id, "text": command.text, **who}
            return "run.send_input", told, {"run_id": run_id, "input_id": command.input_id}
        case commands.TypeKeys():
            return "run.send_stdin", {"text": command.text, **who}, {"run_id": run_id}
        case commands.ResizeTerminal():
            return "run.resize", {"cols": command.cols, "rows": command.rows, **who}, {}
        case commands.CancelRun():
            return "run.stop", {"signal": "kill" if command.force else "term", **who}, {}
        case commands.DecideApproval():
            approve = command.verdict is events.Verdict.APPROVE
            decision = outbound.DECISION_NAMES[command.verdict]
            told = {
                "request_id": names.format_request_id(command.approval_id),
                "decision": "approve_for_session" if approve and command.always else decision,
                **who,
            }
            return f"run.permission.{'approve' if approve else 'deny'}", told, {}
        case _:
            raise core_errors.SessionOnOtherHost(hint="ask for this on the session's own host")
