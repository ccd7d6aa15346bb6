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

from switchtower.tools import concurrency, outcome, registry
from switchtower.tools.processes import orphans
from switchtower.tools.tool import CoreTool


@pytest.fixture
def context(tmp_path: Path) -> outcome.ToolContext:
    return outcome.ToolContext(workspace=str(tmp_path), run_id=f"run_{uuid4().hex}")


@pytest.fixture
def toolbox() -> registry.Toolbox:
    return registry.make_core_toolbox()


def get_error_type(output: outcome.ToolOutput | None) -> str | None:
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
        ("search", {"pattern": "h.llo"}),
        ("edit_file", {"path": "docs/notes.txt", "old": "hello", "new": "goodbye"}),
        ("run", {"command": "cat docs/notes.txt; echo -n done"}),
    ]
    outputs = [await toolbox.execute(tool, args, context) for tool, args in steps]

    assert [output.text for output in outputs] == [
        "created `docs/notes.txt` (6 bytes)",
        "docs/",
        "hello\n",
        "docs/notes.txt:1:hello",
        "edited `docs/notes.txt` (1 place; hash 71573b922a87)\n"
        "--- a/docs/notes.txt\n+++ b/docs/notes.txt\n@@ -1 +1 @@\n-hello\n+goodbye",
        "goodbye\ndone\n[exit code 0]",
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
        ("read_file", {"path": "x", "limit": 3}, "UNKNOWN", "invalid arguments"),
        ("read_file", {"path": "x", "limit": 10**9}, "UNKNOWN", "invalid arguments"),
        ("edit_file", {"path": "gone", "old": "a", "new": "b"}, "FILE_NOT_FOUND", "does not exist"),
        ("edit_file", {"path": "../x", "old": "a", "new": "b"}, "EDIT_GUARD_BLOCKED", "outside the workspace"),
        ("edit_file", {"path": "x", "old": "", "new": "b"}, "UNKNOWN", "invalid arguments"),
        ("edit_file", {"path": "x", "old": "a", "new": "b", "expected_hash": "no"}, "UNKNOWN", "invalid arguments"),
        ("search", {"pattern": "a("}, "UNKNOWN", "cannot be read"),
        ("search", {"pattern": ""}, "UNKNOWN", "invalid arguments"),
        ("search", {"pattern": "a", "path": "/etc"}, "EDIT_GUARD_BLOCKED", "outside the workspace"),
        ("search", {"pattern": "a", "max_results": 201}, "UNKNOWN", "invalid arguments"),
        ("search", {"pattern": "a\0"}, "UNKNOWN", "null character"),
        ("git_status", {}, "UNKNOWN", "not in a git repository"),
        ("git_diff", {"path": "../x"}, "EDIT_GUARD_BLOCKED", "outside the workspace"),
        ("git_commit", {"message": ""}, "UNKNOWN", "invalid arguments"),
        ("git_commit", {"message": "x", "paths": []}, "UNKNOWN", "invalid arguments"),
        ("git_commit", {"message": "x", "paths": ["/etc"]}, "EDIT_GUARD_BLOCKED", "outside the workspace"),
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

    assert get_error_type(output) == type
    assert says in output.text


async def test_a_missing_workspace_is_unreachable_for_every_tool(toolbox: registry.Toolbox, tmp_path: Path) -> None:
    context = outcome.ToolContext(workspace=str(tmp_path / "gone"), run_id="run_nowhere")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("list_dir", {}),
        ("read_file", {"path": "x"}),
        ("write_file", {"path": "x", "content": ""}),
        ("edit_file", {"path": "x", "old": "a", "new": "b"}),
        ("search", {"pattern": "a"}),
        ("run", {"command": "ls"}),
        ("git_status", {}),
        ("git_diff", {}),
        ("git_commit", {"message": "x"}),
    ]
    assert {tool for tool, _ in calls} == {tool.name for tool in toolbox.tools}
    for tool, args in calls:
        assert get_error_type(await toolbox.execute(tool, args, context)) == "SANDBOX_UNREACHABLE"


