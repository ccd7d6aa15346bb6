"""Errors between a client and the daemon. Each one states in one sentence what happened, and a remedy if there is one."""


class ClientError(Exception):
    """The base of all errors that a caller must handle or report."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; hint: {self.hint}" if self.hint else self.message


class DaemonUnreachable(ClientError):
    """No daemon answers, and none could be started."""


class ConnectionLost(ClientError):
    """The connection ended, or the answer did not arrive in time. The daemon may or may not have executed the request."""


class DeadlineExceeded(ClientError):
    """The awaited event did not happen within the caller's deadline."""


class ProtocolViolation(ClientError):
    """The daemon sent something that the protocol does not allow."""


class RequestFailed(ClientError):
    """The daemon refused a request. `code` is one of the protocol's error codes."""

    def __init__(self, code: str, message: str, *, retryable: bool, detail: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.retryable = retryable
        self.detail = detail

    def __str__(self) -> str:
        about = f"{self.message} ({self.detail})" if self.detail else self.message
        # The daemon's hint, if it sends one, is more specific than ours.
        remedy = f"; hint: {self.hint}" if self.hint and "hint: " not in about else ""
        return f"{self.code}: {about}{remedy}"


class DaemonTooOld(RequestFailed):
    """The daemon does not support the request, because it was started before this program was updated."""

    def __init__(self, what: str) -> None:
        super().__init__(
            "UNSUPPORTED_REQUEST_TYPE",
            f"the running daemon is older than this command and does not know {what}",
            retryable=False,
            hint="stop it with `tower stop`; the next command starts the installed one",
        )
