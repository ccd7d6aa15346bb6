"""The texts that a search looks at: what was said and done, by the kind of the event. Pure; every store's search has the same."""

from collections.abc import Callable, Iterator

from switchtower.core import codec, events

LONGEST = 16_384
"""Of one event so much is looked at."""


def of(kind: str, data: bytes) -> Iterator[str]:
    """Of an event as it is stored; its kind is one of `TEXTS`."""
    yield from TEXTS[kind](codec.decode(kind, data))


def _said(event: events.AnyEvent) -> Iterator[str]:
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


def _called(event: events.AnyEvent) -> Iterator[str]:
    assert isinstance(event, events.ToolCalled)
    yield " ".join([event.tool, *(value for value in event.args.values() if isinstance(value, str))])


def _titled(event: events.AnyEvent) -> Iterator[str]:
    assert isinstance(event, events.SessionConfigured)
    yield event.title or ""


def _asked(event: events.AnyEvent) -> Iterator[str]:
    assert isinstance(event, events.ApprovalRequested)
    yield f"{event.approval.title} {event.approval.summary}"


def _commanded(event: events.AnyEvent) -> Iterator[str]:
    assert isinstance(event, events.ShellStarted)
    yield event.command


TEXTS: dict[str, Callable[[events.AnyEvent], Iterator[str]]] = {
    events.RunStarted.kind: _said,
    events.MessageCompleted.kind: _said,
    events.MessageDelivered.kind: _said,
    events.MessageImported.kind: _said,
    events.ToolFinished.kind: _said,
    events.ShellFinished.kind: _said,
    events.ToolCalled.kind: _called,
    events.SessionConfigured.kind: _titled,
    events.ApprovalRequested.kind: _asked,
    events.ShellStarted.kind: _commanded,
}
