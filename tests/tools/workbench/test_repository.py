"""Git's own words about the run's folder, and nothing run that a repository names."""

import asyncio
import os
from collections.abc import Awaitable
from pathlib import Path

import msgspec
import pytest
from tests.tools.git import repositories
from tests.tools.git.git_world import GitSandbox, isolate_git_configuration

from switchtower.tools import remote_ops
from switchtower.tools.remote_ops import shell


@pytest.fixture
def git_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitSandbox:
    isolate_git_configuration(monkeypatch, tmp_path / "home")
    return GitSandbox(tmp_path)


async def get_refusal(work: Awaitable[object]) -> str:
    async with asyncio.timeout(60):
        with pytest.raises(remote_ops.OperationRefused) as caught:
            await work
    return caught.value.message


async def read_status(cwd: Path) -> str:
    result = await remote_ops.read_git_status(str(cwd))
    assert not result.truncated
    return result.stdout


async def diff(cwd: Path, path: str | None = None) -> str:
    result = await remote_ops.read_git_diff(str(cwd), path)
    assert not result.truncated
    return result.stdout


def read_git_status(git_sandbox: GitSandbox) -> str:
    return git_sandbox.run_git("status", "--porcelain=v1", "-b")


async def test_status_is_what_git_itself_says(git_sandbox: GitSandbox) -> None:
    assert await read_status(git_sandbox.root) == read_git_status(git_sandbox) == "## No commits yet on main\n"
    git_sandbox.commit(a="1\n", b="1\n", c="1\n", src__d="1\n")
    assert await read_status(git_sandbox.root) == read_git_status(git_sandbox) == "## main\n"
    git_sandbox.write("a", "2\n")
    (git_sandbox.root / "b").unlink()
    git_sandbox.run_git("mv", "c", "moved")
    git_sandbox.write("src/grün", "1\n")
    git_sandbox.write("with space", "1\n")
    git_sandbox.run_git("add", "src")

    git_sandbox.run_git("config", "core.quotePath", "false")
    assert await read_status(git_sandbox.root) == read_git_status(git_sandbox)
    assert msgspec.to_builtins(await remote_ops.read_git_status(str(git_sandbox.root))) == {
        "stdout": read_git_status(git_sandbox),
        "truncated": False,
    }


async def test_status_tells_the_upstream_as_git_does(git_sandbox: GitSandbox, tmp_path: Path) -> None:
    git_sandbox.commit(a="1\n")
    git_sandbox.run_git("clone", "-q", str(git_sandbox.root), str(tmp_path / "clone"))
    clone = tmp_path / "clone"

    def theirs() -> str:
        return git_sandbox.run_git("status", "--porcelain=v1", "-b", cwd=clone)

    assert await read_status(clone) == theirs() == "## main...origin/main\n"
    git_sandbox.run_git("commit", "-q", "--allow-empty", "-m", "ours", cwd=clone)
    git_sandbox.run_git("commit", "-q", "--allow-empty", "-m", "theirs")
    git_sandbox.run_git("fetch", "-q", cwd=clone)
    assert await read_status(clone) == theirs() == "## main...origin/main [ahead 1, behind 1]\n"
    git_sandbox.run_git("update-ref", "-d", "refs/remotes/origin/main", cwd=clone)
    assert await read_status(clone) == theirs() == "## main...origin/main [gone]\n"
    git_sandbox.run_git("checkout", "-q", "--detach", cwd=clone)
    assert await read_status(clone) == theirs() == "## HEAD (no branch)\n"


