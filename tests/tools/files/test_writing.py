"""A file is replaced whole or not at all, and a kill in the middle leaves nothing behind."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from switchtower.tools import outcome
from switchtower.tools.files import atomic_write, files, scope

LEFTOVER = ".tower-0123456789abcdef.tmp"


@contextmanager
def resolve_place(root: Path, path: str) -> Iterator[scope.ResolvedPath]:
    with scope.locate(str(root), path) as place:
        yield place


def list_names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


WRITER = """
import sys
from switchtower.tools.files import files
files.write_content(sys.argv[1], "large.txt", "x" * 200_000_000)
"""


def is_writing_in(pid: int, folder: Path) -> bool:
    """Whether a file of the folder, with a name or without, is open and has something in it."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            if descriptor.readlink().is_relative_to(folder) and descriptor.stat().st_size > 0 and descriptor.is_file():
                return True
    return False


def test_a_writer_killed_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    if not hasattr(os, "O_TMPFILE"):
        pytest.skip("files without a name are Linux's")
    with subprocess.Popen([sys.executable, "-c", WRITER, tmp_path]) as writer:
        while not is_writing_in(writer.pid, tmp_path):
            assert writer.poll() is None
        writer.send_signal(signal.SIGKILL)

    assert writer.returncode == -signal.SIGKILL, "it was still at work"
    assert list(tmp_path.iterdir()) == []


def test_what_an_older_daemon_left_is_swept_when_the_folder_is_next_written_to(tmp_path: Path) -> None:
    for name in (LEFTOVER, ".tower-fedcba9876543210.tmp", "mine.tmp", ".tower-notes.tmp"):
        (tmp_path / name).write_text("half")
    (tmp_path / ".tower-aaaaaaaaaaaaaaaa.tmp").symlink_to("nowhere")
    long_ago = time.time() - atomic_write.LEFTOVER_AGE - 60
    for name in (LEFTOVER, "mine.tmp", ".tower-notes.tmp"):
        os.utime(tmp_path / name, (long_ago, long_ago))

    files.write_content(str(tmp_path), "notes.txt", "x")

    # A young one may be another daemon's that is writing just now.
    kept = [".tower-aaaaaaaaaaaaaaaa.tmp", ".tower-fedcba9876543210.tmp", ".tower-notes.tmp", "mine.tmp", "notes.txt"]
    assert list_names(tmp_path) == kept


def test_a_withdrawn_permit_means_that_nothing_changes(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("old")
    permit = atomic_write.WritePermit()

    assert permit.withdraw()
    with resolve_place(tmp_path, "notes.txt") as place, pytest.raises(atomic_write.WriteWithdrawn):
        atomic_write.replace_file(place, b"new", permit=permit)

    assert (tmp_path / "notes.txt").read_text() == "old"
    assert list_names(tmp_path) == ["notes.txt"]


def test_a_used_permit_cannot_be_withdrawn(tmp_path: Path) -> None:
    permit = atomic_write.WritePermit()
    with resolve_place(tmp_path, "notes.txt") as place:
        atomic_write.replace_file(place, b"new", permit=permit)

    assert not permit.withdraw()


@pytest.mark.parametrize("change", ["in place", "by another file", "removed"])
def test_only_the_expected_file_is_replaced(tmp_path: Path, change: str) -> None:
    target = tmp_path / "notes.txt"
    target.write_text("old")
    with resolve_place(tmp_path, "notes.txt") as place:
        expected = files.read_whole(place).status
        match change:
            case "in place":
                target.write_text("older")
            case "by another file":
                (tmp_path / "other").write_text("new")
                (tmp_path / "other").rename(target)
            case _:
                target.unlink()
        with pytest.raises(outcome.ToolFailed) as failed:
            atomic_write.replace_file(place, b"ours", permit=atomic_write.WritePermit(), expected=expected)

    assert failed.value.type is outcome.ToolErrorType.STALE_FILE
    assert not target.exists() or target.read_text() != "ours"


def test_of_many_who_replace_the_same_file_at_once_one_wins(tmp_path: Path) -> None:
    target = tmp_path / "notes.txt"
    target.write_text("old")
    start = threading.Barrier(8)
    told: list[str] = []

    def replace(number: int) -> None:
        with resolve_place(tmp_path, "notes.txt") as place:
            expected = files.read_whole(place).status
            start.wait()
            try:
                atomic_write.replace_file(place, b"%d" % number, permit=atomic_write.WritePermit(), expected=expected)
                told.append(f"{number}")
            except outcome.ToolFailed as failed:
                told.append(failed.type)

    threads = [threading.Thread(target=replace, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert told.count(outcome.ToolErrorType.STALE_FILE) == 7
    assert target.read_text() in told
    assert list_names(tmp_path) == ["notes.txt"]


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()

    files.write_content(str(tmp_path), "ours", "x")

    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)


def test_a_file_that_the_session_saw_otherwise_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("somebody's work")

    with pytest.raises(outcome.ToolFailed) as failed:
        files.write_content(str(tmp_path), "notes.txt", "mine", known_digest=lambda path: files.compute_digest(b"as I saw it"))

    assert failed.value.type is outcome.ToolErrorType.STALE_FILE
    assert (tmp_path / "notes.txt").read_text() == "somebody's work"


@pytest.mark.parametrize("digest", [None, files.compute_digest(b"as it is")])
def test_a_file_that_is_as_it_was_seen_or_was_never_seen_is_overwritten(tmp_path: Path, digest: str | None) -> None:
    (tmp_path / "notes.txt").write_text("as it is")

    written = files.write_content(str(tmp_path), "notes.txt", "mine", known_digest=lambda path: digest)

    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert written.digest == files.compute_digest(b"mine")


def test_a_file_that_was_seen_and_is_gone_is_created(tmp_path: Path) -> None:
    files.write_content(str(tmp_path), "notes.txt", "mine", known_digest=lambda path: files.compute_digest(b"gone"))

    assert (tmp_path / "notes.txt").read_text() == "mine"
