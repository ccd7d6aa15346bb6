"""A file is written whole or not at all, and only where it may be."""

import asyncio
import os
import stat
from pathlib import Path

import msgspec
import pytest

from switchtower.tools import remote_ops
from switchtower.tools.remote_ops import files


def list_names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


async def get_refusal(cwd: Path, path: str, content: str = "new") -> str:
    async with asyncio.timeout(60):
        with pytest.raises(remote_ops.OperationRefused) as caught:
            await remote_ops.write_file(str(cwd), path, content)
    return caught.value.message


async def test_a_new_file_gets_its_folders_and_the_answer_counts_bytes(tmp_path: Path) -> None:
    result = await remote_ops.write_file(str(tmp_path), "a/b/file", "grün")

    assert msgspec.to_builtins(result) == {"path": "a/b/file", "bytes_written": 5}
    assert (tmp_path / "a/b/file").read_bytes() == "grün".encode()


async def test_a_replaced_file_keeps_its_mode_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("old")
    script.chmod(0o751)
    before = script.stat().st_ino

    await remote_ops.write_file(str(tmp_path), "script", "")

    assert script.read_text() == ""
    assert stat.S_IMODE(script.stat().st_mode) == 0o751
    assert script.stat().st_ino != before, "a reader of the old file keeps the old content"
    assert list_names(tmp_path) == ["script"]


async def test_whoever_reads_meanwhile_sees_the_old_or_the_new_and_never_a_part(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("0" * 100_000)

    async def write_on() -> None:
        for number in range(30):
            await remote_ops.write_file(str(tmp_path), "file", str(number % 10) * 100_000)

    writing_on = asyncio.create_task(write_on())
    while not writing_on.done():
        content = (await remote_ops.read_file(str(tmp_path), "file")).content
        assert content == content[:1] * 100_000
    await writing_on


async def test_too_much_or_no_text_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")

    assert await get_refusal(tmp_path, "file", "x" * (files.WRITE_LIMIT + 1)) == "file is too large"
    assert await get_refusal(tmp_path, "file", "€" * (files.WRITE_LIMIT // 3 + 1)) == "file is too large"
    assert await get_refusal(tmp_path, "file", "\ud800") == "content is not valid Unicode"
    assert (tmp_path / "file").read_text() == "old"
    assert (await remote_ops.write_file(str(tmp_path), "file", "x" * files.WRITE_LIMIT)).bytes_written == files.WRITE_LIMIT


async def test_only_files_are_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")

    assert await get_refusal(tmp_path, "folder") == "is a directory"
    assert await get_refusal(tmp_path, ".") == "is a directory"
    assert await get_refusal(tmp_path, "new/") == "is a directory"
    assert await get_refusal(tmp_path, "new/.") == "is a directory"
    assert await get_refusal(tmp_path, "file/inner") == "not a directory"
    assert await get_refusal(tmp_path, "pipe") == "not a regular file"
    assert await get_refusal(tmp_path, "pipe/inner") == "not a directory"
    assert list_names(tmp_path) == ["file", "folder", "pipe"]


async def test_a_cancelled_write_has_happened_or_never_will(tmp_path: Path) -> None:
    target = tmp_path / "file"
    for turns in range(40):
        target.write_text("old")
        work = asyncio.create_task(remote_ops.write_file(str(tmp_path), "file", "new" * 100_000))
        for _ in range(turns):
            await asyncio.sleep(0)
        work.cancel()
        await asyncio.wait([work])
        settled = target.read_text()
        assert settled in ("old", "new" * 100_000)
        # Whatever its thread still does, a later write is not undone by it.
        await remote_ops.write_file(str(tmp_path), "file", "last")
        assert target.read_text() == "last"


def test_a_preview_is_whole_and_tells_its_size() -> None:
    assert remote_ops.preview_write("a", "grün") == {"path": "a", "content": "grün", "bytes": 5, "truncated": False}
    long = remote_ops.preview_write("p" * 1_000_000, "€" * 1_000_000)
    assert (len(long["path"]), len(long["content"]), long["bytes"], long["truncated"]) == (1_000_000, 1_000_000, 3_000_000, False)


def test_a_preview_can_always_be_sent() -> None:
    shown = remote_ops.preview_write("\ud800", "a\udcffb")
    assert msgspec.json.decode(msgspec.json.encode(shown)) == {"path": "?", "content": "a?b", "bytes": 5, "truncated": False}
