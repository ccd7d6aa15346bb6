"""Previews what a call would do, in full, for the user who decides about it. It only reads; a problem is returned as text, never
raised.

A change that cannot be shown in full, such as one of a binary file, is a problem.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from switchtower.tools import concurrency, outcome, safe_text
from switchtower.tools.files import edits, files, scope
from switchtower.tools.files import tools as file_tools
from switchtower.tools.git import tools as git_tools
from switchtower.tools.git import view
from switchtower.tools.processes import cancellation

LONGEST_DIFF = 128 * 1024
"""The most bytes of a diff. A longer one is more than a person reads."""
TIME_LIMIT = 10.0
_MOST_NAMES = 100

log = logging.getLogger(__name__)


async def make_preview(name: str, args: Mapping[str, Any], context: outcome.ToolContext) -> dict[str, object]:
    """Returns a `diff` for changes of files; for a commit its size and, as `diff`, a list of files that ends with the hash of
    what would be committed. So the same `diff` later means that the effect would still be the same. Empty for tools without a
    preview.
    """
    try:
        async with asyncio.timeout(TIME_LIMIT):
            match name:
                case "write_file":
                    written = msgspec.convert(dict(args), file_tools.WriteFileArguments)
                    return await concurrency.run_in_thread(
                        _translate_failure, partial(_preview_write, context.workspace, written)
                    )
                case "edit_file":
                    edited = msgspec.convert(dict(args), file_tools.EditFileArguments)
                    return await concurrency.run_in_thread(_translate_failure, partial(_preview_edit, context.workspace, edited))
                case "git_commit":
                    committed = msgspec.convert(dict(args), git_tools.GitCommitArguments)
                    measured = partial(_preview_commit, context.workspace, committed)
                    return await cancellation.run_in_cancel_scope(
                        context.run_id, lambda held: _translate_failure(partial(measured, held))
                    )
                case _:
                    return {}
    except msgspec.ValidationError as error:
        return {"problem": safe_text.escape_control_characters(f"invalid arguments: {error}")}
    except TimeoutError:
        return {"problem": f"a look at what would change took more than {TIME_LIMIT:.0f} s"}
    except Exception:
        log.exception("a preview of %s failed", name)
        return {"problem": "what would change cannot be shown"}


def _translate_failure(look: Callable[[], dict[str, object]]) -> dict[str, object]:
    try:
        return look()
    except outcome.ToolFailed as failed:
        return {"problem": safe_text.escape_control_characters(failed.message)}


def _preview_write(root: str, arguments: file_tools.WriteFileArguments) -> dict[str, object]:
    size = len(arguments.content.encode(errors="replace"))
    with files.translate_os_errors(arguments.path, outcome.ToolErrorType.UNKNOWN):
        try:
            with scope.locate(root, arguments.path) as place:
                before = files.read_whole(place).content
        except FileNotFoundError:
            return {"new": True, "bytes": size, "diff": _make_diff(arguments.path, None, arguments.content)}
    try:
        text = before.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or "\0" in arguments.content:
        return {"new": False, "bytes": size, "problem": "a binary file is not shown"}
    return {"new": False, "bytes": size, "diff": _make_diff(place.path, text, arguments.content)}


def _preview_edit(root: str, arguments: file_tools.EditFileArguments) -> dict[str, object]:
    wanted = edits.FileEdit(arguments.old, arguments.new, arguments.replace_all, arguments.expected_hash)
    with files.translate_os_errors(arguments.path, outcome.ToolErrorType.UNKNOWN), scope.locate(root, arguments.path) as place:
        applied = edits.apply_edit(place.path, files.read_whole(place).content, wanted)
    return {"replacements": applied.places, "diff": _make_diff(place.path, applied.before, applied.after)}


def _preview_commit(
    root: str, arguments: git_tools.GitCommitArguments, cancel_scope: cancellation.CancelScope
) -> dict[str, object]:
    plan, measured = view.measure_commit(root, arguments.paths, cancel_scope)
    names = [safe_text.escape_to_one_line(name) for name in measured.files]
    more = [f"[… {len(names) - _MOST_NAMES} more …]"] if len(names) > _MOST_NAMES else []
    preview: dict[str, object] = {
        "files": len(names),
        "insertions": measured.insertions,
        "deletions": measured.deletions,
        "diff": "\n".join([*names[:_MOST_NAMES], *more, f"[tree {measured.tree}]"]),
    }
    if plan.left_out:
        preview["left_out"] = [safe_text.escape_to_one_line(name) for name in plan.left_out]
    return preview


def _make_diff(path: str, before: str | None, after: str) -> str:
    diff = edits.make_unified_diff(path, before, after, limit=None)
    size = len(diff.encode(errors="replace"))
    if size > LONGEST_DIFF:
        raise outcome.ToolFailed(
            outcome.ToolErrorType.UNKNOWN, f"the change has {size:,} bytes, more than {LONGEST_DIFF:,}; make it in parts"
        )
    return diff
