"""The folder, what is remembered, and keys on their way."""

import asyncio
from pathlib import Path

import pytest

from switchtower import config
from switchtower.client import errors, workspace
from switchtower.tui import commands, preferences
from switchtower.tui.feed import MOST_QUEUED, KeySender

# The folder


def test_files_are_listed_near_ones_first_without_what_nobody_means(tmp_path: Path) -> None:
    for name in ("b.txt", "src/deep/x.py", ".git/HEAD", "node_modules/m/index.js", ".env"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert workspace.list_files(str(tmp_path)) == [".env", "b.txt", "src/", "src/deep/", "src/deep/x.py"]


def test_a_folder_that_goes_round_in_a_circle_ends(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    assert workspace.list_files(str(tmp_path)) == ["loop"]


def test_a_large_folder_is_cut(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}").write_text("")
    assert len(workspace.list_files(str(tmp_path), most=5)) == 5


def test_a_name_that_would_steer_is_not_offered(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31m").write_text("")
    assert workspace.list_files(str(tmp_path)) == []


def test_a_folder_tells_its_branch(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/feature/x\n")
    assert workspace.describe_workspace(str(tmp_path)).currentBranch == "feature/x"
    (tmp_path / ".git/HEAD").write_text("0123456789\n")
    assert workspace.describe_workspace(str(tmp_path)).currentBranch == "HEAD"


def test_a_folder_that_is_none_says_so(tmp_path: Path) -> None:
    with pytest.raises(errors.ClientError, match="is no folder"):
        workspace.resolve_folder(tmp_path / "nowhere")


# What is remembered


def test_what_was_sent_is_there_at_the_next_start_for_the_owner_alone(tmp_path: Path) -> None:
    settings = config.Settings(home=tmp_path)
    preferences.save_history(settings, ["one", "two\nlines", "\ud800"])
    assert preferences.load_history(settings) == ["one", "two\nlines"]
    (kept,) = (settings.data_dir / "tui").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_broken_file_costs_nothing(tmp_path: Path) -> None:
    settings = config.Settings(home=tmp_path)
    preferences.save_history(settings, ["good"])
    with (settings.data_dir / "tui/history.jsonl").open("ab") as file:
        file.write(b"\xff\xfe{not json\n123\n")
    assert preferences.load_history(settings) == ["good"]
    (settings.data_dir / "tui/theme").write_bytes(b"\xff")
    assert preferences.load_theme(settings) is None


def test_nothing_to_write_to_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where a folder should be")
    settings = config.Settings(home=tmp_path)
    preferences.save_history(settings, ["x"])
    preferences.save_theme(settings, "tower-dark")
    assert preferences.load_history(settings) == []


def test_the_look_follows_the_terminal() -> None:
    assert preferences.guess_theme({"COLORFGBG": "0;15"}) == preferences.LIGHT.name
    assert preferences.guess_theme({"COLORFGBG": "15;0"}) == preferences.DARK.name
    assert preferences.guess_theme({}) == preferences.DARK.name


# Exports


@pytest.mark.parametrize(
    ("wish", "form", "file"),
    [
        ("", "markdown", ""),
        ("html", "html", ""),
        ("jsonl a b.txt", "jsonl", "a b.txt"),
        ("notes.html", "html", "notes.html"),
        ("notes", "markdown", "notes"),
    ],
)
def test_a_form_a_file_or_both_may_be_named(wish: str, form: str, file: str) -> None:
    assert commands.parse_export_request(wish) == (form, file)


def test_no_file_is_written_over_that_nobody_named(tmp_path: Path) -> None:
    (tmp_path / "session-abcdef.md").write_text("mine")
    assert commands.find_free_path(str(tmp_path), "sess_01ABCDEF", "markdown").name == "session-abcdef-1.md"


# Keys on their way


async def test_keys_arrive_in_order_and_those_that_wait_go_together() -> None:
    arrived: list[tuple[str, str]] = []
    gate, all_there = asyncio.Event(), asyncio.Event()

    async def send(session_id: str, keys: str) -> None:
        await gate.wait()
        arrived.append((session_id, keys))
        if keys.endswith("!"):
            all_there.set()

    typist = KeySender(send, lambda problem: None)
    typist.enqueue("a", "1")
    await asyncio.sleep(0)
    for session_id, keys in (("a", "2"), ("a", "3"), ("b", "4"), ("a", "5!")):
        typist.enqueue(session_id, keys)
    gate.set()
    async with asyncio.timeout(60):
        await all_there.wait()
    assert arrived == [("a", "1"), ("a", "23"), ("b", "4"), ("a", "5!")]


async def test_a_refused_key_is_told_and_the_next_one_goes() -> None:
    told: list[errors.ClientError] = []
    done = asyncio.Event()

    async def send(session_id: str, keys: str) -> None:
        if keys == "1":
            raise errors.ConnectionLost("gone")
        done.set()

    typist = KeySender(send, told.append)
    typist.enqueue("a", "1")
    typist.enqueue("b", "2")
    async with asyncio.timeout(60):
        await done.wait()
    assert [problem.message for problem in told] == ["gone"]


async def test_keys_that_nobody_takes_are_bounded() -> None:
    gate, idle = asyncio.Event(), asyncio.Event()
    taken: list[str] = []

    async def send(session_id: str, keys: str) -> None:
        await gate.wait()
        taken.append(keys)
        if keys.endswith("!"):
            idle.set()

    typist = KeySender(send, lambda problem: None)
    piece = "x" * (MOST_QUEUED // 10)
    for _ in range(100):
        typist.enqueue("a", piece)
    typist.enqueue("a", "!")
    gate.set()
    async with asyncio.timeout(60):
        await idle.wait()
    assert len(piece) < sum(map(len, taken)) <= MOST_QUEUED
