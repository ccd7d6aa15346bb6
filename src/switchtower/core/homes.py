"""The homes port: which node decides for a session, and how to ask it. A daemon that is alone has no need of it."""

from typing import Protocol

from msgspec import Struct

from switchtower.core import commands, tower


class OwnedHere(Struct, frozen=True):
    """This node decides. Its appends carry the epoch."""

    epoch: int


class OwnedBy(Struct, frozen=True):
    """Another node does."""

    node_id: str


class Unowned(Struct, frozen=True):
    """No node does, and this one could not become it: most likely there is no such session."""


class SessionOwnership(Protocol):
    async def claim(self, session_id: str, *, begins: bool = False) -> OwnedHere | OwnedBy | Unowned:
        """The session's home is this node from now on, unless it is another's. `begins`: also of a session that is not there
        yet; without it, a made-up id leaves nothing behind.

        Raises `errors.HomeUnreachable` when neither can be: this node takes nothing up any more.
        """
        ...

    def can_reach(self, node_id: str) -> bool:
        """Whether that node can be asked right now."""
        ...

    def forward(self, node_id: str, command: commands.AnyCommand, done: tower.OutcomeCallback) -> None:
        """Asks another node, in the order of the calls, and never answers before it returns. `done` is told `errors.Fenced` when
        that node is not the session's home, `errors.HomeUnreachable` when it could not be asked, and
        `errors.OutcomeUnknown` when it went away before it answered."""
        ...
