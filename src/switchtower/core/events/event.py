"""What every event is."""

from typing import Any, ClassVar

from msgspec import Struct


class Relayed(Struct, frozen=True, omit_defaults=True):
    """What happened on another host, as that host told it."""

    seq: int
    """The host's own number for it."""
    at_ms: int
    """When it happened there."""
    extra: dict[str, Any] = {}
    """What the host said beyond what the event can hold; passed on as it came."""


class Event(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The base of all events."""

    kind: ClassVar[str]
    relayed: Relayed | None = None
    """Only in a session that lives on another host."""
    prunable: ClassVar[bool] = False
    """Retention may remove it: only what a later event holds again, such as the pieces of a finished message."""
