"""What has to be remembered of a run to tell the rest of it: an immutable value, so that clients can share it. Pure.

It is as long as what is open in a run. Between runs there is nothing to remember, and the value is one shared object.
"""

from msgspec import Struct


class RequestedCall(Struct, frozen=True):
    """A tool call that was asked for; `args` is JSON."""

    call_id: str
    tool: str
    args: bytes


class OpenApproval(Struct, frozen=True):
    approval_id: str
    call: RequestedCall


class MiniCodexStreamState(Struct, frozen=True, kw_only=True):
    run_id: str | None = None
    """The active run; everything else is about it."""
    started_ms: int = 0
    seq: int = 0
    """The last entry that was told."""
    starting: bool = False
    """`running` is not told yet."""
    aborting: bool = False
    text_sent: bool = False
    """Pieces of the message under way were told, so that its end need not repeat it."""
    reasoning_sent: bool = False
    torn: bool = False
    """Entries were missing since that message began: retention has removed pieces of it."""
    has_output: bool = False
    is_explained: bool = False
    """An `error` has said what went wrong."""
    requested: tuple[RequestedCall, ...] = ()
    """What the last message asks for."""
    open_calls: tuple[RequestedCall, ...] = ()
    """Told, and without an output."""
    open_approvals: tuple[OpenApproval, ...] = ()

    @classmethod
    def make_empty(cls) -> "MiniCodexStreamState":
        """Always the same object."""
        return _EMPTY


_EMPTY = MiniCodexStreamState()
