"""The rules of remote calls, which are tools that a remote client uses in a session's workspace, and of users' own commands.
Both run beside the agent; the model gets the commands with the next message. Pure.
"""

from typing import assert_never

from switchtower.core import commands, errors, events
from switchtower.core.rules import Decision
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
                return Decision([])  # a restart has closed it already
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


MOST_AT_ONCE = 16


def decide_shell(session: Session, command: commands.RunShell | commands.CancelShell | commands.FinishShell) -> Decision:
    match command:
        case commands.RunShell():
            if len(session.shells) >= MOST_AT_ONCE:
                raise errors.Overloaded(f"{len(session.shells)} commands are running in {session.id}")
            started = events.ShellStarted(shell_id=command.shell_id, command=command.command, by=command.actor, told=command.told)
            return Decision([started], None, {"shell_id": command.shell_id})
        case commands.CancelShell():
            chosen = [command.shell_id] if command.shell_id else list(session.shells)
            return Decision([events.ShellCancelRequested(each, command.actor) for each in chosen if each in session.shells])
        case commands.FinishShell():
            if command.shell_id not in session.shells:
                return Decision([])  # a restart has closed it already
            finished = events.ShellFinished(
                shell_id=command.shell_id, exit_code=command.exit_code, text=command.text, cancelled=command.cancelled
            )
            return Decision([finished])
        case _:
            assert_never(command)
