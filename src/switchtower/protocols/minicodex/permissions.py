"""What each command does, for `core/roles.py`."""

from switchtower.core.roles import Action
from switchtower.protocols.minicodex import messages

MESSAGE_ACTIONS: dict[type[messages.ClientMessage], Action] = {
    # Without a `session_id` in the address, `hello` and `resume` start a session: that is judged where it happens.
    messages.Hello: Action.WATCH,
    messages.Resume: Action.WATCH,
    messages.Send: Action.SEND,
    messages.Approve: Action.DECIDE,
    messages.Deny: Action.DECIDE,
    messages.Abort: Action.STOP,
    messages.GetSnapshot: Action.WATCH,
    messages.Ping: Action.WATCH,
}


def get_action(message: messages.ClientMessage) -> Action | None:
    """None for a command without a row, which needs an admin."""
    return MESSAGE_ACTIONS.get(type(message))
