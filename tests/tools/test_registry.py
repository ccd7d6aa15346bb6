"""The tools by name: whatever is thrown at them, an output comes back."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import jsonschema
import msgspec
import pytest

from switchtower.tools import orphans, outcome, registry


@pytest.fixture
def context(tmp_path: Path) -> outcome.ToolContext:
    return outcome.ToolContext(workspace=str(tmp_path), run_id=f"run_{uuid4().hex}")


@pytest.fixture
def toolbox() -> registry.Toolbox:
    return registry.core_toolbox()


def error_type(output: outcome.ToolOutput | None) -> str | None:
    assert output is not None
    assert output.is_error is (output.error is not None)
    return output.error.type if output.error else None


async def test_the_core_tools_do_real_work_one_after_the_other(
    toolbox: registry.Toolbox, context: outcome.ToolContext, tmp_path: Path
) -> None:
    steps: list[tuple[str, dict[str, Any]]] = [
        ("write_file", {"path": "docs/notes.txt", "content": "hello\n"}),
        ("list_dir", {}),
        ("read_file", {"path": "docs/notes.txt"}),
        ("run", {"command": "cat docs/notes.txt; echo -n done"}),
    ]
    outputs = [await toolbox.execute(tool, args, context) for tool, args in steps]

    assert [output.text for output in outputs] == [
        "created `docs/notes.txt` (6 bytes)",
        "docs/",
        "hello\n",
        "hello\ndone\n[exit code 0]",
    ]
    assert not any(output.is_error for output in outputs)


@pytest.mark.parametrize(
    ("tool", "args", "type", "says"),
    [
        ("read_file", {"path": "gone.txt"}, "FILE_NOT_FOUND", "does not exist"),
        ("read_file", {"path": "../x"}, "EDIT_GUARD_BLOCKED", "outside the workspace"),
        ("read_file", {"path": ".env"}, "EDIT_GUARD_BLOCKED", "secrets"),
        ("list_dir", {"path": "/etc"}, "EDIT_GUARD_BLOCKED", "outside the workspace"),
        ("write_file", {"path": "../x", "content": ""}, "EDIT_GUARD_BLOCKED", "outside the workspace"),
        ("write_file", {"path": ".", "content": ""}, "WRITE_FAILED", "not a regular file"),
        ("run", {"command": "echo broken; exit 4"}, "EXEC_NON_ZERO_EXIT", "broken\n[exit code 4]"),
        ("run", {"command": "echo slow; sleep 100", "timeout_seconds": 1}, "EXEC_TIMEOUT", "slow\n[killed after 1 s"),
        ("run", {"command": "a\0b"}, "UNKNOWN", "could not be started"),
        ("run", {"command": ""}, "UNKNOWN", "invalid arguments"),
        ("run", {"command": "ls", "timeout_seconds": "soon"}, "UNKNOWN", "invalid arguments"),
        ("run", {}, "UNKNOWN", "invalid arguments"),
        ("read_file", {"path": 7}, "UNKNOWN", "invalid arguments"),
        ("read_file", {"path": "x", "offset": -1}, "UNKNOWN", "invalid arguments"),
        ("read_file", {"path": "x", "mode": "r"}, "UNKNOWN", "invalid arguments"),
        ("launch", {"path": "x"}, "UNKNOWN", "there is no tool `launch`; there are `list_dir`"),
    ],
)
async def test_what_goes_wrong_is_an_output_with_a_type(
    toolbox: registry.Toolbox, context: outcome.ToolContext, tool: str, args: dict[str, Any], type: str, says: str
) -> None:
    output = await toolbox.execute(tool, args, context)

    assert error_type(output) == type
    assert says in output.text


async def test_a_missing_workspace_is_unreachable_for_every_tool(toolbox: registry.Toolbox, tmp_path: Path) -> None:
    context = outcome.ToolContext(workspace=str(tmp_path / "gone"), run_id="run_nowhere")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("list_dir", {}),
        ("read_file", {"path": "x"}),
        ("write_file", {"path": "x", "content": ""}),
        ("run", {"command": "ls"}),
    ]
    for tool, args in calls:
        assert error_type(await toolbox.execute(tool, args, context)) == "SANDBOX_UNREACHABLE"


def test_a_hopeless_call_is_known_before_anybody_is_asked(toolbox: registry.Toolbox, context: outcome.ToolContext) -> None:
    assert error_type(toolbox.check("write_file", {"path": "/etc/passwd", "content": ""}, context)) == "EDIT_GUARD_BLOCKED"
    assert error_type(toolbox.check("write_file", {"path": "x"}, context)) == "UNKNOWN"
    assert error_type(toolbox.check("launch", {}, context)) == "UNKNOWN"
    assert toolbox.check("write_file", {"path": "x", "content": ""}, context) is None
    assert toolbox.check("run", {"command": "rm -rf /"}, context) is None, "that is for policy and people to judge"


async def test_a_name_that_is_no_text_can_be_journalled(
    toolbox: registry.Toolbox, context: outcome.ToolContext, tmp_path: Path
) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b"/caf\xe9", os.O_CREAT))

    output = await toolbox.execute("list_dir", {}, context)

    assert msgspec.json.decode(msgspec.json.encode(output))["text"] == "caf?"


class Buggy:
    name = "buggy"
    description = "Raises"
    schema: dict[str, Any] = {"type": "object"}  # noqa: RUF012

    def check(self, args: Mapping[str, Any], context: outcome.ToolContext) -> None:
        raise RuntimeError("the password is swordfish")

    async def execute(self, args: Mapping[str, Any], context: outcome.ToolContext) -> outcome.ToolOutput:
        raise RuntimeError("the password is swordfish")

    async def end_run(self, run_id: str) -> None: ...


async def test_a_bug_in_a_tool_is_an_output_that_gives_no_details_away(context: outcome.ToolContext) -> None:
    toolbox = registry.Toolbox([Buggy()])

    for output in (toolbox.check("buggy", {}, context), await toolbox.execute("buggy", {}, context)):
        assert error_type(output) == "UNKNOWN"
        assert output is not None
        assert output.text == "the tool `buggy` failed (RuntimeError)"


def test_every_schema_is_valid_and_agrees_with_what_the_tool_takes(toolbox: registry.Toolbox) -> None:
    samples: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "list_dir": ({"path": "src"}, {"path": 1}),
        "read_file": ({"path": "x", "offset": 3}, {"offset": 3}),
        "write_file": ({"path": "x", "content": ""}, {"path": "x"}),
        "run": ({"command": "ls"}, {"command": "ls", "timeout_seconds": 0}),
    }
    assert {tool.name for tool in toolbox.tools} == set(samples)
    for tool in toolbox.tools:
        good, bad = samples[tool.name]
        validator = jsonschema.Draft202012Validator(tool.schema)
        validator.check_schema(tool.schema)
        assert validator.is_valid(good)
        assert not validator.is_valid(bad)
        assert not validator.is_valid({**good, "surplus": 1})


async def test_cancelling_a_write_waits_until_the_file_is_written(
    toolbox: registry.Toolbox, context: outcome.ToolContext, tmp_path: Path
) -> None:
    content = "x" * 5_000_000
    writing = asyncio.create_task(toolbox.execute("write_file", {"path": "large.txt", "content": content}, context))
    while not any(tmp_path.iterdir()):
        await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing

    assert list(tmp_path.iterdir()) == [tmp_path / "large.txt"]
    assert (tmp_path / "large.txt").stat().st_size == len(content)


async def test_the_end_of_a_run_ends_what_its_commands_left_in_the_background(
    toolbox: registry.Toolbox, context: outcome.ToolContext, tmp_path: Path
) -> None:
    output = await toolbox.execute("run", {"command": "sleep 1000 &"}, context)
    assert output.text == "[exit code 0; a process in the background is still running]"
    assert orphans.any_marked(context.run_id)

    await toolbox.end_run(context.run_id)

    assert not orphans.any_marked(context.run_id)
