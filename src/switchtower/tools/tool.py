"""The base of our own tools: a description, typed arguments, one action, and its time limit.

Arguments are declared once, as a struct: it validates the model's arguments and yields the schema that the model gets.
"""

import asyncio
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from switchtower.tools import outcome

READ_TIME = 30.0
WRITE_TIME = 30.0
GIT_TIME = 60.0

ArgumentsT = TypeVar("ArgumentsT", bound=Struct)


class CoreTool(Generic[ArgumentsT]):
    name: str
    description: str
    effect: outcome.ToolEffect
    arguments: type[ArgumentsT]
    time_limit: float | None = READ_TIME
    """None for a tool that has its own time limit."""
    settles = False
    """True for a tool that brings its action to a known end when it is cancelled, in bounded time; the run waits for that."""

    @cached_property
    def schema(self) -> dict[str, Any]:
        _, components = msgspec.json.schema_components([self.arguments])
        schema: dict[str, Any] = components[self.arguments.__name__]
        return schema

    def check(self, args: Mapping[str, Any], context: outcome.ToolContext) -> None:
        self.check_arguments(self._parse(args), context)

    async def execute(self, args: Mapping[str, Any], context: outcome.ToolContext) -> outcome.ToolOutput:
        arguments = self._parse(args)
        try:
            async with asyncio.timeout(self.time_limit) as limit:
                return await self.run(arguments, context)
        except TimeoutError as error:
            if not limit.expired():
                raise
            message = f"`{self.name}` did not finish within {self.time_limit:g} s"
            raise outcome.ToolFailed(outcome.ToolErrorType.EXEC_TIMEOUT, message, retryable=True) from error

    async def end_run(self, run_id: str) -> None:
        """Does nothing: most tools hold nothing open."""

    def check_arguments(self, arguments: ArgumentsT, context: outcome.ToolContext) -> None:
        """Accepts any arguments of the right types; a tool may override this."""

    async def run(self, arguments: ArgumentsT, context: outcome.ToolContext) -> outcome.ToolOutput:
        raise NotImplementedError

    def _parse(self, args: Mapping[str, Any]) -> ArgumentsT:
        try:
            return msgspec.convert(dict(args), self.arguments)
        except msgspec.ValidationError as error:
            raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, f"invalid arguments for `{self.name}`: {error}") from error
