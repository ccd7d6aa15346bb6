"""A home that cannot be written, a full disk, a missing folder: one line with a remedy for every command, never a traceback."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import TowerCommand

COMMANDS = (
    *(("sessions",), ("token", "url"), ("run", "--headless", "hello"), ("serve",), ("user", "list"), ("inbox", "--json")),
    *(
        ("trust",),
        ("models",),
        ("search", "x"),
        ("exec", "--", "true"),
        ("audit",),
        ("export", "last"),
        ("skills",),
        ("presets",),
    ),
    *(("hosts",), ("delete", "x"), ("fork", "last"), ("attach", "last"), ("stdio", "--protocol", "pi"), ("nodes",)),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_home_that_cannot_be_made_is_one_line_and_a_remedy(
    tower_command: TowerCommand, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_text("no folder")

    ended = tower_command(*command, TOWER_HOME=str(tmp_path / "file/home"))

    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("tower: ")
    assert "; hint: " in ended.stderr


def test_the_remedy_names_the_variable(tower_command: TowerCommand, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    home = tmp_path / "file/home"
    remedy = "hint: set `TOWER_HOME` to a folder that you may write, or change who owns this one"
    for command in (("sessions",), ("serve",)):
        assert (
            tower_command(*command, TOWER_HOME=str(home)).stderr
            == f"tower: `{home}/run` cannot be used: Not a directory; {remedy}\n"
        )


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    subprocess.run(["sh", "-c", 'cat /dev/zero > "$0"', str(disk / "ballast")], capture_output=True)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("command", [("sessions",), ("serve",), ("run", "--headless", "hello")], ids=" ".join)
def test_a_full_disk_is_one_line_and_a_remedy(tower_command: TowerCommand, full_disk: Path, command: tuple[str, ...]) -> None:
    ended = tower_command(*command, TOWER_HOME=str(full_disk / "home"))

    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr.count("\n") == 1
    assert "is full (No space left on device); hint: free some space" in ended.stderr


def test_a_missing_folder_is_one_line_and_a_remedy(tower_command: TowerCommand, tmp_path: Path) -> None:
    for command in (("run", "--headless", "hello"), ("exec",)):
        ended = tower_command(*command, "--cwd", str(tmp_path / "missing"), *(["--", "true"] if command == ("exec",) else []))
        assert ended.code == 64
        assert ended.stderr.count("\n") == 1
        assert "missing" in ended.stderr
        assert "hint: " in ended.stderr
