"""The reasons why a server did not start, ended or refused, as text for people: short, without secrets, and with a remedy where
one is known. Each continues a sentence that starts with the server.
"""

import signal
from typing import TYPE_CHECKING

from msgspec import Struct

from switchtower.core import redact
from switchtower.tools.mcp import config

if TYPE_CHECKING:
    from switchtower.tools.mcp import process

_LONGEST = 500
_KEEP_ERROR_TEXT = 600
_LOST_SESSION = "Session terminated"
"""The SDK's message for a session that an HTTP server no longer knows."""


class FailureReason(Struct, frozen=True):
    text: str
    error_text: str = ""
    """The end of the server's error output, for people; a model needs only the text."""

    @property
    def full_text(self) -> str:
        return f"{self.text}; it wrote: {self.error_text}" if self.error_text else self.text


def is_lost_session(error: BaseException) -> bool:
    import mcp

    return isinstance(error, mcp.MCPError) and error.message == _LOST_SESSION


class FailureReasons:
    def __init__(self, server: config.ServerConfig) -> None:
        self._server = server
        self._redactor = redact.Redactor(server.secrets)

    def explain_error(self, error: Exception, of: "process.ServerProcess | None") -> FailureReason:
        """Explains why the server could not be started, or what broke the connection."""
        import mcp

        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        match error:
            case mcp.MCPError():
                return self.make_reason(f"cannot be used: {self.explain_refusal(error)}", of)
            case OSError() if of is None and isinstance(self._server.target, config.ServerProgram):
                return FailureReason(f"could not be started: {self._explain_start_error(error, self._server.target)}")
            case _:
                return self.make_reason(f"cannot be used ({type(error).__name__})", of)

    def explain_end(self, of: "process.ServerProcess | None") -> FailureReason:
        if of is None:
            return FailureReason("closed the connection")
        match of.exit_code:
            case None:
                return self.make_reason("closed its output", of)
            case code if code < 0:
                return self.make_reason(f"was ended by {_format_signal(-code)}", of)
            case code:
                return self.make_reason(f"ended with exit code {code}", of)

    def explain_refusal(self, error: BaseException) -> str:
        """Returns the server's error instead of a result, in its own words when it has some."""
        import mcp

        if isinstance(error, mcp.MCPError):
            return self._redact(error.message or "an error without a message")
        return f"an answer that does not follow the protocol ({type(error).__name__})"

    def make_reason(self, reason: str, of: "process.ServerProcess | None") -> FailureReason:
        heard = self._redactor.redact_text(of.error_pipe.render()).strip() if of is not None else ""
        return FailureReason(reason, heard[-_KEEP_ERROR_TEXT:])

    def _explain_start_error(self, error: OSError, program: config.ServerProgram) -> str:
        match error:
            case FileNotFoundError() if error.filename == program.cwd:
                return "its folder does not exist; hint: correct its `cwd`"
            case FileNotFoundError():
                return f"`{self._redact(program.argv[0])}` was not found; hint: install it, or correct its `command`"
            case _:
                return f"{error.strerror or type(error).__name__}; hint: try its `command` by hand"

    def _redact(self, text: str) -> str:
        text = self._redactor.redact_text(text[: 2 * _LONGEST]).strip()
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _format_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
