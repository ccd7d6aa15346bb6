"""The host of a session that lives elsewhere."""

from typing import Any, ClassVar

from switchtower.core.events.event import Event


class HostLost(Event, frozen=True):
    """The host that the session lives on has been silent for too long: nobody knows what becomes of it."""

    kind: ClassVar[str] = "host.lost"
    host: str


class HostReturned(Event, frozen=True):
    kind: ClassVar[str] = "host.returned"
    host: str


class HostEventReceived(Event, frozen=True):
    """Something of another host for which we have no word. Passed on as it came; without a type only its number counts."""

    kind: ClassVar[str] = "host.said"
    type: str
    data: dict[str, Any]
