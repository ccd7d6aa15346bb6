"""What has to be remembered of a run to tell the rest of it: an immutable value, so that clients can share it. Pure.

It is as long as a run. Between runs there is nothing to remember, and the value is one shared object.
"""

from collections.abc import Iterable

from msgspec import Struct

from switchtower.core import events
from switchtower.protocols.pi.view import shapes, streaming

Chain = tuple["Chain", bytes] | None
"""Messages as JSON, the last first. Growing it copies nothing."""


class OpenCall(Struct, frozen=True):
    call_id: str
    tool: str
    args: bytes
    tail: str = ""
    """The end of what it has put out."""
    is_cut: bool = False


class OpenUiRequest(Struct, frozen=True):
    asked_at_ms: int
    question: events.Approval | events.Dialog


class PiStreamState(Struct, frozen=True, kw_only=True, eq=False):
    session: bytes = b""
    """The beginning of every frame of the session, up to its event."""
    running: bool = False
    chore: str | None = None
    """What a run is for that is no work of the agent."""
    streamed: streaming.StreamedMessage | None = None
    """The assistant message under way. Nobody changes this one: who needs to takes a copy."""
    held: shapes.Assistant | None = None
    """A finished assistant message that waits for its usage."""
    turn_open: bool = False
    turn_message: bytes | None = None
    awaited: int = 0
    """Calls of the turn's message that have no result yet."""
    results: Chain = None
    """Of the turn."""
    said: Chain = None
    """By everybody, in this run."""
    said_bytes: int = 0
    calls: tuple[OpenCall, ...] = ()
    questions: tuple[OpenUiRequest, ...] = ()
    compacting: str | None = None
    failure: events.ErrorRaised | None = None

    @classmethod
    def empty(cls) -> "PiStreamState":
        """Always the same object."""
        return _EMPTY


_EMPTY = PiStreamState()


def list_chain(chain: Chain) -> list[bytes]:
    """Oldest first."""
    messages = []
    while chain is not None:
        chain, message = chain
        messages.append(message)
    messages.reverse()
    return messages


def take_newest(chain: Chain, limit: int) -> list[bytes]:
    """Oldest first: as many of the newest as the limit has room for, and the last one in any case."""
    messages: list[bytes] = []
    while chain is not None:
        chain, message = chain
        limit -= len(message)
        if limit < 0 and messages:
            break
        messages.append(message)
    messages.reverse()
    return messages


def make_chain(messages: Iterable[bytes]) -> Chain:
    chain: Chain = None
    for message in messages:
        chain = (chain, message)
    return chain
