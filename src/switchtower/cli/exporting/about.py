"""What stands above a document: which session it is, and when and where it worked. Pure."""

import datetime

from switchtower.cli.exporting.plain import to_plain_line
from switchtower.protocols.push import extensions


def format_title(session_id: str, about: extensions.SessionInfo | None) -> str:
    return (to_plain_line(about.title) if about is not None else "") or f"Session {session_id}"


def list_facts(session_id: str, about: extensions.SessionInfo | None) -> list[tuple[str, str]]:
    """Names and values. An older daemon tells nothing but the id."""
    pairs = [("Session", session_id)]
    if about is None:
        return pairs
    pairs.append(("Started", format_moment(about.createdAt)))
    pairs.append(("Last event", format_moment(about.updatedAt)))
    if about.terminal is not None:
        pairs.append(("Program", to_plain_line(about.terminal.command)))
        if about.terminal.exitCode is not None:
            pairs.append(("Exit code", str(about.terminal.exitCode)))
    else:
        pairs.append(("Model", to_plain_line(f"{about.provider} {about.model or ''}")))
        pairs.append(("Policy", to_plain_line(about.policy)))
    pairs.append(("Folder", to_plain_line(about.rootPath) + (f" (branch {to_plain_line(about.branch)})" if about.branch else "")))
    pairs.append(("State", about.state))
    return pairs


def format_moment(ms: int) -> str:
    """In UTC: a document is read elsewhere. What no clock can have shown is told as the number it is."""
    try:
        return f"{datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return str(ms)
