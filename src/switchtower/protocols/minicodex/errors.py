"""Converts core refusals to MiniCodex's error codes: one table. The document's list of codes is open; the missing ones are
ours."""

from typing import Literal

from switchtower.core import errors
from switchtower.protocols.minicodex import frame_writer

Code = Literal[
    # minicodex, Error codes.
    "INVALID_COMMAND",
    "MISSING_FIELD",
    "BAD_ARGUMENT",
    "STALE_RUN_ID",
    "NOT_RUNNING",
    "BUSY",
    "UNKNOWN_CALL_ID",
    "APPROVAL_CONFLICT",
    # Our own codes.
    "REPLAY_GAP",
    "UNSUPPORTED_VERSION",
    "UNKNOWN_SESSION",
    "FORBIDDEN",
    "UNAVAILABLE",
    "INTERNAL_ERROR",
]

TABLE: dict[type[errors.CoreError], Code] = {
    errors.InvalidCommand: "BAD_ARGUMENT",
    errors.SessionNotFound: "UNKNOWN_SESSION",
    errors.AttachForbidden: "FORBIDDEN",
    errors.RoleForbidden: "FORBIDDEN",
    errors.RunInProgress: "BUSY",
    errors.NoActiveRun: "NOT_RUNNING",
    errors.ApprovalNotFound: "UNKNOWN_CALL_ID",
    errors.ApprovalClosed: "APPROVAL_CONFLICT",
    errors.NotApprovable: "BAD_ARGUMENT",
    errors.Unshowable: "BAD_ARGUMENT",
    errors.DialogNotFound: "BAD_ARGUMENT",
    errors.IdentityConflict: "BAD_ARGUMENT",
    errors.NotATerminal: "BAD_ARGUMENT",
    errors.ProgramEnded: "NOT_RUNNING",
    errors.SessionOnOtherHost: "BAD_ARGUMENT",
    errors.NotSessionHost: "BAD_ARGUMENT",
    errors.HostUnreachable: "UNAVAILABLE",
    errors.VersionMismatch: "BAD_ARGUMENT",
    errors.NothingToRestore: "BAD_ARGUMENT",
    errors.ProviderNotConfigured: "UNAVAILABLE",
    errors.UnknownModel: "UNAVAILABLE",
    errors.PriceUnknown: "UNAVAILABLE",
    errors.SandboxUnavailable: "UNAVAILABLE",
    errors.Overloaded: "BUSY",
    errors.ShuttingDown: "UNAVAILABLE",
    errors.JournalUnavailable: "UNAVAILABLE",
    errors.Fenced: "UNAVAILABLE",
    errors.OwnerUnreachable: "UNAVAILABLE",
    errors.OutcomeUnknown: "UNAVAILABLE",
}


def convert_core_error(refusal: errors.CoreError, *, running: bool = False) -> tuple[Code, str]:
    """Returns the code and the message. `running` means that a run is active, but not the one that was meant."""
    if isinstance(refusal, errors.RunInProgress) and refusal.detail and refusal.detail.startswith("run_"):
        # minicodex, RunState: a run's id is a UUID.
        return "BUSY", errors.RunInProgress(frame_writer.make_run_uuid(refusal.detail).decode(), hint=refusal.hint).message
    if running and isinstance(refusal, errors.NoActiveRun):
        return "STALE_RUN_ID", refusal.message
    return TABLE[type(refusal)], refusal.message
