"""A diff is one that `patch` understands, however it was shortened on the way."""

import subprocess
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from switchtower.tools.files import edits

LIMIT = 1_000_000
lines = strategies.lists(strategies.sampled_from(["a", "b", "c", "", " x", "-", "+", "\\ No", "ä"]), max_size=12).map("\n".join)


def apply_patch(folder: Path, before: str, diff: str) -> str:
    (folder / "x").write_text(before)
    subprocess.run(["git", "apply", "--unidiff-zero", "-p1"], input=diff.encode(), cwd=folder, check=True, capture_output=True)
    return (folder / "x").read_text()


@hypothesis.given(before=lines, after=lines)
@hypothesis.settings(max_examples=60)
def test_git_applies_it(tmp_path_factory: pytest.TempPathFactory, before: str, after: str) -> None:
    diff = edits.make_unified_diff("x", before, after, limit=LIMIT)

    if before == after:
        assert diff == ""
    elif before and after:
        assert apply_patch(tmp_path_factory.mktemp("patch"), before, f"{diff}\n") == after


def test_a_large_change_in_a_large_file_is_shown_as_one_block(tmp_path: Path) -> None:
    common = [f"common {number}" for number in range(5000)]
    before = "\n".join([*common, *(f"old {number}" for number in range(1500)), *common])
    after = "\n".join([*common, *(f"new {number}" for number in range(2000)), *common])

    diff = edits.make_unified_diff("x", before, after, limit=LIMIT)

    assert diff.count("@@ -") == 1
    assert apply_patch(tmp_path, before, f"{diff}\n") == after


def test_a_new_file_is_all_additions() -> None:
    assert edits.make_unified_diff("x", None, "a\nb\n", limit=LIMIT) == "--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b"


def test_a_missing_newline_at_the_end_is_told() -> None:
    assert edits.make_unified_diff("x", "a", "a\n", limit=LIMIT).endswith("-a\n\\ No newline at end of file\n+a")


def test_line_endings_are_shown_only_where_they_change() -> None:
    assert edits.make_unified_diff("x", "a\r\nb\r\n", "a\r\nc\r\n", limit=LIMIT).endswith(" a\n-b\n+c")
    assert edits.make_unified_diff("x", "a\r\n", "a\n", limit=LIMIT).endswith("-a\\r\n+a")


@pytest.mark.parametrize("hidden", ["\x1b[2K", "\u202e", "\u2066", "\x08", "\u200b", "\r"])
def test_nothing_in_it_can_hide_or_turn_around_what_is_shown(hidden: str) -> None:
    diff = edits.make_unified_diff("x", "a", f"a {hidden}b", limit=LIMIT)

    assert hidden not in diff
    assert hidden.encode("unicode_escape").decode() in diff


def test_a_long_diff_is_cut_and_named_by_its_hash() -> None:
    before = "".join(f"line {number}\n" for number in range(3000))
    one = edits.make_unified_diff("x", before, before.replace("line", "row"), limit=2000)
    other = edits.make_unified_diff("x", before, before.replace("line", "row").replace("row 2999", "row 3000"), limit=2000)

    assert len(one.encode()) < 2200
    assert one.splitlines()[:-1] == other.splitlines()[:-1]
    assert "more lines not shown; the whole diff has the hash " in one
    assert one != other


def test_a_name_with_a_newline_cannot_pass_for_a_line_of_the_diff() -> None:
    assert edits.make_unified_diff("x\n+evil", "a", "b", limit=LIMIT).splitlines()[0] == "--- a/x\\n+evil"
