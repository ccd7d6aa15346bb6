"""Listing, reading and writing real files."""

import hashlib
import os
import stat
from pathlib import Path

import pytest

from switchtower.tools import outcome
from switchtower.tools.files import files, scope


def list_names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def get_failure(call: object, *args: object, **options: object) -> outcome.ToolFailed:
    assert callable(call)
    with pytest.raises(outcome.ToolFailed) as failed:
        call(*args, **options)
    return failed.value


def test_a_listing_is_sorted_and_marks_folders_and_links(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "b.txt").touch()
    (tmp_path / "a.txt").touch()
    (tmp_path / "out").symlink_to("/etc")

    assert files.list_dir(str(tmp_path), ".") == "a.txt\nb.txt\nout@\nsrc/"
    assert files.list_dir(str(tmp_path), "src") == "[empty folder]"


def test_a_name_with_a_newline_is_not_listed_as_two(tmp_path: Path) -> None:
    (tmp_path / "one\ntwo\x1b[2J").touch()

    assert files.list_dir(str(tmp_path), ".") == "one\\ntwo\\x1b[2J"


def test_a_long_listing_says_how_much_it_leaves_out(tmp_path: Path) -> None:
    for number in range(files.LIST_LIMIT + 7):
        (tmp_path / f"{number:05}").touch()

    lines = files.list_dir(str(tmp_path), ".").splitlines()

    assert len(lines) == files.LIST_LIMIT + 1
    assert lines[-1] == "[… 7 more not shown …]"


def test_listing_what_is_no_folder_or_not_there_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert get_failure(files.list_dir, str(tmp_path), "file").message == "`file` or a part of it is not a folder"
    assert get_failure(files.list_dir, str(tmp_path), "gone").type is outcome.ToolErrorType.FILE_NOT_FOUND


def test_a_text_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("eins\nzwei ✓\n")

    assert files.read_content(str(tmp_path), "notes.txt").text == "eins\nzwei ✓\n"


def test_a_large_file_is_cut_between_characters_and_can_be_read_on(tmp_path: Path) -> None:
    content = "x" + "✓" * files.READ_LIMIT
    (tmp_path / "large.txt").write_text(content)
    size = len(content.encode())
    digest = hashlib.sha256(content.encode()).hexdigest()

    pieces: list[str] = []
    offset = 0
    while True:
        piece, _, note = files.read_content(str(tmp_path), "large.txt", offset=offset).text.partition("\n[… cut at ")
        pieces.append(piece)
        if not note:
            break
        assert f" of {size} bytes; " in note
        assert f"; hash {digest[:12]} …]" in note
        offset = int(note.split()[0])

    assert len(pieces) == 4
    assert "".join(pieces) == content


def test_a_read_can_be_shorter_and_begins_with_a_whole_character(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("✓✓✓✓")

    assert files.read_content(str(tmp_path), "notes.txt", limit=4).text.startswith(
        "✓\n[… cut at 3 of 12 bytes; read on with offset 3;"
    )
    assert files.read_content(str(tmp_path), "notes.txt", offset=4, limit=8).text.startswith("✓✓")
    assert files.read_content(str(tmp_path), "notes.txt", offset=9).text == "✓"


@pytest.mark.parametrize(("content", "offset"), [("", 1), ("abc", 3), ("abc", 10**15)])
def test_a_read_past_the_end_says_so(tmp_path: Path, content: str, offset: int) -> None:
    (tmp_path / "short.txt").write_text(content)

    told = files.read_content(str(tmp_path), "short.txt", offset=offset).text

    assert told == f"[`short.txt` ends at {len(content)} bytes; there is nothing from offset {offset} on]"


def test_an_empty_file_reads_as_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()

    assert files.read_content(str(tmp_path), "empty").text == ""


def test_a_file_too_large_to_take_in_is_read_in_parts_without_a_hash(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(5 * 1024**3)
        file.seek(4 * 1024**3)
        file.write(b"here" * 10)

    told = files.read_content(str(tmp_path), "huge", offset=4 * 1024**3, limit=40)

    assert told.text.startswith("here" * 10 + "\n[… cut at 4294967336 of 5368709120 bytes; read on with offset 4294967336 …]")
    assert told.digest is None


@pytest.mark.parametrize("content", [b"PNG\0\0data", b"caf\xe9", b"ends in half a character \xe2\x9c"])
def test_a_binary_file_is_reported_and_not_dumped(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "picture").write_bytes(content)

    text = files.read_content(str(tmp_path), "picture").text

    assert text.startswith("[`picture` is ")
    assert f"{len(content)} bytes, not shown" in text


def test_reading_a_folder_or_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()

    assert get_failure(files.read_content, str(tmp_path), "src").message == "`src` is a folder"
    assert get_failure(files.read_content, str(tmp_path), "gone.txt").type is outcome.ToolErrorType.FILE_NOT_FOUND
    assert get_failure(files.read_content, str(tmp_path), "x" * 300).type is outcome.ToolErrorType.UNKNOWN


def test_reading_a_pipe_is_refused_instead_of_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert isinstance(get_failure(files.read_content, str(tmp_path), "pipe"), scope.PathRefused)


def test_writing_creates_the_file_and_the_folders_above_it(tmp_path: Path) -> None:
    told = files.write_content(str(tmp_path), "a/b/notes.txt", "hällo").text

    assert told == "created `a/b/notes.txt` (6 bytes)"
    assert (tmp_path / "a/b/notes.txt").read_text() == "hällo"
    assert list_names(tmp_path / "a/b") == ["notes.txt"]


def test_writing_replaces_the_content_and_keeps_the_mode(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("old and longer")
    script.chmod(0o750)

    assert files.write_content(str(tmp_path), "run.sh", "new").text == "replaced `run.sh` (3 bytes)"
    assert script.read_text() == "new"
    assert stat.S_IMODE(script.stat().st_mode) == 0o750


def test_a_reader_of_the_old_file_never_sees_half_of_the_new_one(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("old")
    with (tmp_path / "notes.txt").open() as reader:
        files.write_content(str(tmp_path), "notes.txt", "new")
        assert reader.read() == "old"


def test_writing_through_a_link_changes_its_target_and_keeps_the_link(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")

    files.write_content(str(tmp_path), "link.txt", "new")

    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").write_text("whole")
    os.mkfifo(tmp_path / "pipe")

    for path, content in (("taken", "x"), ("file/below", "x"), ("pipe", "x"), ("bad.txt", "\ud800"), ("n" * 300, "x")):
        assert get_failure(files.write_content, str(tmp_path), path, content).type is outcome.ToolErrorType.WRITE_FAILED
    assert list_names(tmp_path) == ["file", "pipe", "taken"]
    assert (tmp_path / "file").read_text() == "whole"


def test_the_longest_possible_name_can_be_written(tmp_path: Path) -> None:
    name = "n" * 255

    files.write_content(str(tmp_path), name, "x")

    assert list_names(tmp_path) == [name]


def test_a_refused_write_creates_no_folders(tmp_path: Path) -> None:
    for path in ("new/folder/.env", "new/../../outside/x"):
        assert isinstance(get_failure(files.write_content, str(tmp_path), path, "x"), scope.PathRefused)
    assert list_names(tmp_path) == []
