"""What a connection may do, as the daemon established when it was accepted."""

from msgspec import Struct

from switchtower.core import events


class Access(Struct, frozen=True):
    name: str
    via: str
    """How it arrived, for provenance: `cli` for the owner's socket, `app` for WebSockets."""
    trusted: bool
    """The owner: may attach to any session without a token."""
    of_a_run: bool = False
    """A process that a run has started: it may not decide, nor start a program that nobody would be asked about."""

    def actor(self, client: str | None = None) -> events.Actor:
        return events.Actor(name=self.name, via=self.via, client=client)
