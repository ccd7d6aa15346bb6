"""A session in pi's figures: what it is, what it took, how full its context is. Pure, from the folded session alone."""

from datetime import UTC, datetime, timedelta

from msgspec import UNSET

from switchtower.core import events, journal
from switchtower.core.session import Session
from switchtower.protocols.pi.view import shapes

DEFAULT_THINKING = "off"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS = 253_402_300_799_999
"""The end of the calendar."""


def make_session_info(
    session: Session,
    model: shapes.Model | None,
    session_file: str | None = None,
    *,
    name: str | None = None,
    child_of: str | None = None,
) -> shapes.SessionInfo:
    """`name` and `child_of` are what pi's clients call the session and its parent, where that is not the core's id."""
    return shapes.SessionInfo(
        sessionId=name or session.id,
        sessionName=session.title or UNSET,
        sessionFile=session_file or UNSET,
        model=model or UNSET,
        thinkingLevel=session.thinking or DEFAULT_THINKING,
        isStreaming=is_streaming(session),
        messageCount=session.counts.messages,
        createdAt=format_iso_time(session.created_at_ms),
        sandbox=session.sandbox or UNSET,
        childOf=child_of or session.parent_session or UNSET,
    )


def is_streaming(session: Session) -> bool:
    """Whether the agent works, or a flow. A compaction or an undo is no work of it."""
    return session.run is not None and session.run.purpose in (events.Purpose.WORK, events.Purpose.FLOW)


def make_stored_session_info(card: journal.Card, session_file: str, *, name: str, file_exists: bool) -> shapes.StoredSessionInfo:
    """The journal is what stores sessions: the path stands for one, and there is a file only where one was exported."""
    return shapes.StoredSessionInfo(
        sessionId=name,
        sessionName=card.title or UNSET,
        sessionFile=session_file,
        sessionPath=session_file,
        cwd=card.workspace.root,
        createdAt=format_iso_time(card.created_at_ms),
        fileExists=file_exists,
        messageCount=card.messages,
    )


def make_session_stats(session: Session, session_file: str | None = None, *, name: str | None = None) -> shapes.SessionStats:
    counts = session.counts
    all_, before, imported = session.usage, session.usage_before, session.imported_usage
    tokens_in = all_.input_tokens - before.input_tokens + imported.input_tokens
    tokens_out = all_.output_tokens - before.output_tokens + imported.output_tokens
    cache_read = all_.cache_read_tokens - before.cache_read_tokens + imported.cache_read_tokens
    cache_write = all_.cache_write_tokens - before.cache_write_tokens + imported.cache_write_tokens
    return shapes.SessionStats(
        sessionFile=session_file or UNSET,
        sessionId=name or session.id,
        userMessages=counts.user,
        assistantMessages=counts.assistant,
        toolCalls=counts.tool_calls,
        toolResults=counts.tool_results,
        totalMessages=counts.messages,
        tokens=shapes.Tokens(
            input=count_uncached(tokens_in, cache_read, cache_write),
            output=tokens_out,
            cacheRead=cache_read,
            cacheWrite=cache_write,
            total=tokens_in + tokens_out,
        ),
        cost=all_.cost - before.cost + imported.cost,
    )


def make_context_usage(session: Session, context_window: int | None = None) -> shapes.ContextUsage | None:
    """None when nobody knows how large the window is. `context_window` is the catalogue's, for before the first call."""
    window = session.context_window or context_window
    if not window:
        return None
    tokens = session.context_tokens or None
    return shapes.ContextUsage(tokens, window, None if tokens is None else tokens / window * 100)


def convert_usage(reported: events.UsageReported) -> shapes.Usage:
    return shapes.Usage(
        input=count_uncached(reported.input_tokens, reported.cache_read_tokens, reported.cache_write_tokens),
        output=reported.output_tokens,
        cacheRead=reported.cache_read_tokens,
        cacheWrite=reported.cache_write_tokens,
        totalTokens=reported.input_tokens + reported.output_tokens,
        cost=shapes.Cost(total=reported.cost or 0.0),
    )


def count_uncached(input_tokens: int, cache_read: int, cache_write: int) -> int:
    """Ours count all that went in; pi's clients add the four figures up."""
    return max(0, input_tokens - cache_read - cache_write)


def format_iso_time(ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=min(max(ms, 0), _LATEST_MS))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
