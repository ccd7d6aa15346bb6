"""A folder is listed in a stable order, whatever lies in it and however much."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from switchtower.tools import remote_ops
from switchtower.tools.remote_ops import files


async def test_folders_come_first_and_only_regular_files_have_a_size(tmp_path: Path) -> None:
    (tmp_path / "z").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a").write_text("four")
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to("b")
    (tmp_path / "lost").symlink_to("/nowhere")
    os.mkfifo(tmp_path / "pipe")

    assert msgspec.to_builtins(await remote_ops.list_folder(str(tmp_path))) == {
        "path": ".",
        "entries": [
            {"name": "b", "is_dir": True, "size_bytes": None},
            {"name": "z", "is_dir": True, "size_bytes": None},
            {"name": "a", "is_dir": False, "size_bytes": 4},
            {"name": "empty", "is_dir": False, "size_bytes": 0},
            {"name": "link", "is_dir": False, "size_bytes": None},
            {"name": "lost", "is_dir": False, "size_bytes": None},
            {"name": "pipe", "is_dir": False, "size_bytes": None},
        ],
        "truncated": False,
    }


async def test_of_a_large_folder_the_first_names_are_told(tmp_path: Path) -> None:
    for number in range(files.LIST_LIMIT):
        (tmp_path / f"{number:05}").touch()
    assert not (await remote_ops.list_folder(str(tmp_path))).truncated
    (tmp_path / "zz-folder").mkdir()

    result = await remote_ops.list_folder(str(tmp_path), "./")

    assert result.truncated
    assert result.path == "./"
    assert [entry.name for entry in result.entries] == [
        "zz-folder",
        *(f"{number:05}" for number in range(files.LIST_LIMIT - 1)),
    ]


async def test_names_that_are_no_text_can_still_be_told(tmp_path: Path) -> None:
    for name in (b"\xff\xfe", b"new\nline", "grün".encode()):
        (tmp_path / os.fsdecode(name)).touch()

    result = await remote_ops.list_folder(str(tmp_path))

    assert {entry.name for entry in result.entries} == {"\\xff\\xfe", "new\nline", "grün"}
    assert msgspec.json.decode(msgspec.json.encode(result), type=files.ListResult) == result


async def test_what_is_no_folder_cannot_be_listed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    for path, message in (("file", "not a directory"), ("pipe", "not a directory"), ("none", "no such file")):
        async with asyncio.timeout(60):
            with pytest.raises(remote_ops.OperationRefused, match=message):
                await remote_ops.list_folder(str(tmp_path), path)
