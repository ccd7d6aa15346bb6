"""The tools that read, list, write and edit files."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated

from msgspec import Meta, Struct

from switchtower.tools import concurrency, outcome, tool
from switchtower.tools.files import atomic_write, edits, files, scope

_Path = Annotated[str, Meta(description="A file, relative to the workspace")]


class ListDirArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="A folder, relative to the workspace")] = "."


class ReadFileArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: _Path
    offset: Annotated[int, Meta(ge=0, description="The byte to begin at")] = 0
    limit: Annotated[int, Meta(ge=4, le=files.LONGEST_READ, description="How many bytes at most")] = files.READ_LIMIT


class WriteFileArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="A file, relative to the workspace; missing folders are created")]
    content: Annotated[str, Meta(description="The whole new content")]


class EditFileArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: _Path
    old: Annotated[str, Meta(min_length=1, description="The text to replace, exactly as it is; it must occur once")]
    new: Annotated[str, Meta(description="What to put in its place")]
    replace_all: Annotated[bool, Meta(description="Replace every occurrence")] = False
    expected_hash: Annotated[
        Annotated[str, Meta(pattern="^[0-9a-fA-F]{8,64}$")] | None,
        Meta(description="The file's hash as last told; the edit is refused when the file has another"),
    ] = None


class ListDirTool(tool.CoreTool[ListDirArguments]):
    name = "list_dir"
    description = "List a folder: one name a line, folders end with a slash, links with an @"
    effect = outcome.ToolEffect.READ
    arguments = ListDirArguments

    def check_arguments(self, arguments: ListDirArguments, context: outcome.ToolContext) -> None:
        scope.check_path(context.workspace, arguments.path)

    async def run(self, arguments: ListDirArguments, context: outcome.ToolContext) -> outcome.ToolOutput:
        return outcome.ToolOutput(await concurrency.run_in_thread(files.list_dir, context.workspace, arguments.path))


class ReadFileTool(tool.CoreTool[ReadFileArguments]):
    name = "read_file"
    description = f"Read a text file, {files.READ_LIMIT // 1024} KiB at a time unless a limit is given"
    effect = outcome.ToolEffect.READ
    arguments = ReadFileArguments

    def __init__(self, known_files: files.KnownFiles) -> None:
        self._known = known_files

    def check_arguments(self, arguments: ReadFileArguments, context: outcome.ToolContext) -> None:
        scope.check_path(context.workspace, arguments.path)

    async def run(self, arguments: ReadFileArguments, context: outcome.ToolContext) -> outcome.ToolOutput:
        reading = await concurrency.run_in_thread(
            files.read_content, context.workspace, arguments.path, offset=arguments.offset, limit=arguments.limit
        )
        if reading.digest is not None:
            self._known.record(_get_session_id(context), context.workspace, reading.path, reading.digest)
        return outcome.ToolOutput(reading.text)


class WriteFileTool(tool.CoreTool[WriteFileArguments]):
    name = "write_file"
    description = "Create a file or replace its whole content"
    effect = outcome.ToolEffect.WRITE
    arguments = WriteFileArguments
    time_limit = None
    settles = True

    def __init__(self, known_files: files.KnownFiles) -> None:
        self._known = known_files

    def check_arguments(self, arguments: WriteFileArguments, context: outcome.ToolContext) -> None:
        scope.check_path(context.workspace, arguments.path)

    async def run(self, arguments: WriteFileArguments, context: outcome.ToolContext) -> outcome.ToolOutput:
        work = partial(files.write_content, context.workspace, arguments.path, arguments.content)
        return await _change_file(self.name, self._known, context, work)


class EditFileTool(tool.CoreTool[EditFileArguments]):
    name = "edit_file"
    description = "Replace one exact piece of a text file by another"
    effect = outcome.ToolEffect.WRITE
    arguments = EditFileArguments
    time_limit = None
    settles = True

    def __init__(self, known_files: files.KnownFiles) -> None:
        self._known = known_files

    def check_arguments(self, arguments: EditFileArguments, context: outcome.ToolContext) -> None:
        scope.check_path(context.workspace, arguments.path)

    async def run(self, arguments: EditFileArguments, context: outcome.ToolContext) -> outcome.ToolOutput:
        wanted = edits.FileEdit(arguments.old, arguments.new, arguments.replace_all, arguments.expected_hash)
        work = partial(edits.edit_file, context.workspace, arguments.path, wanted)
        return await _change_file(self.name, self._known, context, work)


async def _change_file(
    name: str, known_files: files.KnownFiles, context: outcome.ToolContext, work: Callable[..., files.WrittenFile]
) -> outcome.ToolOutput:
    session, permit = _get_session_id(context), atomic_write.WritePermit()

    async def change() -> files.WrittenFile:
        changing = asyncio.create_task(concurrency.run_in_thread(work, known_digest=known_digest, permit=permit))
        await asyncio.wait([changing], timeout=tool.WRITE_TIME)
        if not changing.done() and permit.withdraw():
            changing.cancel()
            message = f"`{name}` did not finish within {tool.WRITE_TIME:.0f} s; nothing was changed"
            raise outcome.ToolFailed(outcome.ToolErrorType.EXEC_TIMEOUT, message, retryable=True)
        written = await changing
        known_files.record(session, context.workspace, written.path, written.digest)
        return written

    known_digest = partial(known_files.find_digest, session, context.workspace)
    # A thread cannot be cancelled: the run ends only when the change is done or refused, never while it may still happen.
    return outcome.ToolOutput((await concurrency.run_to_completion(change())).text)


def _get_session_id(context: outcome.ToolContext) -> str:
    return context.session_id or context.run_id
