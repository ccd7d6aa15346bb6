"""A commit holds what was asked for and nothing else; the repository's hooks have their say."""

import asyncio
import os
import pwd
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from tests.tools.git.git_world import World, without_own_configuration

from switchtower.tools import outcome, previews, registry
from switchtower.tools.git import tools
from switchtower.tools.running import orphans
from switchtower.tools.sandboxes import sandbox


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    without_own_configuration(monkeypatch, tmp_path / "home")
    return World(tmp_path)


def context_of(root: Path, **options: Any) -> outcome.ToolContext:
    return outcome.ToolContext(workspace=str(root), run_id=f"run_{uuid4().hex}", call_id="call_1", **options)


async def commit(root: Path, message: str = "ours", **args: Any) -> outcome.ToolOutput:
    return await registry.core_toolbox().execute("git_commit", {"message": message, **args}, context_of(root))


async def preview(root: Path, **args: Any) -> dict[str, object]:
    return await previews.of("git_commit", {"message": "ours", **args}, context_of(root))


def hook(world: World, name: str, script: str) -> None:
    path = world.root / ".git/hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def committed(world: World) -> list[str]:
    return world.git("show", "--format=", "--name-status", "--no-renames", "HEAD").splitlines()


async def test_named_paths_are_committed_as_they_are_now(world: World) -> None:
    world.commit(a="1\n", b="1\n", gone="1\n", src__c="1\n")
    for path in ("a", "b", "src/c", "src/new", "other"):
        world.write(path, "2\n")
    (world.root / "gone").unlink()
    world.git("add", "other")

    output = await commit(world.root, "the subject\n\nand a body", paths=["a", "src", "gone", f"{world.root}/src/new"])

    assert not output.is_error, output.text
    assert "4 files changed" in output.text
    assert committed(world) == ["M\ta", "D\tgone", "M\tsrc/c", "A\tsrc/new"]
    assert world.git("log", "-1", "--format=%B").strip() == "the subject\n\nand a body"
    assert sorted(world.git("status", "--short").splitlines()) == [" M b", "A  other"]


async def test_without_paths_what_is_staged_is_committed(world: World) -> None:
    world.commit(a="1\n", b="1\n")
    world.write("a", "2\n")
    world.write("b", "2\n")
    world.git("add", "a")

    assert not (await commit(world.root)).is_error
    assert committed(world) == ["M\ta"]


async def test_a_first_commit_can_be_made(world: World) -> None:
    world.write("a", "1\n")

    assert (await preview(world.root, paths=["."]))["files"] == 1
    assert not (await commit(world.root, paths=["."])).is_error
    assert world.subjects() == ["ours"]


async def test_nothing_to_commit_is_an_error_in_gits_own_words(world: World) -> None:
    world.commit(a="1\n")

    for args in ({}, {"paths": ["a"]}):
        output = await commit(world.root, **args)
        assert output.error is not None
        assert output.error.type == "EXEC_NON_ZERO_EXIT"
        assert "nothing to commit" in output.text
    missing = await commit(world.root, paths=["nowhere"])
    assert "did not match any files" in missing.text
    assert missing.is_error


@pytest.mark.parametrize(
    "message", ["-m evil", "--amend", "$(touch ran)", "'; touch ran #", "ümläut ✓", "# no comment", "a\nb\n"]
)
async def test_a_message_is_only_a_message(world: World, message: str) -> None:
    world.commit(a="1\n")
    world.write("a", "2\n")

    assert not (await commit(world.root, message, paths=["a"])).is_error
    assert len(world.subjects()) == 2
    assert world.git("log", "-1", "--format=%B").strip() == message.strip()
    assert not (world.root / "ran").exists()


@pytest.mark.parametrize("path", ["-A", "--pathspec-from-file=x", ":(top)a", "*", "[a]", "a\nb", ":!a"])
async def test_a_path_is_only_a_path(world: World, path: str) -> None:
    world.commit(a="1\n")
    world.write("a", "2\n")
    world.write(path, "1\n")

    output = await commit(world.root, paths=[path])

    assert not output.is_error, output.text
    assert committed(world) == world.git("show", "--format=", "--name-status", "HEAD").splitlines()
    assert len(committed(world)) == 1
    assert world.git("status", "--short") == " M a\n"


async def test_files_of_secrets_are_never_added(world: World) -> None:
    world.commit(a="1\n")
    for path in ("a", ".env", "deep/server.key", "deep/b"):
        world.write(path, "hush\n")

    output = await commit(world.root, paths=["."])

    assert not output.is_error, output.text
    assert committed(world) == ["M\ta", "A\tdeep/b"]
    assert output.text.endswith("[left out, because they may hold secrets: `.env`, `deep/server.key`]")
    assert (await commit(world.root, paths=[".env"])).is_error
    assert (await commit(world.root, paths=["deep"])).is_error
    assert len(world.subjects()) == 2