def test_a_hopeless_call_is_known_before_anybody_is_asked(toolbox: registry.Toolbox, context: outcome.ToolContext) -> None:
    assert get_error_type(toolbox.check("write_file", {"path": "/etc/passwd", "content": ""}, context)) == "EDIT_GUARD_BLOCKED"
    assert get_error_type(toolbox.check("write_file", {"path": "x"}, context)) == "UNKNOWN"
    assert get_error_type(toolbox.check("launch", {}, context)) == "UNKNOWN"
    assert toolbox.check("write_file", {"path": "x", "content": ""}, context) is None
    assert toolbox.check("run", {"command": "rm -rf /"}, context) is None, "that is for policy and people to judge"


async def test_a_name_that_is_no_text_can_be_journalled(
    toolbox: registry.Toolbox, context: outcome.ToolContext, tmp_path: Path
) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b"/caf\xe9", os.O_CREAT))

    output = await toolbox.execute("list_dir", {}, context)

    assert msgspec.json.decode(msgspec.json.encode(output))["text"] == "caf\\xe9"


class BuggyTool:
    name = "buggy"
    description = "Raises"
    schema: dict[str, Any] = {"type": "object"}  # noqa: RUF012
    effect = outcome.ToolEffect.READ

    def check(self, args: Mapping[str, Any], context: outcome.ToolContext) -> None:
        raise RuntimeError("the password is swordfish")

    async def execute(self, args: Mapping[str, Any], context: outcome.ToolContext) -> outcome.ToolOutput:
        raise RuntimeError("the password is swordfish")

    async def end_run(self, run_id: str) -> None: ...


async def test_a_bug_in_a_tool_is_an_output_that_gives_no_details_away(context: outcome.ToolContext) -> None:
    toolbox = registry.Toolbox([BuggyTool()])

    for output in (toolbox.check("buggy", {}, context), await toolbox.execute("buggy", {}, context)):
        assert get_error_type(output) == "UNKNOWN"
        assert output is not None
        assert output.text == "the tool `buggy` failed (RuntimeError)"


def test_every_schema_is_valid_and_agrees_with_what_the_tool_takes(toolbox: registry.Toolbox) -> None:
    samples: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "list_dir": ({"path": "src"}, {"path": 1}),
        "read_file": ({"path": "x", "offset": 3, "limit": 100}, {"offset": 3}),
        "search": ({"pattern": "x", "glob": None, "case": "ignore"}, {"pattern": "x", "case": "maybe"}),
        "write_file": ({"path": "x", "content": ""}, {"path": "x"}),
        "edit_file": ({"path": "x", "old": "a", "new": "", "expected_hash": "0123abcd"}, {"path": "x", "old": "", "new": ""}),
        "run": ({"command": "ls"}, {"command": "ls", "timeout_seconds": 0}),
        "git_status": ({}, {"path": "."}),
        "git_diff": ({"path": None, "staged": True}, {"staged": "yes"}),
        "git_commit": ({"message": "x", "paths": ["a"]}, {"message": "x", "paths": "a"}),
    }
    assert {tool.name for tool in toolbox.tools} == set(samples)
    for tool in toolbox.tools:
        good, bad = samples[tool.name]
        assert tool.schema is tool.schema, "computed once"
        validator = jsonschema.Draft202012Validator(tool.schema)
        validator.check_schema(tool.schema)
        assert validator.is_valid(good)
        assert not validator.is_valid(bad)
        assert not validator.is_valid({**good, "surplus": 1})


def test_effects_are_known_by_name(toolbox: registry.Toolbox) -> None:
    effects = {tool.name: toolbox.get_effect(tool.name) for tool in toolbox.tools}

    assert effects == {
        "list_dir": outcome.ToolEffect.READ,
        "read_file": outcome.ToolEffect.READ,
        "search": outcome.ToolEffect.READ,
        "write_file": outcome.ToolEffect.WRITE,
        "edit_file": outcome.ToolEffect.WRITE,
        "run": outcome.ToolEffect.EXECUTE,
        "git_status": outcome.ToolEffect.READ,
        "git_diff": outcome.ToolEffect.READ,
        "git_commit": outcome.ToolEffect.EXECUTE,
    }
    assert toolbox.get_effect("launch") is None


