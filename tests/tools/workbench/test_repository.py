"""Git's own words about the run's folder, and nothing run that a repository names."""

import asyncio
import os
from collections.abc import Awaitable
from pathlib import Path

import msgspec
import pytest
from tests.tools.git import repositories
from tests.tools.git.git_world import World, without_own_configuration

from switchtower.tools import workbench
from switchtower.tools.workbench import repository


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    without_own_configuration(monkeypatch, tmp_path / "home")
    return World(tmp_path)


async def refusal(work: Awaitable[object]) -> str:
    async with asyncio.timeout(60):
        with pytest.raises(workbench.Refused) as caught:
            await work
    return caught.value.message


async def status(cwd: Path) -> str:
    result = await workbench.git_status(str(cwd))
    assert not result.truncated
    return result.stdout


async def diff(cwd: Path, path: str | None = None) -> str:
    result = await workbench.git_diff(str(cwd), path)
    assert not result.truncated
    return result.stdout


def by_git(world: World) -> str:
    return world.git("status", "--porcelain=v1", "-b")


async def test_status_is_what_git_itself_says(world: World) -> None:
    assert await status(world.root) == by_git(world) == "## No commits yet on main\n"
    world.commit(a="1\n", b="1\n", c="1\n", src__d="1\n")
    assert await status(world.root) == by_git(world) == "## main\n"
    world.write("a", "2\n")
    (world.root / "b").unlink()
    world.git("mv", "c", "moved")
    world.write("src/grün", "1\n")
    world.write("with space", "1\n")
    world.git("add", "src")

    world.git("config", "core.quotePath", "false")
    assert await status(world.root) == by_git(world)
    assert msgspec.to_builtins(await workbench.git_status(str(world.root))) == {"stdout": by_git(world), "truncated": False}


async def test_status_tells_the_upstream_as_git_does(world: World, tmp_path: Path) -> None:
    world.commit(a="1\n")
    world.git("clone", "-q", str(world.root), str(tmp_path / "clone"))
    clone = tmp_path / "clone"

    def theirs() -> str:
        return world.git("status", "--porcelain=v1", "-b", cwd=clone)

    assert await status(clone) == theirs() == "## main...origin/main\n"
    world.git("commit", "-q", "--allow-empty", "-m", "ours", cwd=clone)
    world.git("commit", "-q", "--allow-empty", "-m", "theirs")
    world.git("fetch", "-q", cwd=clone)
    assert await status(clone) == theirs() == "## main...origin/main [ahead 1, behind 1]\n"
    world.git("update-ref", "-d", "refs/remotes/origin/main", cwd=clone)
    assert await status(clone) == theirs() == "## main...origin/main [gone]\n"
    world.git("checkout", "-q", "--detach", cwd=clone)
    assert await status(clone) == theirs() == "## HEAD (no branch)\n"


async def test_diff_is_what_git_itself_says(world: World) -> None:
    world.commit(a="1\n", b="1\n", src__c="1\n")
    assert await diff(world.root) == ""
    for name in ("a", "b", "src/c"):
        world.write(name, "2\n")
    world.git("add", "b")

    assert await diff(world.root) == world.git("diff")
    assert await diff(world.root, "") == world.git("diff")
    assert await diff(world.root, "src") == await diff(world.root, "./src/c") == world.git("diff", "--", "src")
    assert await diff(world.root, "none") == ""


async def test_a_run_below_the_top_sees_its_own_folder_only(world: World) -> None:
    world.commit(a="1\n", src__c="1\n")
    world.write("a", "2\n")
    world.write("src/c", "2\n")

    assert await status(world.root / "src") == "## main\n M src/c\n"
    assert await diff(world.root / "src") == world.git("diff", "--relative", cwd=world.root / "src")
    assert "a/a" not in await diff(world.root / "src")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("../a", "path contains .."),
        ("src/../../a", "path contains .."),
        ("/etc", "path must be relative"),
        ("a\0b", "path contains a null character"),
        ("\ud800", "path is not valid Unicode"),
        ("x" * 5000, "path is too long"),
    ],
)
async def test_a_path_filter_does_not_lead_out(world: World, path: str, message: str) -> None:
    world.commit(a="1\n")
    assert await refusal(workbench.git_diff(str(world.root), path)) == message


@pytest.mark.parametrize(
    "path", ["--output=pwned", "--no-index", "-p", "--", ":/", ":(top)", ":!none", ":(glob)**", "*", "?", "[a]"]
)
async def test_a_path_filter_is_neither_an_option_nor_magic(world: World, path: str) -> None:
    world.commit(a="1\n", src__c="1\n")
    world.write("a", "2\n")
    before = sorted(entry.name for entry in world.root.iterdir())

    assert await diff(world.root, path) == ""
    assert sorted(entry.name for entry in world.root.iterdir()) == before