async def test_hooks_run_and_may_refuse(world: World) -> None:
    world.commit(a="1\n")
    world.write("a", "2\n")
    hook(world, "pre-commit", "echo looked at it; exit 1")

    refused = await commit(world.root, paths=["a"])
    assert refused.error is not None
    assert refused.text == "looked at it\n[`git commit` ended with exit code 1]"
    assert len(world.subjects()) == 1

    hook(world, "pre-commit", "echo fine")
    assert "fine" in (await commit(world.root, paths=["a"])).text
    assert len(world.subjects()) == 2


async def test_what_a_hook_leaves_in_the_background_ends_with_the_run(world: World) -> None:
    world.commit(a="1\n")
    world.write("a", "2\n")
    hook(world, "post-commit", "sleep 1000 > /dev/null 2>&1 &")
    toolbox, context = registry.core_toolbox(), context_of(world.root)
    await toolbox.execute("git_commit", {"message": "x", "paths": ["a"]}, context)
    assert orphans.any_marked(context.run_id)

    await toolbox.end_run(context.run_id)

    assert not orphans.any_marked(context.run_id)


async def test_a_cancelled_commit_ends_its_hook(world: World) -> None:
    world.commit(a="1\n")
    world.write("a", "2\n")
    hook(world, "pre-commit", "touch started; sleep 1000")
    context = context_of(world.root)
    args = {"message": "x", "paths": ["a"]}
    committing = asyncio.create_task(registry.core_toolbox().execute("git_commit", args, context))
    while not (world.root / "started").exists():
        assert not committing.done()
        await asyncio.sleep(0.01)

    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing

    assert not orphans.any_marked(context.run_id)
    assert len(world.subjects()) == 1


async def test_progress_is_told_while_a_hook_works(world: World) -> None:
    world.commit(a="1\n")
    world.write("a", "2\n")
    hook(world, "pre-commit", "echo testing; while [ ! -e go ]; do sleep 0.05; done")
    told: list[str] = []

    async def progress(text: str) -> None:
        told.append(text)
        world.write("go", "")

    args = {"message": "x", "paths": ["a"]}
    output = await registry.core_toolbox().execute("git_commit", args, context_of(world.root, progress=progress))

    assert not output.is_error, output.text
    assert told == ["testing\n"]


async def test_a_merge_is_committed_whole(world: World) -> None:
    world.commit(a="1\n", b="1\n")
    world.git("checkout", "-q", "-b", "other")
    world.commit(a="2\n", b="2\n")
    world.git("checkout", "-q", "main")
    world.commit(a="3\n")
    world.git("merge", "other", check=False)
    world.write("a", "merged\n")

    output = await commit(world.root, paths=["a"])

    assert not output.is_error, output.text
    assert len(world.git("log", "-1", "--format=%P").split()) == 2
    assert world.git("show", "HEAD:b") == "2\n"


async def test_a_daemon_that_git_itself_started_commits_to_the_workspaces_own_repository(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "second").mkdir()
    other = World(tmp_path / "second")
    world.commit(a="1\n")
    world.write("a", "2\n")
    monkeypatch.setenv("GIT_DIR", str(other.root / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.root / ".git/index"))

    output = await commit(world.root, paths=["a"])

    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert not output.is_error, output.text
    assert world.subjects() == ["ours", "a commit"]
    assert other.git("rev-parse", "--verify", "--quiet", "HEAD", check=False) == "", "nothing went there"


async def test_a_commit_runs_in_the_sandbox_of_its_session(world: World) -> None:
    if (reason := sandbox.probe("bubblewrap")) is not None:
        pytest.skip(reason)
    world.commit(a="1\n")
    world.write("a", "2\n")
    # A sandbox has a /tmp of its own, where neither this test's home nor a file that a hook makes would be seen.
    for name, value in (("user.name", "Tester"), ("user.email", "tester@example.invalid")):
        world.git("config", name, value)
    outside = Path(pwd.getpwuid(os.getuid()).pw_dir) / f"tower-test-{uuid4().hex}"
    hook(world, "pre-commit", f"touch {outside}; echo hooked")
    context = context_of(world.root, sandbox="bubblewrap")
    try:
        output = await registry.core_toolbox().execute("git_commit", {"message": "x", "paths": ["a"]}, context)
        assert not outside.exists()
    finally:
        outside.unlink(missing_ok=True)

    assert not output.is_error, output.text
    assert "hooked" in output.text
    assert len(world.subjects()) == 2


