import asyncio
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchtower.transports import stream, unix


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def get_mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def leave_behind(path: Path) -> None:
    """A socket file whose process is gone."""
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))


@pytest.mark.usefixtures("open_umask")
def test_folders_are_made_private_and_so_is_the_socket(folder: Path) -> None:
    path = folder / "a" / "b" / "s.sock"
    sock, _ = unix.bind_private(path)
    with sock:
        assert get_mode(path) == 0o600
        assert get_mode(folder / "a") == get_mode(folder / "a" / "b") == 0o700
        assert os.umask(0) == 0, "the umask is given back"


def test_a_folder_that_was_there_keeps_its_mode(folder: Path) -> None:
    folder.chmod(0o755)
    sock, _ = unix.bind_private(folder / "s.sock")
    sock.close()
    assert get_mode(folder) == 0o755


@pytest.mark.parametrize("open_to", [0o777, 0o770, 0o707])
def test_a_folder_that_others_can_write_to_is_refused_with_a_remedy(folder: Path, open_to: int) -> None:
    folder.chmod(open_to)
    with pytest.raises(stream.FolderNotPrivate, match="chmod go-w"):
        unix.bind_private(folder / "s.sock")
    assert list(folder.iterdir()) == []


def test_a_folder_where_only_owners_can_replace_files_will_do(folder: Path) -> None:
    folder.chmod(0o1777)
    sock, _ = unix.bind_private(folder / "s.sock")
    sock.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(folder: Path) -> None:
    os.chown(folder, 65_534, 65_534)
    with pytest.raises(stream.FolderNotPrivate, match="of your own"):
        unix.bind_private(folder / "s.sock")


def test_what_a_process_that_is_gone_has_left_is_replaced(folder: Path) -> None:
    path = folder / "s.sock"
    leave_behind(path)
    sock, _ = unix.bind_private(path)
    with sock, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_live_socket_is_not_taken(folder: Path) -> None:
    path = folder / "s.sock"
    sock, _ = unix.bind_private(path)
    with sock:
        with pytest.raises(stream.AddressInUse, match="stop that process"):
            unix.bind_private(path)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_live_socket_that_is_too_busy_to_answer_is_not_taken(folder: Path) -> None:
    path = folder / "s.sock"
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(path))
        busy.listen(0)
        waiting = []
        while True:
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            waiting.append(client)
            if client.connect_ex(str(path)):
                break
        with pytest.raises(stream.AddressInUse):
            unix.bind_private(path)
        for client in waiting:
            client.close()


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_what_is_not_a_socket_is_left_alone(folder: Path, kind: str) -> None:
    path = folder / "s.sock"
    if kind == "file":
        path.write_text("precious")
    elif kind == "link":
        leave_behind(folder / "elsewhere.sock")
        path.symlink_to(folder / "elsewhere.sock")
    else:
        path.mkdir()
    before = path.lstat()
    with pytest.raises(stream.PathTaken, match="move it away"):
        unix.bind_private(path)
    assert path.lstat() == before


def test_a_path_beyond_the_systems_limit_is_named_with_a_remedy(folder: Path) -> None:
    fits = folder / ("x" * (unix.PATH_LIMIT - len(str(folder)) - 1))
    sock, _ = unix.bind_private(fits)
    sock.close()
    with pytest.raises(stream.PathTooLong, match=f"{unix.PATH_LIMIT + 1} bytes.*hint: choose a shorter path"):
        unix.bind_private(fits.with_name(fits.name + "x"))


def test_only_our_own_file_is_removed(folder: Path) -> None:
    path = folder / "s.sock"
    sock, identity = unix.bind_private(path)
    sock.close()
    path.rename(folder / "still-ours.sock")  # keeps its inode from being given to the next file
    leave_behind(path)
    unix.remove_if_ours(path, identity)
    assert path.exists()
    path.unlink()
    (folder / "still-ours.sock").rename(path)
    unix.remove_if_ours(path, identity)
    assert not path.exists()
    unix.remove_if_ours(path, identity)


async def test_of_two_who_start_at_once_over_a_left_over_the_second_finds_the_first_alive(folder: Path) -> None:
    path = folder / "s.sock"
    leave_behind(path)
    with socket.socket(socket.AF_UNIX) as first:
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = asyncio.create_task(asyncio.to_thread(unix.bind_private, path))
        done, _ = await asyncio.wait({second}, timeout=0.1)
        assert not done, "it waits for its turn to look"
        path.unlink()
        first.bind(str(path))
        first.listen()
        os.close(lock)
        with pytest.raises(stream.AddressInUse):
            await second
