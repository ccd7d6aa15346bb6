"""The rules of errands: tools that somebody uses in a session's workspace from afar, beside whatever runs there. Pure."""

from typing import assert_never

from switchtower.core import commands, errors, events
from switchtower.core.decision import Decision
from switchtower.core.session import Session


def decide_remote_call(session: Session, command: commands.StartRemoteCall | commands.FinishRemoteCall) -> Decision:
    match command:
        case commands.StartRemoteCall():
            if command.errand_id in session.errands or command.errand_id in session.closed_approvals:
                raise errors.IdentityConflict(command.errand_id)
            started = events.RemoteCallStarted(
                errand_id=command.errand_id, tool=command.tool, args=command.args, by=command.actor
            )
            return Decision([started], session.run.id if session.run else None)
        case commands.FinishRemoteCall():
            tool = session.errands.get(command.errand_id)
            if tool is None:
                return Decision([])  # a restart closed it already
            finished = events.RemoteCallFinished(
                errand_id=command.errand_id,
                tool=tool,
                by=command.actor,
                ok=command.ok,
                duration_ms=command.duration_ms,
                result=command.result,
                error=command.error,
            )
            return Decision([finished], session.run.id if session.run else None)
        case _:
            assert_never(command)
