"""The tools by name. An agent's every act goes through `Toolbox.execute`, which answers with an output whatever happens:
a wrong argument, an unknown tool or a bug in one is something a model reads about, not the end of a run.

Whether a call may run is not judged here.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from switchtower.tools import core_tools, outcome

log = logging.getLogger(__name__)


class Tool(Protocol):
    """Something an agent can do."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        ...

    def check(self, args: Mapping[str, Any], context: outcome.ToolContext) -> None:
        """Raises `outcome.Failed` for a call that cannot succeed, so that nobody is asked about it. Has no effect."""
        ...

    async def execute(self, args: Mapping[str, Any], context: outcome.ToolContext) -> outcome.ToolOutput: ...

    async def end_run(self, run_id: str) -> None:
        """Lets go of what the run still holds. Goes to its end even when cancelled."""
        ...


class Toolbox:
    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(self._tools.values())

    def check(self, name: str, args: Mapping[str, Any], context: outcome.ToolContext) -> outcome.ToolOutput | None:
        """Why this call cannot succeed, or `None` when it may."""
        try:
            self._named(name).check(args, context)
        except Exception as error:
            return _failed(name, error)
        return None

    async def execute(self, name: str, args: Mapping[str, Any], context: outcome.ToolContext) -> outcome.ToolOutput:
        try:
            output = await self._named(name).execute(args, context)
        except Exception as error:
            output = _failed(name, error)
        # A file's name can hold bytes that are no text; the journal holds only text.
        return outcome.ToolOutput(_encodable(output.text), is_error=output.is_error, error=output.error)

    async def end_run(self, run_id: str) -> None:
        for tool in self._tools.values():
            await tool.end_run(run_id)

    def _named(self, name: str) -> Tool:
        try:
            return self._tools[name]
        except KeyError:
            known = ", ".join(f"`{known}`" for known in self._tools)
            raise outcome.Failed(outcome.ErrorType.UNKNOWN, f"there is no tool `{name}`; there are {known}") from None


def core_toolbox() -> Toolbox:
    return Toolbox([core_tools.ListDir(), core_tools.ReadFile(), core_tools.WriteFile(), core_tools.Run()])


def _failed(name: str, error: Exception) -> outcome.ToolOutput:
    if isinstance(error, outcome.Failed):
        return outcome.failure(error.type, _encodable(error.message), retryable=error.retryable)
    log.error("the tool %s has a bug", name, exc_info=error)
    return outcome.failure(outcome.ErrorType.UNKNOWN, f"the tool `{name}` failed ({type(error).__name__})")


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()
