"""What stands above a document: which session it is, and when and where it worked. Pure."""

import datetime

from switchtower.cli.exporting.plain import one_line
from switchtower.protocols.push import extensions


def title(session_id: str, about: extensions.SessionInfo | None) -> str:
    return (one_line(about.title) if about is not None else "") or f"Session {session_id}"


def facts(session_id: str, about: extensions.SessionInfo | None) -> list[tuple[str, str]]:
    """Names and values. An older daemon tells nothing but the id."""
    pairs = [("Session", session_id)]
    if about is None:
        return pairs
    pairs.append(("Started", moment(about.createdAt)))
    pairs.append(("Last event", moment(about.updatedAt)))
    if about.terminal is not None:
        pairs.append(("Program", one_line(about.terminal.command)))
        if about.terminal.exitCode is not None:
            pairs.append(("Exit code", str(about.terminal.exitCode)))
    else:
        pairs.append(("Model", one_line(f"{about.provider} {about.model or ''}")))
        pairs.append(("Policy", one_line(about.policy)))
    pairs.append(("Folder", one_line(about.rootPath) + (f" (branch {one_line(about.branch)})" if about.branch else "")))
    pairs.append(("State", about.state))
    return pairs


def moment(ms: int) -> str:
    """In UTC: a document is read elsewhere. What no clock can have shown is told as the number it is."""
    try:
        return f"{datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return str(ms)
