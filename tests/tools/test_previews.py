"""A person sees what would change, before it does; nothing changes by looking, and nothing raises."""

import os
from pathlib import Path
from typing import Any

import pytest

from switchtower.tools import outcome, registry


async def preview(root: Path, tool: str, **args: Any) -> dict[str, object]:
    return await registry.make_preview(tool, args, outcome.ToolContext(workspace=str(root), run_id="run_preview"))


async def test_a_new_file_is_shown_as_additions(tmp_path: Path) -> None:
    seen = await preview(tmp_path, "write_file", path="src/a.py", content="one\ntwo\n")

    assert seen == {"new": True, "bytes": 8, "diff": "--- /dev/null\n+++ b/src/a.py\n@@ -0,0 +1,2 @@\n+one\n+two"}
    assert list(tmp_path.iterdir()) == [], "also no folder was made"


async def test_a_replaced_file_is_shown_as_a_diff(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\n")

    seen = await preview(tmp_path, "write_file", path="a.py", content="one\n2\n")

    assert seen == {"new": False, "bytes": 6, "diff": "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n one\n-two\n+2"}
    assert (tmp_path / "a.py").read_text() == "one\ntwo\n"


async def test_an_edit_is_shown_as_the_diff_that_it_will_make(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x\ny\nx\n")
    args: dict[str, Any] = {"path": "a.py", "old": "x", "new": "z", "replace_all": True}

    seen = await preview(tmp_path, "edit_file", **args)
    output = await registry.make_core_toolbox().execute(
        "edit_file", args, outcome.ToolContext(workspace=str(tmp_path), run_id="run_preview")
    )

    assert seen["replacements"] == 2
    assert str(seen["diff"]) == output.text.partition("\n")[2]


@pytest.mark.parametrize(
    ("tool", "args", "problem"),
    [
        ("write_file", {"path": ".env", "content": "x"}, "secrets"),
        ("write_file", {"path": "innocent", "content": "x"}, "secrets"),
        ("write_file", {"path": "../x", "content": "x"}, "outside the workspace"),
        ("write_file", {"path": "out/x", "content": "x"}, "link out of the workspace"),
        ("write_file", {"path": "folder", "content": "x"}, "is a folder"),
        ("write_file", {"path": "pipe", "content": "x"}, "not a regular file"),
        ("write_file", {"path": "binary", "content": "x"}, "binary file"),
        ("write_file", {"path": "latin", "content": "x"}, "binary file"),
        ("write_file", {"path": "text", "content": "a\0b"}, "binary file"),
        ("write_file", {"path": "huge", "content": "x"}, "larger than"),
        ("write_file", {"path": "x\0y", "content": "x"}, "null character"),
        ("write_file", {"path": "\ud800", "content": "x"}, "not valid Unicode"),
        ("write_file", {"path": "n" * 300, "content": "x"}, "name too long"),
        ("write_file", {"path": 7}, "invalid arguments"),
        ("write_file", {}, "invalid arguments"),
        ("edit_file", {"path": "gone", "old": "a", "new": "b"}, "does not exist"),
        ("edit_file", {"path": "text", "old": "nowhere", "new": "b"}, "does not occur"),
        ("edit_file", {"path": "text", "old": "a", "new": "\ud800"}, "not valid Unicode"),
        ("edit_file", {"path": "binary", "old": "a", "new": "b"}, "binary file"),
        ("edit_file", {"path": ".env", "old": "hush", "new": "b"}, "secrets"),
        ("git_commit", {"message": "x", "paths": ["../x"]}, "git repository"),
        ("git_commit", {"message": ""}, "invalid arguments"),
    ],
)
async def test_what_cannot_be_shown_is_told_and_gives_nothing_away(
    tmp_path: Path, tool: str, args: dict[str, Any], problem: str
) -> None:
    (tmp_path / ".env").write_text("hush")
    (tmp_path / "innocent").symlink_to(".env")
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"hush\0")
    (tmp_path / "latin").write_bytes(b"caf\xe9 hush")
    (tmp_path / "text").write_text("a")
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(20 * 1024 * 1024)

    seen = await preview(tmp_path, tool, **args)

    assert problem.casefold() in str(seen["problem"]).casefold()
    assert "diff" not in seen
    assert "hush" not in str(seen)
    str(seen).encode()


async def test_a_tool_that_shows_nothing_has_an_empty_preview(tmp_path: Path) -> None:
    for tool in ("run", "read_file", "made_up"):
        assert await preview(tmp_path, tool, path="x", command="rm -rf /") == {}


async def test_a_change_is_shown_whole_or_is_a_problem(tmp_path: Path) -> None:
    line = "x" * 60_000 + "; rm -rf ~"

    whole = await preview(tmp_path, "write_file", path="a", content=line)
    long = await preview(tmp_path, "write_file", path="a", content=f"{line}\n" * 3)

    assert f"+{line}" in str(whole["diff"])
    assert "diff" not in long
    assert f"more than {registry.LONGEST_DIFF:,}" in str(long["problem"])


async def test_a_diff_cannot_play_tricks_on_who_reads_it(tmp_path: Path) -> None:
    seen = await preview(tmp_path, "write_file", path="a", content="safe \x1b[2K\rrm -rf \u202e/")

    assert "\\x1b[2K\\rrm -rf \\u202e/" in str(seen["diff"])


async def test_a_missing_workspace_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    for tool, args in (("write_file", {"path": "a", "content": ""}), ("git_commit", {"message": "x"})):
        assert "cannot be opened" in str((await preview(tmp_path / "gone", tool, **args))["problem"])
