"""Converts core refusals to push's error codes: one table, and the only place where an error payload is made."""

from msgspec import UNSET

from switchtower.core import errors
from switchtower.protocols.push import messages

TABLE: dict[type[errors.CoreError], messages.ErrorCode] = {
    errors.InvalidCommand: "INVALID_REQUEST",
    errors.SessionNotFound: "SESSION_NOT_FOUND",
    errors.AttachForbidden: "ATTACH_FORBIDDEN",
    # The document's only code for a client without permission; the message names the role.
    errors.RoleForbidden: "ATTACH_FORBIDDEN",
    errors.RunInProgress: "RUN_IN_PROGRESS",
    errors.NoActiveRun: "NO_ACTIVE_RUN",
    errors.ApprovalNotFound: "APPROVAL_NOT_FOUND",
    errors.ApprovalClosed: "APPROVAL_EXPIRED",
    errors.Unshowable: "INVALID_REQUEST",
    errors.NothingToRestore: "INVALID_REQUEST",
    errors.NotApprovable: "INVALID_REQUEST",
    errors.DialogNotFound: "INVALID_REQUEST",
    errors.NotATerminal: "INVALID_REQUEST",
    errors.ProgramEnded: "NO_ACTIVE_RUN",
    errors.SessionOnOtherHost: "INVALID_REQUEST",
    errors.NotSessionHost: "INVALID_REQUEST",
    errors.HostUnreachable: "INTERNAL_ERROR",
    errors.IdentityConflict: "INVALID_REQUEST",
    errors.VersionMismatch: "INVALID_REQUEST",
    errors.ProviderNotConfigured: "PROVIDER_NOT_CONFIGURED",
    errors.UnknownModel: "PROVIDER_NOT_CONFIGURED",
    errors.PriceUnknown: "PROVIDER_NOT_CONFIGURED",
    errors.SandboxUnavailable: "SANDBOX_UNAVAILABLE",
    # push has no separate codes for these; `retryable` lets a client decide what to do.
    errors.Overloaded: "INTERNAL_ERROR",
    errors.ShuttingDown: "INTERNAL_ERROR",
    errors.JournalUnavailable: "INTERNAL_ERROR",
    errors.Fenced: "INTERNAL_ERROR",
    errors.OwnerUnreachable: "INTERNAL_ERROR",
    errors.OutcomeUnknown: "INTERNAL_ERROR",
}


def convert_core_error(refusal: errors.CoreError) -> messages.ProtocolError:
    return messages.ProtocolError(TABLE[type(refusal)], refusal.message, refusal.retryable)


def make_error(code: messages.ErrorCode, message: str, *, detail: str | None = None) -> messages.ProtocolError:
    return messages.ProtocolError(code, message, retryable=False, detail=UNSET if detail is None else detail)


INTERNAL = messages.ProtocolError("INTERNAL_ERROR", "The daemon failed at this; its log says why", retryable=False)
"""The answer to our own bug: no detail on the wire, a traceback in the log."""
