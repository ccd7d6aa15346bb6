"""A file is read as far as the limit goes, and only when it is text on a disk."""

import asyncio
import os
import socket
from pathlib import Path

import msgspec
import pytest

from switchtower.tools import remote_ops
from switchtower.tools.remote_ops import files


async def get_refusal(cwd: Path, path: str) -> str:
    async with asyncio.timeout(60):
        with pytest.raises(remote_ops.OperationRefused) as caught:
            await remote_ops.read_file(str(cwd), path)
    return caught.value.message


async def test_a_result_has_relays_fields(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("grüße\r\n")

    result = await remote_ops.read_file(str(tmp_path), "./file")

    assert msgspec.to_builtins(result) == {"path": "./file", "content": "grüße\r\n", "truncated": False}


async def test_a_file_of_exactly_the_limit_is_whole_and_one_byte_more_is_cut(tmp_path: Path) -> None:
    (tmp_path / "whole").write_bytes(b"x" * files.READ_LIMIT)
    (tmp_path / "more").write_bytes(b"x" * (files.READ_LIMIT + 1))

    assert not (await remote_ops.read_file(str(tmp_path), "whole")).truncated
    more = await remote_ops.read_file(str(tmp_path), "more")
    assert (len(more.content), more.truncated) == (files.READ_LIMIT, True)


async def test_a_cut_never_parts_a_character(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("xx" + "€" * files.READ_LIMIT)

    result = await remote_ops.read_file(str(tmp_path), "file")

    assert result.truncated
    assert result.content == "xx" + "€" * ((files.READ_LIMIT - 2) // 3)
    assert len(result.content.encode()) < files.READ_LIMIT, "a whole number of characters would show nothing"


@pytest.mark.parametrize("content", [b"a\0b", b"\xff\xfe", b"fine \xc3", b"\x80", b"\xed\xa0\x80"])
async def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert await get_refusal(tmp_path, "file") == "not a UTF-8 file"


async def test_of_five_gigabytes_only_the_beginning_is_read(tmp_path: Path) -> None:
    for name, beginning in (("text", b"line\n" * 300_000), ("holes", b"line\n")):
        with (tmp_path / name).open("wb") as file:
            file.write(beginning)
            file.truncate(5 * 1024**3)

    text = await remote_ops.read_file(str(tmp_path), "text")
    assert text.truncated
    assert len(text.content) == files.READ_LIMIT
    assert await get_refusal(tmp_path, "holes") == "not a UTF-8 file"


async def test_pipes_and_sockets_are_refused_without_waiting_for_their_other_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name in ("pipe", "link", "socket"):
            assert await get_refusal(tmp_path, name) == "not a regular file"


async def test_devices_are_refused_without_being_opened() -> None:
    for name in ("zero", "null", "tty"):
        assert await get_refusal(Path("/dev"), name) == "not a regular file"


async def test_folders_and_things_that_are_not_there_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")

    assert await get_refusal(tmp_path, "folder") == "is a directory"
    assert await get_refusal(tmp_path, "folder/") == "is a directory"
    assert await get_refusal(tmp_path, ".") == "is a directory"
    assert await get_refusal(tmp_path, "./") == "is a directory"
    assert await get_refusal(tmp_path, "none") == "no such file"
    assert await get_refusal(tmp_path, "none/") == "no such file"
    assert await get_refusal(tmp_path, "none/none") == "no such file"
    assert await get_refusal(tmp_path, "file/") == "not a directory"
    assert await get_refusal(tmp_path, "file/inner") == "not a directory"
