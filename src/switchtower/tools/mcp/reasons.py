"""Why a server did not start, ended or refused, in words for people: short, without secrets, and with a remedy where there is
one. Each is the rest of a sentence that begins with the server.
"""

import signal
from typing import TYPE_CHECKING

from msgspec import Struct

from switchtower.core import redact
from switchtower.tools.mcp import config

if TYPE_CHECKING:
    from switchtower.tools.mcp import process

_LONGEST = 500
_KEEP_HEARD = 600
_LOST_SESSION = "Session terminated"
"""The SDK's words for a session that an HTTP server no longer knows."""


class Why(Struct, frozen=True):
    text: str
    heard: str = ""
    """The last of what the server wrote where nobody reads. For people; a model needs only the text."""

    @property
    def whole(self) -> str:
        return f"{self.text}; it wrote: {self.heard}" if self.heard else self.text


def is_lost_session(error: BaseException) -> bool:
    import mcp

    return isinstance(error, mcp.MCPError) and error.message == _LOST_SESSION


class Reasons:
    def __init__(self, server: config.ServerConfig) -> None:
        self._server = server
        self._redactor = redact.Redactor(server.secrets)

    def error(self, error: Exception, of: "process.ServerProcess | None") -> Why:
        """Why it could not be started, or what broke the connection."""
        import mcp

        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        match error:
            case mcp.MCPError():
                return self.why(f"cannot be used: {self.refusal(error)}", of)
            case OSError() if of is None and isinstance(self._server.target, config.Program):
                return Why(f"could not be started: {self._not_started(error, self._server.target)}")
            case _:
                return self.why(f"cannot be used ({type(error).__name__})", of)

    def end(self, of: "process.ServerProcess | None") -> Why:
        if of is None:
            return Why("closed the connection")
        match of.exit_code:
            case None:
                return self.why("closed its output", of)
            case code if code < 0:
                return self.why(f"was ended by {_signal_name(-code)}", of)
            case code:
                return self.why(f"ended with exit code {code}", of)

    def refusal(self, error: BaseException) -> str:
        """What a server answered instead of a result. Its own words when it has some."""
        import mcp

        if isinstance(error, mcp.MCPError):
            return self._safe(error.message or "an error without a message")
        return f"an answer that does not follow the protocol ({type(error).__name__})"

    def why(self, reason: str, of: "process.ServerProcess | None") -> Why:
        heard = self._redactor.text(of.heard.text()).strip() if of is not None else ""
        return Why(reason, heard[-_KEEP_HEARD:])

    def _not_started(self, error: OSError, program: config.Program) -> str:
        match error:
            case FileNotFoundError() if error.filename == program.cwd:
                return "its folder does not exist; hint: correct its `cwd`"
            case FileNotFoundError():
                return f"`{self._safe(program.argv[0])}` was not found; hint: install it, or correct its `command`"
            case _:
                return f"{error.strerror or type(error).__name__}; hint: try its `command` by hand"

    def _safe(self, text: str) -> str:
        text = self._redactor.text(text[: 2 * _LONGEST]).strip()
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
