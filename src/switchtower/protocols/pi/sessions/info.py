"""Converts a session to pi's information and statistics, from the folded session alone, and the models of the catalogue to pi's
form. Models are looked up on request and kept for the sessions' information."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec import UNSET, UnsetType

from switchtower.core import events
from switchtower.core.ports import host_services, journal
from switchtower.core.session import Session
from switchtower.protocols.pi import event_messages
from switchtower.protocols.pi.stream_state import UNKNOWN_ASSISTANT, AssistantInfo

DEFAULT_THINKING = "off"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS = 253_402_300_799_999
"""The last moment of the calendar."""


def make_session_info(
    session: Session,
    model: event_messages.Model | None,
    session_file: str | None = None,
    *,
    name: str | None = None,
    child_of: str | None = None,
) -> event_messages.SessionInfo:
    """`name` and `child_of` are the names that pi's clients use for the session and its parent, if they differ from the core's
    ids."""
    return event_messages.SessionInfo(
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
    """Returns whether the agent works, or a flow. A compaction or an undo is not the agent's work."""
    return session.run is not None and session.run.purpose in (events.Purpose.WORK, events.Purpose.FLOW)


def make_stored_session_info(
    card: journal.Card, session_file: str, *, name: str, file_exists: bool
) -> event_messages.StoredSessionInfo:
    """The journal stores sessions: the path represents one, and a file exists only if the session was exported."""
    return event_messages.StoredSessionInfo(
        sessionId=name,
        sessionName=card.title or UNSET,
        sessionFile=session_file,
        sessionPath=session_file,
        cwd=card.workspace.root,
        createdAt=format_iso_time(card.created_at_ms),
        fileExists=file_exists,
        messageCount=card.messages,
    )


def make_session_stats(
    session: Session, session_file: str | None = None, *, name: str | None = None
) -> event_messages.SessionStats:
    counts = session.counts
    all_, before, imported = session.usage, session.usage_before, session.imported_usage
    tokens_in = all_.input_tokens - before.input_tokens + imported.input_tokens
    tokens_out = all_.output_tokens - before.output_tokens + imported.output_tokens
    cache_read = all_.cache_read_tokens - before.cache_read_tokens + imported.cache_read_tokens
    cache_write = all_.cache_write_tokens - before.cache_write_tokens + imported.cache_write_tokens
    return event_messages.SessionStats(
        sessionFile=session_file or UNSET,
        sessionId=name or session.id,
        userMessages=counts.user,
        assistantMessages=counts.assistant,
        toolCalls=counts.tool_calls,
        toolResults=counts.tool_results,
        totalMessages=counts.messages,
        tokens=event_messages.Tokens(
            input=count_uncached(tokens_in, cache_read, cache_write),
            output=tokens_out,
            cacheRead=cache_read,
            cacheWrite=cache_write,
            total=tokens_in + tokens_out,
        ),
        cost=all_.cost - before.cost + imported.cost,
    )


def make_context_usage(session: Session, context_window: int | None = None) -> event_messages.ContextUsage | None:
    """Returns None when the window's size is unknown. `context_window` is the catalogue's, for use before the first call."""
    window = session.context_window or context_window
    if not window:
        return None
    tokens = session.context_tokens or None
    return event_messages.ContextUsage(tokens, window, None if tokens is None else tokens / window * 100)


def convert_usage(reported: events.UsageReported) -> event_messages.Usage:
    return event_messages.Usage(
        input=count_uncached(reported.input_tokens, reported.cache_read_tokens, reported.cache_write_tokens),
        output=reported.output_tokens,
        cacheRead=reported.cache_read_tokens,
        cacheWrite=reported.cache_write_tokens,
        totalTokens=reported.input_tokens + reported.output_tokens,
        cost=event_messages.Cost(total=reported.cost or 0.0),
    )


def count_uncached(input_tokens: int, cache_read: int, cache_write: int) -> int:
    """We count all input tokens; pi's clients add the four figures up."""
    return max(0, input_tokens - cache_read - cache_write)


def format_iso_time(ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=min(max(ms, 0), _LATEST_MS))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_APIS = {"anthropic": "anthropic-messages", "google": "google-generative-ai", "demo": "demo"}
_DEFAULT_API = "openai-completions"
_DEFAULT_WINDOW = 128_000
_MAX_OUTPUT = 16_384
"""Our catalogues do not know how much a model may write; clients require a figure."""


class PiModelCatalog:
    def __init__(self, workshop_: host_services.HostServices) -> None:
        self._host_services = workshop_
        self._infos: dict[str, host_services.ModelInfo] = {}

    async def refresh(self) -> list[event_messages.Model]:
        """Returns the models that are usable now."""
        offers: Sequence[host_services.ModelInfo] = await self._host_services.list_models()
        self._infos = {offer.name: offer for offer in offers}
        return [self._make_model(offer, offer.model or offer.name) for offer in offers if offer.usable]

    def get_model(self, provider: str, model: str | None) -> event_messages.Model:
        """Returns a model even if the catalogue does not list it: a session keeps the name that it was given."""
        offer = self._infos.get(provider)
        if offer is None:
            offer = host_services.ModelInfo(provider, provider, model, usable=True, reason="")
        return self._make_model(offer, model or offer.model or provider)

    def _make_model(self, offer: host_services.ModelInfo, model: str) -> event_messages.Model:
        return event_messages.Model(
            id=model,
            name=model,
            api=get_api_name(offer.provider),
            provider=offer.name,
            baseUrl="",
            reasoning=True,
            input=("text", "image"),
            cost=event_messages.ModelCost(offer.price_in or 0.0, offer.price_out or 0.0),
            contextWindow=offer.context_window or _DEFAULT_WINDOW,
            maxTokens=_MAX_OUTPUT,
        )


def make_assistant_info(model: event_messages.Model | UnsetType) -> AssistantInfo:
    """Returns the assistant of a session with this model."""
    return UNKNOWN_ASSISTANT if model is UNSET else AssistantInfo(provider=model.provider, model=model.id, api=model.api)


def get_api_name(kind: str) -> str:
    return _APIS.get(kind, _DEFAULT_API)
