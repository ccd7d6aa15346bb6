"""What each message of an app does, for `core/roles.py`. The HTTP endpoints name theirs in their rows."""

from typing import Any

from switchtower.core.roles import Action
from switchtower.protocols.relay import messages

MESSAGE_ACTIONS: dict[str, Action] = {
    "run.subscribe": Action.WATCH,
    "run.unsubscribe": Action.WATCH,
    "run.send_input": Action.SEND,
    "run.send_stdin": Action.TYPE,
    "run.resize": Action.TYPE,
    "run.stop": Action.STOP,
    "run.permission.approve": Action.DECIDE,
    "run.permission.deny": Action.DECIDE,
    "rpc.fs.read": Action.WATCH,
    "rpc.fs.search": Action.WATCH,
    "rpc.fs.list": Action.WATCH,
    "rpc.fs.write": Action.ACT,
    "rpc.bash": Action.ACT,
    "rpc.git.status": Action.WATCH,
    "rpc.git.diff": Action.WATCH,
    "rpc.runs.list": Action.WATCH,
    "rpc.run.stop": Action.STOP,
    "rpc.run.start": Action.START,
    "rpc.host.info": Action.WATCH,
    "rpc.host.doctor": Action.WATCH,
    "rpc.host.capabilities": Action.WATCH,
    "rpc.host.logs.tail": Action.READ_LOGS,
}


def get_action(type_: str, request: Any) -> Action | None:
    """None for a message without a row, which needs an admin."""
    if isinstance(request, messages.Decide) and request.decision == "approve_for_session":
        return Action.ALLOW_ALWAYS
    return MESSAGE_ACTIONS.get(type_)