async def test_a_file_that_somebody_changed_since_it_was_read_must_be_read_again(
    toolbox: registry.Toolbox, context: outcome.ToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("one\n")
    (tmp_path / "alias.py").symlink_to("a.py")
    edit: dict[str, Any] = {"path": "alias.py", "old": "one", "new": "1"}
    write: dict[str, Any] = {"path": "a.py", "content": "all mine"}
    await toolbox.execute("read_file", {"path": "a.py"}, context)
    (tmp_path / "a.py").write_text("one\nand more\n")

    assert get_error_type(await toolbox.execute("edit_file", edit, context)) == "STALE_FILE"
    assert get_error_type(await toolbox.execute("write_file", write, context)) == "STALE_FILE"
    assert (tmp_path / "a.py").read_text() == "one\nand more\n"

    await toolbox.execute("read_file", {"path": "alias.py"}, context)
    assert not (await toolbox.execute("edit_file", edit, context)).is_error
    assert not (await toolbox.execute("edit_file", {**edit, "old": "1", "new": "2"}, context)).is_error, "its own change is known"
    assert not (await toolbox.execute("write_file", write, context)).is_error


async def test_another_session_knows_nothing_of_what_this_one_read(toolbox: registry.Toolbox, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\n")
    mine, other = (outcome.ToolContext(workspace=str(tmp_path), run_id=f"run_{name}", session_id=f"sess_{name}") for name in "ab")
    await toolbox.execute("read_file", {"path": "a.py"}, mine)
    assert not (await toolbox.execute("edit_file", {"path": "a.py", "old": "one", "new": "two"}, other)).is_error

    stale = await toolbox.execute("edit_file", {"path": "a.py", "old": "two", "new": "three"}, mine)
    assert get_error_type(stale) == "STALE_FILE"


async def test_what_a_session_read_is_known_in_its_next_run_and_in_another_toolbox_of_the_same_tools(
    toolbox: registry.Toolbox, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("one\n")
    first, second = (outcome.ToolContext(workspace=str(tmp_path), run_id=f"run_{name}", session_id="sess_1") for name in "ab")
    await toolbox.execute("read_file", {"path": "a.py"}, first)
    (tmp_path / "a.py").write_text("two\n")

    later = await registry.Toolbox(toolbox.tools).execute("edit_file", {"path": "a.py", "old": "two", "new": "2"}, second)
    assert get_error_type(later) == "STALE_FILE"


async def test_many_edits_of_one_file_at_once_all_happen_or_say_that_they_did_not(
    toolbox: registry.Toolbox, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("".join(f"<{number}>\n" for number in range(20)))

    outputs = await asyncio.gather(
        *(
            toolbox.execute(
                "edit_file",
                {"path": "a.txt", "old": f"<{number}>", "new": f"[{number}]"},
                outcome.ToolContext(workspace=str(tmp_path), run_id=f"run_{number}"),
            )
            for number in range(20)
        )
    )

    done = {number for number, output in enumerate(outputs) if not output.is_error}
    assert done
    assert all(get_error_type(output) == "STALE_FILE" for output in outputs if output.is_error)
    lines = [f"[{number}]" if number in done else f"<{number}>" for number in range(20)]
    assert (tmp_path / "a.txt").read_text().splitlines() == lines


async def test_cancelling_a_write_waits_until_the_file_is_written(
    toolbox: registry.Toolbox, context: outcome.ToolContext, tmp_path: Path
) -> None:
    content = "x" * 5_000_000
    writing = asyncio.create_task(toolbox.execute("write_file", {"path": "sub/large.txt", "content": content}, context))
    while not (tmp_path / "sub").exists():
        await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing

    assert list((tmp_path / "sub").iterdir()) == [tmp_path / "sub/large.txt"]
    assert (tmp_path / "sub/large.txt").stat().st_size == len(content)


class StubbornTool(BuggyTool):
    """Works on when it is cancelled."""

    name = "stubborn"

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.let_go = asyncio.Event()
        self.ended = asyncio.Event()

    async def execute(self, args: Mapping[str, Any], context: outcome.ToolContext) -> outcome.ToolOutput:
        self.started.set()
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
        self.ended.set()
        raise RuntimeError("too late")


async def test_a_tool_that_does_not_stop_is_left_alone(context: outcome.ToolContext) -> None:
    tool = StubbornTool()
    calling = asyncio.create_task(registry.Toolbox([tool]).execute("stubborn", {}, context))
    await tool.started.wait()
    try:
        calling.cancel()
        await asyncio.wait([calling], timeout=60)
        assert calling.cancelled()
        assert not tool.ended.is_set()
    finally:
        tool.let_go.set()
    await tool.ended.wait()


class SettlingTool(StubbornTool):
    name = "settling"
    settles = True


async def test_a_tool_that_promises_to_come_to_an_end_is_waited_for(context: outcome.ToolContext) -> None:
    tool = SettlingTool()
    calling = asyncio.create_task(registry.Toolbox([tool]).execute("settling", {}, context))
    await tool.started.wait()
    try:
        for _ in range(3):
            calling.cancel()
            await asyncio.sleep(0)
        assert not calling.done()
    finally:
        tool.let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await calling

    assert tool.ended.is_set()


class AbandoningTool(BuggyTool):
    name = "gives_up"

    async def execute(self, args: Mapping[str, Any], context: outcome.ToolContext) -> outcome.ToolOutput:
        raise asyncio.CancelledError


async def test_a_tool_that_cancels_itself_does_not_cancel_the_run(context: outcome.ToolContext) -> None:
    output = await registry.Toolbox([AbandoningTool()]).execute("gives_up", {}, context)

    assert output.text == "the tool `gives_up` gave up"


async def test_a_read_that_hangs_is_given_up_in_time_and_at_once_when_cancelled(
    context: outcome.ToolContext, tmp_path: Path
) -> None:
    """A pipe with nobody at its other end stands for a disk that does not answer."""

    class Arguments(msgspec.Struct):
        pass

    class Hanging(CoreTool[Arguments]):
        name = "hanging"
        description = "Reads without end"
        effect = outcome.ToolEffect.READ
        arguments = Arguments
        time_limit = 0.2

        async def run(self, arguments: Arguments, context: outcome.ToolContext) -> outcome.ToolOutput:
            return outcome.ToolOutput(await concurrency.run_in_thread((tmp_path / "pipe").read_text))

    os.mkfifo(tmp_path / "pipe")
    hanging = Hanging()

    output = await registry.Toolbox([hanging]).execute("hanging", {}, context)
    assert get_error_type(output) == "EXEC_TIMEOUT"
    assert output.text == "`hanging` did not finish within 0.2 s"

    hanging.time_limit = 60
    calling = asyncio.create_task(registry.Toolbox([hanging]).execute("hanging", {}, context))
    await asyncio.sleep(0)
    calling.cancel()
    await asyncio.wait([calling], timeout=60)
    assert calling.cancelled()
    # Somebody at the other end after all, so that the threads can go.
    os.close(os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK))


async def test_the_end_of_a_run_ends_what_its_commands_left_in_the_background(
    toolbox: registry.Toolbox, context: outcome.ToolContext, tmp_path: Path
) -> None:
    output = await toolbox.execute("run", {"command": "sleep 1000 &"}, context)
    assert output.text == "[exit code 0; a process in the background is still running]"
    assert orphans.has_marked_processes(context.run_id)

    await toolbox.end_run(context.run_id)

    assert not orphans.has_marked_processes(context.run_id)
