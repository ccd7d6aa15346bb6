"""The kinds `file.read` and `file.write`: texts in the run's folder and nowhere else. `scope` enforces that, and denies access to
secrets too.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from switchtower.engines.flow.runtime import failures, values
from switchtower.engines.flow.runtime.kinds import port
from switchtower.tools import concurrency, outcome
from switchtower.tools.files import files, scope

LONGEST = 1024 * 1024

T = TypeVar("T")


class FileReadKind:
    summary = "Read a text file in the run's folder"
    inputs: ClassVar[Mapping[str, str]] = {
        "path": "the file, from the run's folder",
    }
    outputs: ClassVar[Mapping[str, str]] = {
        "path": "as given",
        "content": "the text, at most 1 MiB",
        "bytes": "its length",
    }

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        path = values.get_text(given, "path")
        content = await _run_file_operation(lambda: _read(context.setting.workspace, path))
        return {"path": path, "content": content, "bytes": len(content.encode())}


class FileWriteKind:
    summary = "Write a text file in the run's folder, with the folders that it needs"
    inputs: ClassVar[Mapping[str, str]] = {
        "path": "the file, from the run's folder",
        "content": "the text",
    }
    outputs: ClassVar[Mapping[str, str]] = {
        "path": "as given",
        "bytes": "its length",
    }

    async def run(self, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        path, content = values.get_text(given, "path"), values.get_text(given, "content")
        await _run_file_operation(lambda: files.write_content(context.setting.workspace, path, content))
        return {"path": path, "bytes": len(content.encode())}


def _read(workspace: str, path: str) -> str:
    with files.translate_os_errors(path, outcome.ToolErrorType.UNKNOWN), scope.locate(workspace, path) as place:
        content = files.read_whole(place).content
    if len(content) > LONGEST:
        raise failures.StepFailed(f"`{path}` is larger than {LONGEST // 1024**2} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise failures.StepFailed(f"`{path}` is not a text in UTF-8") from None


async def _run_file_operation(work: Callable[[], T]) -> T:
    try:
        return await concurrency.run_in_thread(work)
    except outcome.ToolFailed as failed:
        raise failures.StepFailed(str(failed)) from failed
    except UnicodeEncodeError:
        raise failures.StepFailed("the text or its path is not valid Unicode") from None
