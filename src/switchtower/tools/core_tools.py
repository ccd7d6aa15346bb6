"""The tools that every agent has: list, read, write, run. Each is a description, typed arguments and one act.

Arguments are declared once, as a struct: it checks what a model sends and yields the schema that a model is shown.
"""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta, Struct

from switchtower.tools import files, outcome, patience, processes, scope


class ListDirArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="A folder, relative to the workspace")] = "."


class ReadFileArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="A file, relative to the workspace")]
    offset: Annotated[int, Meta(ge=0, description="The byte to begin at")] = 0


class WriteFileArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="A file, relative to the workspace; missing folders are created")]
    content: Annotated[str, Meta(description="The whole new content")]


class RunArguments(Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[str, Meta(min_length=1, description="A shell command, run in the workspace")]
    timeout_seconds: Annotated[int, Meta(ge=1, le=3600, description="When to give up on it")] = 120


ArgumentsT = TypeVar("ArgumentsT", bound=Struct)


class CoreTool(Generic[ArgumentsT]):
    """What the four have in common."""

    name: str
    description: str
    arguments: type[ArgumentsT]

    @property
    def schema(self) -> dict[str, Any]:
        _, components = msgspec.json.schema_components([self.arguments])
        schema: dict[str, Any] = components[self.arguments.__name__]
        return schema

    def check(self, args: Mapping[str, Any], context: outcome.ToolContext) -> None:
        self.vet(self._parse(args), context)

    async def execute(self, args: Mapping[str, Any], context: outcome.ToolContext) -> outcome.ToolOutput:
        return await self.act(self._parse(args), context)

    async def end_run(self, run_id: str) -> None:
        """Files hold nothing open."""

    def vet(self, arguments: ArgumentsT, context: outcome.ToolContext) -> None:
        """Any arguments of the right types will do, unless a tool knows better."""

    async def act(self, arguments: ArgumentsT, context: outcome.ToolContext) -> outcome.ToolOutput:
        raise NotImplementedError

    def _parse(self, args: Mapping[str, Any]) -> ArgumentsT:
        try:
            return msgspec.convert(dict(args), self.arguments)
        except msgspec.ValidationError as error:
            raise outcome.Failed(outcome.ErrorType.UNKNOWN, f"invalid arguments for `{self.name}`: {error}") from error


class ListDir(CoreTool[ListDirArguments]):
    name = "list_dir"
    description = "List a folder: one name a line, folders end with a slash, links with an @"
    arguments = ListDirArguments

    def vet(self, arguments: ListDirArguments, context: outcome.ToolContext) -> None:
        scope.check(context.workspace, arguments.path)

    async def act(self, arguments: ListDirArguments, context: outcome.ToolContext) -> outcome.ToolOutput:
        return outcome.ToolOutput(await asyncio.to_thread(files.list_dir, context.workspace, arguments.path))


class ReadFile(CoreTool[ReadFileArguments]):
    name = "read_file"
    description = f"Read a text file, at most {files.READ_LIMIT // 1024} KiB at a time"
    arguments = ReadFileArguments

    def vet(self, arguments: ReadFileArguments, context: outcome.ToolContext) -> None:
        scope.check(context.workspace, arguments.path)

    async def act(self, arguments: ReadFileArguments, context: outcome.ToolContext) -> outcome.ToolOutput:
        text = await asyncio.to_thread(files.read_file, context.workspace, arguments.path, offset=arguments.offset)
        return outcome.ToolOutput(text)


class WriteFile(CoreTool[WriteFileArguments]):
    name = "write_file"
    description = "Create a file or replace its whole content"
    arguments = WriteFileArguments

    def vet(self, arguments: WriteFileArguments, context: outcome.ToolContext) -> None:
        scope.check(context.workspace, arguments.path)

    async def act(self, arguments: WriteFileArguments, context: outcome.ToolContext) -> outcome.ToolOutput:
        # A thread cannot be cancelled: the run ends only when the file is written or not, never while it may still change.
        writing = asyncio.to_thread(files.write_file, context.workspace, arguments.path, arguments.content)
        return outcome.ToolOutput(await patience.to_the_end(writing))


class Run(CoreTool[RunArguments]):
    name = "run"
    description = "Run a shell command in the workspace and get its output and exit code; background processes end with the run"
    arguments = RunArguments

    def __init__(self) -> None:
        self._runs_with_processes: set[str] = set()

    async def act(self, arguments: RunArguments, context: outcome.ToolContext) -> outcome.ToolOutput:
        self._runs_with_processes.add(context.run_id)
        try:
            finished = await processes.run_command(
                arguments.command, cwd=context.workspace, run_id=context.run_id, timeout_s=arguments.timeout_seconds
            )
        except FileNotFoundError as error:
            raise outcome.Failed(
                outcome.ErrorType.SANDBOX_UNREACHABLE, f"the workspace `{context.workspace}` cannot be entered"
            ) from error
        except (OSError, ValueError) as error:
            raise outcome.Failed(outcome.ErrorType.UNKNOWN, f"the command could not be started: {error}") from error
        return _told(finished, arguments.timeout_seconds)

    async def end_run(self, run_id: str) -> None:
        if run_id in self._runs_with_processes:
            await processes.end_run(run_id)
            self._runs_with_processes.discard(run_id)


def _told(finished: processes.Finished, timeout_seconds: int) -> outcome.ToolOutput:
    if finished.timed_out:
        ending = f"[killed after {timeout_seconds} s without an end]"
    elif finished.left_running:
        ending = f"[exit code {finished.exit_code}; a process in the background is still running]"
    else:
        ending = f"[exit code {finished.exit_code}]"
    newline = "\n" if finished.output and not finished.output.endswith("\n") else ""
    text = f"{finished.output}{newline}{ending}"
    if finished.timed_out:
        message = f"the command did not end within {timeout_seconds} s and was killed"
        return outcome.failure(outcome.ErrorType.EXEC_TIMEOUT, message, text=text, retryable=True)
    if finished.exit_code != 0:
        message = f"the command ended with exit code {finished.exit_code}"
        return outcome.failure(outcome.ErrorType.EXEC_NON_ZERO_EXIT, message, text=text)
    return outcome.ToolOutput(text)