async def test_diff_is_what_git_itself_says(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n", b="1\n", src__c="1\n")
    assert await diff(git_sandbox.root) == ""
    for name in ("a", "b", "src/c"):
        git_sandbox.write(name, "2\n")
    git_sandbox.run_git("add", "b")

    assert await diff(git_sandbox.root) == git_sandbox.run_git("diff")
    assert await diff(git_sandbox.root, "") == git_sandbox.run_git("diff")
    assert (
        await diff(git_sandbox.root, "src") == await diff(git_sandbox.root, "./src/c") == git_sandbox.run_git("diff", "--", "src")
    )
    assert await diff(git_sandbox.root, "none") == ""


async def test_a_run_below_the_top_sees_its_own_folder_only(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n", src__c="1\n")
    git_sandbox.write("a", "2\n")
    git_sandbox.write("src/c", "2\n")

    assert await read_status(git_sandbox.root / "src") == "## main\n M src/c\n"
    assert await diff(git_sandbox.root / "src") == git_sandbox.run_git("diff", "--relative", cwd=git_sandbox.root / "src")
    assert "a/a" not in await diff(git_sandbox.root / "src")


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
async def test_a_path_filter_does_not_lead_out(git_sandbox: GitSandbox, path: str, message: str) -> None:
    git_sandbox.commit(a="1\n")
    assert await get_refusal(remote_ops.read_git_diff(str(git_sandbox.root), path)) == message


@pytest.mark.parametrize(
    "path", ["--output=pwned", "--no-index", "-p", "--", ":/", ":(top)", ":!none", ":(glob)**", "*", "?", "[a]"]
)
async def test_a_path_filter_is_neither_an_option_nor_magic(git_sandbox: GitSandbox, path: str) -> None:
    git_sandbox.commit(a="1\n", src__c="1\n")
    git_sandbox.write("a", "2\n")
    before = sorted(entry.name for entry in git_sandbox.root.iterdir())

    assert await diff(git_sandbox.root, path) == ""
    assert sorted(entry.name for entry in git_sandbox.root.iterdir()) == before


async def test_a_file_with_a_strange_name_can_be_asked_for(git_sandbox: GitSandbox) -> None:
    for name in ("--output=x", ":(top)", "*"):
        git_sandbox.write(name, "1\n")
    git_sandbox.commit(a="1\n")
    for name in ("--output=x", ":(top)", "*"):
        git_sandbox.write(name, "2\n")
        assert (await diff(git_sandbox.root, name)).count("diff --git") == 1


async def test_nothing_that_a_hostile_repository_names_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate_git_configuration(monkeypatch, tmp_path / "home")
    root = repositories.make_repository(tmp_path / "workspace", {"a": "1\n", "b": "1\n"})
    trap = repositories.GitTrap(tmp_path / "trap")
    repositories.arm_traps(root, trap.program)
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
        repositories.run_git(root, "config", name, value)
    (root / "a").write_text("2\n")
    before = repositories.read_git_folder(root)
    trap.reset()

    assert "\n M a\n" in await read_status(root)
    assert "-1\n+2\n" in await diff(root)
    assert trap.sprung == ""
    assert repositories.read_git_folder(root) == before


async def test_a_link_in_the_work_tree_shows_its_target_and_not_what_lies_there(git_sandbox: GitSandbox, tmp_path: Path) -> None:
    git_sandbox.commit(a="1\n", src__c="1\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "c").write_text("what lies outside\n")
    (git_sandbox.root / "a").unlink()
    (git_sandbox.root / "a").symlink_to(outside / "c")
    (git_sandbox.root / "src" / "c").unlink()
    (git_sandbox.root / "src").rmdir()
    (git_sandbox.root / "src").symlink_to(outside)

    for path in (None, "a", "src", "src/c"):
        assert "what lies outside" not in await diff(git_sandbox.root, path)


async def test_files_of_secrets_are_left_out_of_a_diff_and_named(git_sandbox: GitSandbox) -> None:
    git_sandbox.write(".env", "KEY=one\n")
    git_sandbox.commit(a="1\n")
    git_sandbox.write(".env", "KEY=two\n")
    git_sandbox.write("a", "2\n")

    text = await diff(git_sandbox.root)

    assert "KEY" not in text
    assert "+2\n" in text
    assert text.endswith("# left out, because it may hold secrets: '.env'\n")
    assert await get_refusal(remote_ops.read_git_diff(str(git_sandbox.root), ".env")) == "path may hold secrets"


async def test_a_long_answer_is_cut_at_a_character(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n", b="")
    git_sandbox.write("a", "€" * 1_000_000 + "\n")
    cut = await remote_ops.read_git_diff(str(git_sandbox.root))
    assert cut.truncated
    assert shell.OUTPUT_LIMIT - 3 < len(cut.stdout.encode()) <= shell.OUTPUT_LIMIT
    assert "\ufffd" not in cut.stdout

    for number in range(6000):
        (git_sandbox.root / f"{number:0100}").touch()
    listed = await remote_ops.read_git_status(str(git_sandbox.root))
    assert listed.truncated
    assert len(listed.stdout) <= shell.OUTPUT_LIMIT + len("## main\n")


async def test_names_and_content_that_are_no_text_can_be_told(git_sandbox: GitSandbox) -> None:
    name = os.fsdecode(b"\xff\xfe")
    git_sandbox.write(name, "1\n")
    git_sandbox.commit(a="1\n")
    (git_sandbox.root / name).write_bytes(b"\xe4\n")
    for result in (
        await remote_ops.read_git_status(str(git_sandbox.root)),
        await remote_ops.read_git_diff(str(git_sandbox.root)),
    ):
        assert msgspec.json.decode(msgspec.json.encode(result), type=shell.GitResult) == result


async def test_where_there_is_no_repository_is_told(tmp_path: Path) -> None:
    for ask in (remote_ops.read_git_status, remote_ops.read_git_diff):
        assert await get_refusal(ask(str(tmp_path))) == "not a git repository"
        assert await get_refusal(ask(str(tmp_path / "gone"))) == "the run's cwd cannot be opened"


async def test_a_pointer_to_a_strangers_repository_is_refused(git_sandbox: GitSandbox, tmp_path: Path) -> None:
    git_sandbox.commit(a="1\n")
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / ".git").write_text(f"gitdir: {git_sandbox.root}/.git\n")
    (stranger / "a").write_text("2\n")
    for ask in (remote_ops.read_git_status, remote_ops.read_git_diff):
        assert "does not know this workspace" in await get_refusal(ask(str(stranger)))
