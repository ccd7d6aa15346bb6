"""One exact piece of a file becomes another, and the rest stays as it was to the byte."""

import os
import stat
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from switchtower.tools import outcome
from switchtower.tools.files import edits, files, scope


def apply_edit(root: Path, path: str, old: str, new: str, **options: object) -> str:
    return edits.edit_file(str(root), path, edits.FileEdit(old, new, **options)).text  # type: ignore[arg-type]


def get_failure(root: Path, path: str, old: str, new: str = "new", **options: object) -> outcome.ToolFailed:
    with pytest.raises(outcome.ToolFailed) as failed:
        apply_edit(root, path, old, new, **options)
    return failed.value


def test_an_edit_changes_the_one_place_and_shows_it(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n")

    told = apply_edit(tmp_path, "a.py", "two", "2")

    assert (tmp_path / "a.py").read_text() == "one\n2\nthree\n"
    digest = files.compute_digest(b"one\n2\nthree\n")[:12]
    assert told == f"edited `a.py` (1 place; hash {digest})\n--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"


def test_replace_all_changes_every_place(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = x + x\n")

    assert apply_edit(tmp_path, "a.py", "x", "yy", replace_all=True).startswith("edited `a.py` (3 places; ")
    assert (tmp_path / "a.py").read_text() == "yy = yy + yy\n"


@pytest.mark.parametrize(
    ("content", "old", "lines"),
    [("x\ny\nx\n", "x", "1, 3"), ("aaa", "aa", "1, 1"), ("x\n" * 9, "x", "1, 2, 3, 4, 5, …")],
)
def test_a_piece_that_occurs_more_than_once_is_refused_with_its_lines(tmp_path: Path, content: str, old: str, lines: str) -> None:
    (tmp_path / "a.py").write_text(content)

    failed = get_failure(tmp_path, "a.py", old)

    assert failed.type is outcome.ToolErrorType.EDIT_CONTENT_NOT_FOUND
    assert f"(lines {lines})" in failed.message
    assert (tmp_path / "a.py").read_text() == content


@pytest.mark.parametrize(
    ("old", "help"),
    [
        ("  if x:\n    return 1\n", "; there is this, with other spaces (lines 2 to 3):\n    if x:\n        return 1"),
        ("    return  1", "; there is this, with other spaces (line 3):\n        return 1"),
        ("    if xx:\n        return 1", "; the most similar lines are (lines 2 to 3):\n    if x:\n        return 1"),
        ("def func(a, b):", "; the most similar lines are (line 1):\ndef func(a, b, c):"),
        ("nothing like it at all", ""),
        ("\n\n\n\n", ""),
    ],
)
def test_a_piece_that_is_not_there_is_refused_with_what_is_most_like_it(tmp_path: Path, old: str, help: str) -> None:
    (tmp_path / "a.py").write_text("def func(a, b, c):\n    if x:\n        return 1\n")

    failed = get_failure(tmp_path, "a.py", old)

    assert failed.type is outcome.ToolErrorType.EDIT_CONTENT_NOT_FOUND
    assert failed.message == f"`old` does not occur in `a.py`{help}"


def test_an_edit_that_changes_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")

    assert "nothing would change" in get_failure(tmp_path, "a.py", "x", "x").message


@pytest.mark.parametrize(
    ("content", "old", "new", "becomes"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc", "b", "1\n2", b"a\r\n1\r\n2\r\nc"),
        (b"a\nb\nc\r\n", "a\nb", "x\ny", b"x\ny\nc\r\n"),
        (b"a\nb\nc\r\n", "b", "x\ny", b"a\nx\ny\nc\r\n"),
        (b"a\r\nb\nc\r\nd\r\n", "b\nc\n", "x\ny\n", b"a\r\nx\r\ny\r\nd\r\n"),
        (b"a\nb\n", "b", "x\r\ny", b"a\nx\r\ny\n"),
        (b"\xef\xbb\xbfa\r\nb\r\n", "a\n", "x\n", b"\xef\xbb\xbfx\r\nb\r\n"),
        (b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n"),
        (b"a\r\n\r\nb\r\n", "\n\nb", "\nb", b"a\r\nb\r\n"),
        (b"a\r\rb\r\n", "\r\rb", "b", b"ab\r\n"),
    ],
)
def test_line_endings_and_the_byte_order_mark_stay(tmp_path: Path, content: bytes, old: str, new: str, becomes: bytes) -> None:
    (tmp_path / "a.txt").write_bytes(content)

    apply_edit(tmp_path, "a.txt", old, new)

    assert (tmp_path / "a.txt").read_bytes() == becomes


pieces = strategies.lists(strategies.sampled_from(["a", "b", "\n", "\r\n", "é"]), max_size=8).map("".join)


def list_places(text: str, old: str) -> list[int]:
    if "\r\n" in text:
        text, old = text.replace("\r\n", "\n"), old.replace("\r\n", "\n")
    return [start for start in range(len(text)) if text.startswith(old, start)]


@hypothesis.given(before=pieces, old=pieces.filter(bool), new=pieces, after=pieces, replace_all=strategies.booleans())
def test_whatever_is_edited_the_rest_of_the_text_stays(before: str, old: str, new: str, after: str, replace_all: bool) -> None:
    text = before + old + after
    is_clear = replace_all or len(list_places(text, old)) == 1
    if old == new or not is_clear:
        with pytest.raises(outcome.ToolFailed, match="same" if old == new else "more than once"):
            edits.apply_edit("x", text.encode(), edits.FileEdit(old, new, replace_all))
        return
    applied = edits.apply_edit("x", text.encode(), edits.FileEdit(old, new, replace_all))
    if "\r\n" in text:
        text, old, new, result = (part.replace("\r\n", "\n") for part in (text, old, new, applied.after))
    else:
        result = applied.after
    assert result == text.replace(old, new)
    if applied.after != applied.before and before.count("\n") == before.count("\r\n"):
        assert applied.after.startswith(before) or replace_all


def test_the_mode_stays(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("old")
    (tmp_path / "run.sh").chmod(0o751)

    apply_edit(tmp_path, "run.sh", "old", "new")

    assert stat.S_IMODE((tmp_path / "run.sh").stat().st_mode) == 0o751


def test_a_hash_that_fits_lets_the_edit_through_and_one_that_does_not_stops_it(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("old")
    digest = files.compute_digest(b"old")

    failed = get_failure(tmp_path, "a.py", "old", expected_hash="0123456789ab")
    assert failed.type is outcome.ToolErrorType.EDIT_HASH_MISMATCH
    assert digest[:12] in failed.message

    apply_edit(tmp_path, "a.py", "old", "new", expected_hash=digest[:12].upper())
    assert (tmp_path / "a.py").read_text() == "new"


def test_a_file_that_the_session_saw_otherwise_is_stale_unless_the_hash_says_that_it_is_known(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("old")

    def seen(path: str) -> str:
        return files.compute_digest(b"something else")

    with pytest.raises(outcome.ToolFailed) as failed:
        edits.edit_file(str(tmp_path), "a.py", edits.FileEdit("old", "new"), known_digest=seen)
    assert failed.value.type is outcome.ToolErrorType.STALE_FILE
    assert (tmp_path / "a.py").read_text() == "old"

    edits.edit_file(
        str(tmp_path), "a.py", edits.FileEdit("old", "new", expected_hash=files.compute_digest(b"old")), known_digest=seen
    )
    assert (tmp_path / "a.py").read_text() == "new"


@pytest.mark.parametrize("content", [b"caf\xe9 old", b"old\0"])
def test_a_file_that_is_no_text_is_not_edited(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "picture").write_bytes(content)

    assert get_failure(tmp_path, "picture", "old").type is outcome.ToolErrorType.WRITE_FAILED
    assert (tmp_path / "picture").read_bytes() == content


def test_what_cannot_be_edited_says_why(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / ".env").write_text("old")
    (tmp_path / "innocent").symlink_to(".env")
    (tmp_path / "out").symlink_to("/etc/hostname")
    os.mkfifo(tmp_path / "pipe")

    assert get_failure(tmp_path, "gone", "x").type is outcome.ToolErrorType.FILE_NOT_FOUND
    assert get_failure(tmp_path, "folder", "x").message == "`folder` is a folder"
    for path in (".env", "innocent", "out", "../x", "pipe"):
        assert isinstance(get_failure(tmp_path, path, "x"), scope.PathRefused)
    assert get_failure(tmp_path, "folder", "\ud800").type is outcome.ToolErrorType.WRITE_FAILED


def test_a_link_stays_a_link_and_its_target_is_edited(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")

    assert apply_edit(tmp_path, "link.txt", "old", "new").startswith("edited `real.txt`")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_an_edit_cannot_blow_a_file_up_without_bounds(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 50_000)
    (tmp_path / "many.txt").write_text("a" * 200_000)

    assert "too large" in get_failure(tmp_path, "a.txt", "a", "b" * 10_000, replace_all=True).message
    assert "more than 100000 times" in get_failure(tmp_path, "many.txt", "a", "b", replace_all=True).message
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(files.WHOLE_LIMIT + 1)
    assert "larger than 16 MiB" in get_failure(tmp_path, "huge", "a").message


def test_a_line_of_ten_megabytes_can_be_edited_and_is_not_shown_whole(tmp_path: Path) -> None:
    (tmp_path / "long.json").write_text("x" * 10_000_000 + "old")

    told = apply_edit(tmp_path, "long.json", "old", "new")

    assert (tmp_path / "long.json").read_text().endswith("xnew")
    assert len(told) < 4096


def test_text_that_repeats_itself_endlessly_is_judged_quickly(tmp_path: Path) -> None:
    (tmp_path / "same.txt").write_text("a" * 10_000_000)

    assert "more than once" in get_failure(tmp_path, "same.txt", "a" * 5_000_000).message
