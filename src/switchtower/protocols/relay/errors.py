"""Refusals as relay's plain strings: one table, and the exceptions that carry them."""

from switchtower.core import errors

UNKNOWN_RPC = "unknown rpc type"
UNKNOWN_RUN = "unknown run_id"
UNKNOWN_HOST = "unknown host_id"
HOST_OFFLINE = "host offline"
HOST_GONE = "host disconnected before it answered"
HOST_SILENT = "host did not answer in time"
DENIED = "denied"
EXPIRED = "nobody decided in time"
WITHDRAWN = "withdrawn"
IN_USE = "request_id is already in use"
NOT_ACTIVE = "run is not active"
INTERNAL = "internal error"
TOO_MANY_CALLS = "too many calls at once"
SHUTTING_DOWN = "shutting down; try again"
TRY_AGAIN = "try again"

TABLE: dict[type[errors.CoreError], str] = {
    errors.InvalidCommand: "",
    errors.SessionNotFound: UNKNOWN_RUN,
    errors.AttachForbidden: "forbidden",
    errors.RoleForbidden: "",
    errors.RunInProgress: "run is busy",
    errors.NoActiveRun: NOT_ACTIVE,
    errors.ApprovalNotFound: "unknown request_id",
    errors.ApprovalClosed: "already decided",
    errors.NotApprovable: "",
    errors.Unshowable: "",
    errors.DialogNotFound: "unknown request_id",
    errors.IdentityConflict: IN_USE,
    errors.NotATerminal: "run has no terminal",
    errors.ProgramEnded: "run has exited",
    errors.SessionOnOtherHost: UNKNOWN_RUN,
    errors.NotSessionHost: "not a run of this host",
    errors.HostUnreachable: HOST_OFFLINE,
    errors.VersionMismatch: "",
    errors.NothingToRestore: "",
    errors.ProviderNotConfigured: "",
    errors.UnknownModel: "",
    errors.PriceUnknown: "",
    errors.SandboxUnavailable: "",
    errors.Overloaded: "too much is waiting; try again",
    errors.ShuttingDown: SHUTTING_DOWN,
    errors.JournalUnavailable: "the journal could not store this; try again",
    errors.Fenced: TRY_AGAIN,
    errors.OwnerUnreachable: "the run's node cannot be reached; try again",
    errors.OutcomeUnknown: "the run's node went away; look at the run before trying again",
}
"""A refusal for which neither relay nor this table has a text keeps its own message."""


class RelayError(Exception):
    """The request is refused; the text is sent to the client."""

    @property
    def text(self) -> str:
        return str(self)


class UnknownRun(RelayError):
    """No run has this id."""

    def __init__(self) -> None:
        super().__init__(UNKNOWN_RUN)


class UnknownHost(RelayError):
    """No host has this id."""

    def __init__(self) -> None:
        super().__init__(UNKNOWN_HOST)


class HostOffline(RelayError):
    """The run's host is not connected, or disconnected before it answered."""

    def __init__(self, text: str = HOST_OFFLINE) -> None:
        super().__init__(text)


class FrameTooLong(RelayError):
    """The host would not read a frame of this length."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"too long for the run's host: {size:,} bytes, and a frame has at most {limit:,}")


def convert_core_error(refusal: errors.CoreError) -> str:
    return TABLE[type(refusal)] or refusal.message


class RunMoved(Exception):
    """Another node owns the run by now."""