async def test_a_commit_in_a_worktree_works_in_a_sandbox_too(world: World) -> None:
    """What it writes lies in the repository, outside the workspace; the rest of the repository stays closed."""
    if (reason := sandbox.probe("bubblewrap")) is not None:
        pytest.skip(reason)
    world.commit(a="1\n")
    for name, value in (("user.name", "Tester"), ("user.email", "tester@example.invalid")):
        world.git("config", name, value)
    hook(world, "pre-commit", f"echo x >> {world.root}/a; echo hooked")
    tree = world.root.with_name("tree")
    world.git("worktree", "add", "-q", "-b", "aside", str(tree))
    (tree / "a").write_text("2\n")
    (tree / "new").write_text("1\n")

    context = context_of(tree, sandbox="bubblewrap")
    output = await registry.core_toolbox().execute("git_commit", {"message": "from aside", "paths": ["."]}, context)

    assert not output.is_error, output.text
    assert "hooked" in output.text
    assert world.git("show", "--format=%s", "--name-status", "aside").split("\n")[0] == "from aside"
    assert world.git("show", "--format=", "--name-only", "aside").split() == ["a", "new"]
    assert world.git("status", "--porcelain", cwd=tree) == ""
    assert (world.root / "a").read_text() == "1\n", "the other working tree was out of reach"
    assert world.subjects() == ["a commit"]


async def test_a_sandbox_that_cannot_be_had_is_refused(world: World) -> None:
    world.commit(a="1\n")
    world.write("a", "2\n")
    context = context_of(world.root, sandbox="modal")

    output = await registry.core_toolbox().execute("git_commit", {"message": "x", "paths": ["a"]}, context)

    assert output.error is not None
    assert output.error.type == "SANDBOX_UNREACHABLE"
    assert len(world.subjects()) == 1


async def test_names_in_a_preview_cannot_pass_for_others_and_can_be_written_down(world: World) -> None:
    world.commit(a="1\n")
    names = [b"exe\xe2\x80\xaetxt.sh", b"two\nlines", b"caf\xe9", "na\u200cme".encode()]
    for name in (*names, b".env\xff\n"):
        os.close(os.open(os.fsencode(world.root) + b"/" + name, os.O_CREAT))

    seen = await preview(world.root, paths=["."])

    *listed, tree = str(seen["diff"]).split("\n")
    assert sorted(listed) == ["caf\\xe9", "exe\\u202etxt.sh", "na\u200cme", "two\\nlines"]
    assert tree.startswith("[tree ")
    assert seen["left_out"] == [".env\\xff\\n"]
    msgspec.json.encode(seen)


async def test_the_preview_counts_what_would_be_committed_and_leaves_no_trace(world: World) -> None:
    world.commit(a="1\n2\n3\n", b="1\n", staged="1\n")
    world.write("a", "1\nzwei\n3\n4\n")
    world.write("new", "1\n")
    world.write(".env", "hush\n")
    world.write("staged", "2\n")
    world.git("add", "staged")
    objects = sorted(path for path in (world.root / ".git").rglob("*"))

    seen = await preview(world.root, paths=["a", "new", "."])
    only_staged = await preview(world.root)

    tree = str(seen["diff"]).splitlines()[-1]
    assert {**seen, "diff": None} == {"files": 3, "insertions": 4, "deletions": 2, "diff": None, "left_out": [".env"]}
    assert str(seen["diff"]).splitlines()[:-1] == ["a", "new", "staged"]
    assert {**only_staged, "diff": None} == {"files": 1, "insertions": 1, "deletions": 1, "diff": None}
    assert sorted(path for path in (world.root / ".git").rglob("*")) == objects

    assert not (await commit(world.root, paths=["."])).is_error
    assert tree == f"[tree {world.git('rev-parse', 'HEAD^{tree}').strip()}]", "what was shown is what was committed"


async def test_the_preview_of_some_paths_leaves_out_what_else_is_staged(world: World) -> None:
    world.commit(a="1\n", b="1\n")
    world.write("a", "2\n")
    world.write("b", "2\n")
    world.git("add", "b")

    seen = await preview(world.root, paths=["a"])

    assert not (await commit(world.root, paths=["a"])).is_error
    assert seen["files"] == 1
    assert str(seen["diff"]) == f"a\n[tree {world.git('rev-parse', 'HEAD^{tree}').strip()}]"


async def test_the_preview_changes_with_what_would_be_committed(world: World) -> None:
    world.commit(a="1\n")
    world.write("a", "2\n")
    first = await preview(world.root, paths=["a"])
    world.write("a", "3\n")

    assert (await preview(world.root, paths=["a"]))["diff"] != first["diff"]


async def test_the_preview_runs_nothing_that_the_repository_names(world: World) -> None:
    world.commit(a="1\n", **{".gitattributes": "* filter=evil diff=evil\n"})
    for name in ("filter.evil.clean", "core.fsmonitor", "diff.evil.textconv", "diff.external"):
        world.git("config", name, str(world.script))
    world.write("a", "2\n")

    assert (await preview(world.root, paths=["."]))["files"] == 1
    assert not world.ran.exists()


async def test_the_preview_outside_a_repository_tells_the_problem(tmp_path: Path) -> None:
    assert "not in a git repository" in str((await preview(tmp_path))["problem"])


def test_looking_is_a_read_and_committing_executes() -> None:
    effects = {tool.name: tool.effect for tool in (tools.GitStatus(), tools.GitDiff(), tools.GitCommit())}

    assert effects == {"git_status": "read", "git_diff": "read", "git_commit": "execute"}
