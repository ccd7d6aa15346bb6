"""The tool that searches the workspace's files."""

import asyncio
import re
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct

from switchtower.tools import outcome, tool
from switchtower.tools.files import files, scope
from switchtower.tools.processes import cancellation
from switchtower.tools.search import line_search, workspace_search

_NEWLINE = re.compile(r"(?<!\\)(?:\\\\)*\\n|\n")


class SearchToolArguments(Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[str, Meta(min_length=1, max_length=1000, description="A regular expression, matched within each line")]
    path: Annotated[str, Meta(description="A folder or a file, relative to the workspace")] = "."
    glob: Annotated[
        Annotated[str, Meta(max_length=500)] | None,
        Meta(description="Only files that match, such as *.py or src/**/*.{ts,tsx}; a leading ! excludes"),
    ] = None
    max_results: Annotated[int, Meta(ge=1, le=workspace_search.MOST_RESULTS)] = 100
    case: Annotated[Literal["sensitive", "ignore"], Meta(description="Whether upper and lower case differ")] = "sensitive"


class SearchTool(tool.CoreTool[SearchToolArguments]):
    name = "search"
    description = (
        "Search text files for a regular expression: one `path:line:text` a line. Skips what git ignores, binary files and links"
    )
    effect = outcome.ToolEffect.READ
    arguments = SearchToolArguments
    time_limit = None

    def __init__(self, *, seconds: float = tool.READ_TIME) -> None:
        self._seconds = seconds

    def check_arguments(self, arguments: SearchToolArguments, context: outcome.ToolContext) -> None:
        scope.check_path(context.workspace, arguments.path)
        if "\0" in arguments.pattern or "\0" in (arguments.glob or ""):
            raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, "a pattern or a glob cannot hold a null character")
        if _NEWLINE.search(arguments.pattern):
            raise outcome.ToolFailed(
                outcome.ToolErrorType.UNKNOWN, "a pattern is matched within one line and cannot hold a newline"
            )

    async def run(self, arguments: SearchToolArguments, context: outcome.ToolContext) -> outcome.ToolOutput:
        self.check_arguments(arguments, context)
        query = line_search.LineQuery(
            pattern=arguments.pattern,
            start=arguments.path,
            glob=arguments.glob,
            case_sensitive=arguments.case == "sensitive",
            most_results=arguments.max_results,
        )
        results = workspace_search.SearchResults(arguments.max_results)
        try:
            async with asyncio.timeout(self._seconds) as limit:
                with files.translate_os_errors(arguments.path, outcome.ToolErrorType.UNKNOWN):
                    await cancellation.run_in_cancel_scope(
                        context.run_id, partial(workspace_search.search_workspace, context.workspace, query, results)
                    )
        except TimeoutError:
            if not limit.expired():
                raise
            message = f"the search did not end within {self._seconds:g} s; hint: use a simpler pattern or a narrower path"
            text = f"{results.render()}\n[{message}]"
            return outcome.make_failure(outcome.ToolErrorType.EXEC_TIMEOUT, message, text=text, retryable=True)
        return outcome.ToolOutput(results.render())
