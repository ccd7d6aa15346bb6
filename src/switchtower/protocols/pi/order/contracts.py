"""What kind of command each type is: what it changes, whom it may pass, how long it may take. Tables; nothing happens here."""

from switchtower.protocols.pi import messages
from switchtower.protocols.pi.order import inbound

SERVER = frozenset(
    {
        "list_sessions",
        "create_session",
        "delete_session",
        "switch_session",
        "get_metrics",
        "health_check",
        "list_stored_sessions",
        "load_session",
    }
)
"""pi-server 17.1."""

READS = frozenset(name for name in messages.COMMANDS if name.startswith(("get_", "list_")))

MUTATING = frozenset(messages.COMMANDS) - READS - {"switch_session", "extension_ui_response", "health_check"}

VERSIONED = (frozenset(messages.COMMANDS) - SERVER) | {"create_session", "load_session", "switch_session"}
"""Whose success tells the session's version."""

ADVANCING = MUTATING - SERVER
"""pi-server 10: whose success moves the session's version on."""

CONTROL = frozenset({"abort", "abort_compaction", "abort_retry", "abort_bash", "extension_ui_response", "delete_session"})
"""What stops something or decides about it. A client that has used up its rate can still do this."""

OVERTAKING = READS | {
    "steer",
    "follow_up",
    "abort",
    "abort_compaction",
    "abort_retry",
    "abort_bash",
    "switch_session",
    "extension_ui_response",
    "health_check",
}


def get_versioned_session(command: str, named: str | None, made: str | None) -> str | None:
    """Whose version a command is about: the session that it names, or for create and load the one that it made."""
    return made if made is not None and command in SERVER else named


def can_overtake(request: inbound.PiRequest) -> bool:
    """May it overtake a command that only waits? A prompt may when it says what to do with a running agent."""
    if request.type == "prompt":
        return isinstance(request.body, messages.Prompt) and request.body.streamingBehavior is not None
    return request.type in OVERTAKING