async def test_a_file_with_a_strange_name_can_be_asked_for(world: World) -> None:
    for name in ("--output=x", ":(top)", "*"):
        world.write(name, "1\n")
    world.commit(a="1\n")
    for name in ("--output=x", ":(top)", "*"):
        world.write(name, "2\n")
        assert (await diff(world.root, name)).count("diff --git") == 1


async def test_nothing_that_a_hostile_repository_names_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_own_configuration(monkeypatch, tmp_path / "home")
    root = repositories.repository(tmp_path / "workspace", {"a": "1\n", "b": "1\n"})
    trap = repositories.Trap(tmp_path / "trap")
    repositories.arm(root, trap.program)
    repositories.make_partial(root, trap.program)
    for name, value in {
        "core.worktree": "/",
        "branch.main.remote": "origin",
        "branch.main.merge": "refs/heads/main",
        "status.submoduleSummary": "true",
        "submodule.recurse": "true",
        "diff.submodule": "log",
        "interactive.diffFilter": str(trap.program),
        "pager.status": str(trap.program),
        "pager.diff": str(trap.program),
        "pager.for-each-ref": str(trap.program),
        "alias.status": f"!{trap.program}",
        "gpg.program": str(trap.program),
    }.items():
        repositories.git(root, "config", name, value)
    (root / "a").write_text("2\n")
    before = repositories.insides(root)
    trap.reset()

    assert "\n M a\n" in await status(root)
    assert "-1\n+2\n" in await diff(root)
    assert trap.sprung == ""
    assert repositories.insides(root) == before


async def test_a_link_in_the_work_tree_shows_its_target_and_not_what_lies_there(world: World, tmp_path: Path) -> None:
    world.commit(a="1\n", src__c="1\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "c").write_text("what lies outside\n")
    (world.root / "a").unlink()
    (world.root / "a").symlink_to(outside / "c")
    (world.root / "src" / "c").unlink()
    (world.root / "src").rmdir()
    (world.root / "src").symlink_to(outside)

    for path in (None, "a", "src", "src/c"):
        assert "what lies outside" not in await diff(world.root, path)


async def test_files_of_secrets_are_left_out_of_a_diff_and_named(world: World) -> None:
    world.write(".env", "KEY=one\n")
    world.commit(a="1\n")
    world.write(".env", "KEY=two\n")
    world.write("a", "2\n")

    text = await diff(world.root)

    assert "KEY" not in text
    assert "+2\n" in text
    assert text.endswith("# left out, because it may hold secrets: '.env'\n")
    assert await refusal(workbench.git_diff(str(world.root), ".env")) == "path may hold secrets"


async def test_a_long_answer_is_cut_at_a_character(world: World) -> None:
    world.commit(a="1\n", b="")
    world.write("a", "€" * 1_000_000 + "\n")
    cut = await workbench.git_diff(str(world.root))
    assert cut.truncated
    assert repository.OUTPUT_LIMIT - 3 < len(cut.stdout.encode()) <= repository.OUTPUT_LIMIT
    assert "\ufffd" not in cut.stdout

    for number in range(6000):
        (world.root / f"{number:0100}").touch()
    listed = await workbench.git_status(str(world.root))
    assert listed.truncated
    assert len(listed.stdout) <= repository.OUTPUT_LIMIT + len("## main\n")


async def test_names_and_content_that_are_no_text_can_be_told(world: World) -> None:
    name = os.fsdecode(b"\xff\xfe")
    world.write(name, "1\n")
    world.commit(a="1\n")
    (world.root / name).write_bytes(b"\xe4\n")
    for result in (await workbench.git_status(str(world.root)), await workbench.git_diff(str(world.root))):
        assert msgspec.json.decode(msgspec.json.encode(result), type=repository.GitResult) == result


async def test_where_there_is_no_repository_is_told(tmp_path: Path) -> None:
    for ask in (workbench.git_status, workbench.git_diff):
        assert await refusal(ask(str(tmp_path))) == "not a git repository"
        assert await refusal(ask(str(tmp_path / "gone"))) == "the run's cwd cannot be opened"


async def test_a_pointer_to_a_strangers_repository_is_refused(world: World, tmp_path: Path) -> None:
    world.commit(a="1\n")
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / ".git").write_text(f"gitdir: {world.root}/.git\n")
    (stranger / "a").write_text("2\n")
    for ask in (workbench.git_status, workbench.git_diff):
        assert "does not know this workspace" in await refusal(ask(str(stranger)))
