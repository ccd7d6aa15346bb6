"""The texts that a search covers, by the kind of the event. Pure; every store's search has the same."""

from collections.abc import Callable, Iterator

from switchtower.core import codec, events

LONGEST = 16_384
"""The number of characters of one event that are indexed."""


def extract_texts(kind: str, data: bytes) -> Iterator[str]:
    """Yields the texts of a stored event; its kind is one of `TEXTS`."""
    yield from TEXTS[kind](codec.decode(kind, data))


def _extract_message(event: events.AnyEvent) -> Iterator[str]:
    assert isinstance(
        event,
        events.RunStarted
        | events.MessageCompleted
        | events.MessageDelivered
        | events.MessageImported
        | events.ToolFinished
        | events.ShellFinished,
    )
    yield event.text


def _extract_call(event: events.AnyEvent) -> Iterator[str]:
    assert isinstance(event, events.ToolCalled)
    yield " ".join([event.tool, *(value for value in event.args.values() if isinstance(value, str))])


def _extract_title(event: events.AnyEvent) -> Iterator[str]:
    assert isinstance(event, events.SessionConfigured)
    yield event.title or ""


def _extract_question(event: events.AnyEvent) -> Iterator[str]:
    assert isinstance(event, events.ApprovalRequested)
    yield f"{event.approval.title} {event.approval.summary}"


def _extract_command(event: events.AnyEvent) -> Iterator[str]:
    assert isinstance(event, events.ShellStarted)
    yield event.command


TEXTS: dict[str, Callable[[events.AnyEvent], Iterator[str]]] = {
    events.RunStarted.kind: _extract_message,
    events.MessageCompleted.kind: _extract_message,
    events.MessageDelivered.kind: _extract_message,
    events.MessageImported.kind: _extract_message,
    events.ToolFinished.kind: _extract_message,
    events.ShellFinished.kind: _extract_message,
    events.ToolCalled.kind: _extract_call,
    events.SessionConfigured.kind: _extract_title,
    events.ApprovalRequested.kind: _extract_question,
    events.ShellStarted.kind: _extract_command,
}
