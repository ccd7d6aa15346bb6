"""What can be refused, each with a stable code. The docstring is the message; each protocol has one table to its own words.

A `CoreError` is the asker's mistake or the world's state, never our bug: a bug is any other exception, and no detail of
it leaves the process.
"""


class CoreError(Exception):
    """Something was refused."""

    code = "CORE_ERROR"
    retryable = False

    def __init__(self, detail: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.hint = hint

    @property
    def message(self) -> str:
        """One sentence, then what it is about, then what to do."""
        sentence = (type(self).__doc__ or "").strip().rstrip(".")
        about = f"{sentence}: {self.detail}" if self.detail else sentence
        return f"{about}; hint: {self.hint}" if self.hint else about

    def __str__(self) -> str:
        return self.message


class InvalidCommand(CoreError):
    """The request is not valid."""

    code = "INVALID_COMMAND"


class SessionNotFound(CoreError):
    """No session has this id."""

    code = "SESSION_NOT_FOUND"


class AttachForbidden(CoreError):
    """This client may not attach to the session."""

    code = "ATTACH_FORBIDDEN"


class RoleForbidden(CoreError):
    """Your role does not allow this."""

    code = "ROLE_FORBIDDEN"


class RunInProgress(CoreError):
    """A run is already active in this session."""

    code = "RUN_IN_PROGRESS"
    retryable = True


class NoActiveRun(CoreError):
    """That run is not active in this session."""

    code = "NO_ACTIVE_RUN"


class ApprovalNotFound(CoreError):
    """No approval with this id was ever pending here."""

    code = "APPROVAL_NOT_FOUND"


class ApprovalClosed(CoreError):
    """The approval is already decided or past its expiry."""

    code = "APPROVAL_CLOSED"


class NotApprovable(CoreError):
    """This cannot be approved from here."""

    code = "NOT_APPROVABLE"


class Unshowable(CoreError):
    """It cannot be shown to the person who would decide about it."""

    code = "UNSHOWABLE"


class DialogNotFound(CoreError):
    """No dialog with this id waits for an answer."""

    code = "DIALOG_NOT_FOUND"


class IdentityConflict(CoreError):
    """This identity was already used for a different request."""

    code = "IDENTITY_CONFLICT"


class VersionMismatch(CoreError):
    """The session has moved on from the expected version."""

    code = "VERSION_MISMATCH"
    retryable = True


class ProviderNotConfigured(CoreError):
    """The model provider is not configured."""

    code = "PROVIDER_NOT_CONFIGURED"


class UnknownModel(ProviderNotConfigured):
    """Unknown model."""


class PriceUnknown(ProviderNotConfigured):
    """The cost limit cannot be checked."""


class SandboxUnavailable(CoreError):
    """The sandbox cannot be had for this workspace."""

    code = "SANDBOX_UNAVAILABLE"
    retryable = True


class NotATerminal(CoreError):
    """No program in a terminal takes this."""

    code = "NOT_A_TERMINAL"


class ProgramEnded(CoreError):
    """The program of this session has ended."""

    code = "PROGRAM_ENDED"


class SessionOnOtherHost(CoreError):
    """The session lives on another host."""

    code = "LIVES_ELSEWHERE"


class HostUnreachable(CoreError):
    """The host of this session is not connected."""

    code = "HOST_UNREACHABLE"
    retryable = True


class NotSessionHost(CoreError):
    """Only the host that a session lives on can tell of it."""

    code = "NOT_ITS_HOST"


class NothingToRestore(CoreError):
    """There is nothing to undo or redo."""

    code = "NOTHING_TO_RESTORE"


class Overloaded(CoreError):
    """Too much is waiting already."""

    code = "OVERLOADED"
    retryable = True


class ShuttingDown(CoreError):
    """The daemon is stopping."""

    code = "SHUTTING_DOWN"
    retryable = True


class JournalUnavailable(CoreError):
    """The journal could not store this."""

    code = "JOURNAL_UNAVAILABLE"
    retryable = True


class Fenced(CoreError):
    """Another node has become this session's home."""

    code = "FENCED"
    retryable = True


class OwnerUnreachable(CoreError):
    """The node that decides for this session cannot be reached."""

    code = "HOME_UNREACHABLE"
    retryable = True


class OutcomeUnknown(CoreError):
    """The node that was asked went away before it answered."""

    code = "OUTCOME_UNKNOWN"
