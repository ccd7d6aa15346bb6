"""A commit holds what was asked for and nothing else; the repository's hooks have their say."""

import asyncio
import os
import pwd
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from tests.tools.git.git_world import GitSandbox, isolate_git_configuration

from switchtower.tools import outcome, registry
from switchtower.tools.git import tools
from switchtower.tools.processes import orphans
from switchtower.tools.sandboxes import sandbox


@pytest.fixture
def git_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitSandbox:
    isolate_git_configuration(monkeypatch, tmp_path / "home")
    return GitSandbox(tmp_path)


def make_context(root: Path, **options: Any) -> outcome.ToolContext:
    return outcome.ToolContext(workspace=str(root), run_id=f"run_{uuid4().hex}", call_id="call_1", **options)


async def commit(root: Path, message: str = "ours", **args: Any) -> outcome.ToolOutput:
    return await registry.make_core_toolbox().execute("git_commit", {"message": message, **args}, make_context(root))


async def preview(root: Path, **args: Any) -> dict[str, object]:
    return await registry.make_preview("git_commit", {"message": "ours", **args}, make_context(root))


def write_hook(git_sandbox: GitSandbox, name: str, script: str) -> None:
    path = git_sandbox.root / ".git/hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def list_committed(git_sandbox: GitSandbox) -> list[str]:
    return git_sandbox.run_git("show", "--format=", "--name-status", "--no-renames", "HEAD").splitlines()


async def test_named_paths_are_committed_as_they_are_now(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n", b="1\n", gone="1\n", src__c="1\n")
    for path in ("a", "b", "src/c", "src/new", "other"):
        git_sandbox.write(path, "2\n")
    (git_sandbox.root / "gone").unlink()
    git_sandbox.run_git("add", "other")

    output = await commit(
        git_sandbox.root, "the subject\n\nand a body", paths=["a", "src", "gone", f"{git_sandbox.root}/src/new"]
    )

    assert not output.is_error, output.text
    assert "4 files changed" in output.text
    assert list_committed(git_sandbox) == ["M\ta", "D\tgone", "M\tsrc/c", "A\tsrc/new"]
    assert git_sandbox.run_git("log", "-1", "--format=%B").strip() == "the subject\n\nand a body"
    assert sorted(git_sandbox.run_git("status", "--short").splitlines()) == [" M b", "A  other"]


async def test_without_paths_what_is_staged_is_committed(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n", b="1\n")
    git_sandbox.write("a", "2\n")
    git_sandbox.write("b", "2\n")
    git_sandbox.run_git("add", "a")

    assert not (await commit(git_sandbox.root)).is_error
    assert list_committed(git_sandbox) == ["M\ta"]


async def test_a_first_commit_can_be_made(git_sandbox: GitSandbox) -> None:
    git_sandbox.write("a", "1\n")

    assert (await preview(git_sandbox.root, paths=["."]))["files"] == 1
    assert not (await commit(git_sandbox.root, paths=["."])).is_error
    assert git_sandbox.list_subjects() == ["ours"]


async def test_nothing_to_commit_is_an_error_in_gits_own_words(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n")

    for args in ({}, {"paths": ["a"]}):
        output = await commit(git_sandbox.root, **args)
        assert output.error is not None
        assert output.error.type == "EXEC_NON_ZERO_EXIT"
        assert "nothing to commit" in output.text
    missing = await commit(git_sandbox.root, paths=["nowhere"])
    assert "did not match any files" in missing.text
    assert missing.is_error


@pytest.mark.parametrize(
    "message", ["-m evil", "--amend", "$(touch ran)", "'; touch ran #", "ümläut ✓", "# no comment", "a\nb\n"]
)
async def test_a_message_is_only_a_message(git_sandbox: GitSandbox, message: str) -> None:
    git_sandbox.commit(a="1\n")
    git_sandbox.write("a", "2\n")

    assert not (await commit(git_sandbox.root, message, paths=["a"])).is_error
    assert len(git_sandbox.list_subjects()) == 2
    assert git_sandbox.run_git("log", "-1", "--format=%B").strip() == message.strip()
    assert not (git_sandbox.root / "ran").exists()


@pytest.mark.parametrize("path", ["-A", "--pathspec-from-file=x", ":(top)a", "*", "[a]", "a\nb", ":!a"])
async def test_a_path_is_only_a_path(git_sandbox: GitSandbox, path: str) -> None:
    git_sandbox.commit(a="1\n")
    git_sandbox.write("a", "2\n")
    git_sandbox.write(path, "1\n")

    output = await commit(git_sandbox.root, paths=[path])

    assert not output.is_error, output.text
    assert list_committed(git_sandbox) == git_sandbox.run_git("show", "--format=", "--name-status", "HEAD").splitlines()
    assert len(list_committed(git_sandbox)) == 1
    assert git_sandbox.run_git("status", "--short") == " M a\n"


async def test_files_of_secrets_are_never_added(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n")
    for path in ("a", ".env", "deep/server.key", "deep/b"):
        git_sandbox.write(path, "hush\n")

    output = await commit(git_sandbox.root, paths=["."])

    assert not output.is_error, output.text
    assert list_committed(git_sandbox) == ["M\ta", "A\tdeep/b"]
    assert output.text.endswith("[left out, because they may hold secrets: `.env`, `deep/server.key`]")
    assert (await commit(git_sandbox.root, paths=[".env"])).is_error
    assert (await commit(git_sandbox.root, paths=["deep"])).is_error
    assert len(git_sandbox.list_subjects()) == 2


async def test_hooks_run_and_may_refuse(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n")
    git_sandbox.write("a", "2\n")
    write_hook(git_sandbox, "pre-commit", "echo looked at it; exit 1")

    refused = await commit(git_sandbox.root, paths=["a"])
    assert refused.error is not None
    assert refused.text == "looked at it\n[`git commit` ended with exit code 1]"
    assert len(git_sandbox.list_subjects()) == 1

    write_hook(git_sandbox, "pre-commit", "echo fine")
    assert "fine" in (await commit(git_sandbox.root, paths=["a"])).text
    assert len(git_sandbox.list_subjects()) == 2


async def test_what_a_hook_leaves_in_the_background_ends_with_the_run(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n")
    git_sandbox.write("a", "2\n")
    write_hook(git_sandbox, "post-commit", "sleep 1000 > /dev/null 2>&1 &")
    toolbox, context = registry.make_core_toolbox(), make_context(git_sandbox.root)
    await toolbox.execute("git_commit", {"message": "x", "paths": ["a"]}, context)
    assert orphans.has_marked_processes(context.run_id)

    await toolbox.end_run(context.run_id)

    assert not orphans.has_marked_processes(context.run_id)


async def test_a_cancelled_commit_ends_its_hook(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n")
    git_sandbox.write("a", "2\n")
    write_hook(git_sandbox, "pre-commit", "touch started; sleep 1000")
    context = make_context(git_sandbox.root)
    args = {"message": "x", "paths": ["a"]}
    committing = asyncio.create_task(registry.make_core_toolbox().execute("git_commit", args, context))
    while not (git_sandbox.root / "started").exists():
        assert not committing.done()
        await asyncio.sleep(0.01)

    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing

    assert not orphans.has_marked_processes(context.run_id)
    assert len(git_sandbox.list_subjects()) == 1


async def test_progress_is_told_while_a_hook_works(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n")
    git_sandbox.write("a", "2\n")
    write_hook(git_sandbox, "pre-commit", "echo testing; while [ ! -e go ]; do sleep 0.05; done")
    told: list[str] = []

    async def progress(text: str) -> None:
        told.append(text)
        git_sandbox.write("go", "")

    args = {"message": "x", "paths": ["a"]}
    output = await registry.make_core_toolbox().execute("git_commit", args, make_context(git_sandbox.root, progress=progress))

    assert not output.is_error, output.text
    assert told == ["testing\n"]


async def test_a_merge_is_committed_whole(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n", b="1\n")
    git_sandbox.run_git("checkout", "-q", "-b", "other")
    git_sandbox.commit(a="2\n", b="2\n")
    git_sandbox.run_git("checkout", "-q", "main")
    git_sandbox.commit(a="3\n")
    git_sandbox.run_git("merge", "other", check=False)
    git_sandbox.write("a", "merged\n")

    output = await commit(git_sandbox.root, paths=["a"])

    assert not output.is_error, output.text
    assert len(git_sandbox.run_git("log", "-1", "--format=%P").split()) == 2
    assert git_sandbox.run_git("show", "HEAD:b") == "2\n"


async def test_a_daemon_that_git_itself_started_commits_to_the_workspaces_own_repository(
    git_sandbox: GitSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "second").mkdir()
    other = GitSandbox(tmp_path / "second")
    git_sandbox.commit(a="1\n")
    git_sandbox.write("a", "2\n")
    monkeypatch.setenv("GIT_DIR", str(other.root / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.root / ".git/index"))

    output = await commit(git_sandbox.root, paths=["a"])

    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert not output.is_error, output.text
    assert git_sandbox.list_subjects() == ["ours", "a commit"]
    assert other.run_git("rev-parse", "--verify", "--quiet", "HEAD", check=False) == "", "nothing went there"


async def test_a_commit_runs_in_the_sandbox_of_its_session(git_sandbox: GitSandbox) -> None:
    if (reason := sandbox.probe_sandbox("bubblewrap")) is not None:
        pytest.skip(reason)
    git_sandbox.commit(a="1\n")
    git_sandbox.write("a", "2\n")
    # A sandbox has a /tmp of its own, where neither this test's home nor a file that a hook makes would be seen.
    for name, value in (("user.name", "Tester"), ("user.email", "tester@example.invalid")):
        git_sandbox.run_git("config", name, value)
    outside = Path(pwd.getpwuid(os.getuid()).pw_dir) / f"tower-test-{uuid4().hex}"
    write_hook(git_sandbox, "pre-commit", f"touch {outside}; echo hooked")
    context = make_context(git_sandbox.root, sandbox="bubblewrap")
    try:
        output = await registry.make_core_toolbox().execute("git_commit", {"message": "x", "paths": ["a"]}, context)
        assert not outside.exists()
    finally:
        outside.unlink(missing_ok=True)

    assert not output.is_error, output.text
    assert "hooked" in output.text
    assert len(git_sandbox.list_subjects()) == 2


async def test_a_commit_in_a_worktree_works_in_a_sandbox_too(git_sandbox: GitSandbox) -> None:
    """What it writes lies in the repository, outside the workspace; the rest of the repository stays closed."""
    if (reason := sandbox.probe_sandbox("bubblewrap")) is not None:
        pytest.skip(reason)
    git_sandbox.commit(a="1\n")
    for name, value in (("user.name", "Tester"), ("user.email", "tester@example.invalid")):
        git_sandbox.run_git("config", name, value)
    write_hook(git_sandbox, "pre-commit", f"echo x >> {git_sandbox.root}/a; echo hooked")
    tree = git_sandbox.root.with_name("tree")
    git_sandbox.run_git("worktree", "add", "-q", "-b", "aside", str(tree))
    (tree / "a").write_text("2\n")
    (tree / "new").write_text("1\n")

    context = make_context(tree, sandbox="bubblewrap")
    output = await registry.make_core_toolbox().execute("git_commit", {"message": "from aside", "paths": ["."]}, context)

    assert not output.is_error, output.text
    assert "hooked" in output.text
    assert git_sandbox.run_git("show", "--format=%s", "--name-status", "aside").split("\n")[0] == "from aside"
    assert git_sandbox.run_git("show", "--format=", "--name-only", "aside").split() == ["a", "new"]
    assert git_sandbox.run_git("status", "--porcelain", cwd=tree) == ""
    assert (git_sandbox.root / "a").read_text() == "1\n", "the other working tree was out of reach"
    assert git_sandbox.list_subjects() == ["a commit"]


async def test_a_sandbox_that_cannot_be_had_is_refused(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n")
    git_sandbox.write("a", "2\n")
    context = make_context(git_sandbox.root, sandbox="modal")

    output = await registry.make_core_toolbox().execute("git_commit", {"message": "x", "paths": ["a"]}, context)

    assert output.error is not None
    assert output.error.type == "SANDBOX_UNREACHABLE"
    assert len(git_sandbox.list_subjects()) == 1


async def test_names_in_a_preview_cannot_pass_for_others_and_can_be_written_down(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n")
    names = [b"exe\xe2\x80\xaetxt.sh", b"two\nlines", b"caf\xe9", "na\u200cme".encode()]
    for name in (*names, b".env\xff\n"):
        os.close(os.open(os.fsencode(git_sandbox.root) + b"/" + name, os.O_CREAT))

    seen = await preview(git_sandbox.root, paths=["."])

    *listed, tree = str(seen["diff"]).split("\n")
    assert sorted(listed) == ["caf\\xe9", "exe\\u202etxt.sh", "na\u200cme", "two\\nlines"]
    assert tree.startswith("[tree ")
    assert seen["left_out"] == [".env\\xff\\n"]
    msgspec.json.encode(seen)


async def test_the_preview_counts_what_would_be_committed_and_leaves_no_trace(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n2\n3\n", b="1\n", staged="1\n")
    git_sandbox.write("a", "1\nzwei\n3\n4\n")
    git_sandbox.write("new", "1\n")
    git_sandbox.write(".env", "hush\n")
    git_sandbox.write("staged", "2\n")
    git_sandbox.run_git("add", "staged")
    objects = sorted(path for path in (git_sandbox.root / ".git").rglob("*"))

    seen = await preview(git_sandbox.root, paths=["a", "new", "."])
    only_staged = await preview(git_sandbox.root)

    tree = str(seen["diff"]).splitlines()[-1]
    assert {**seen, "diff": None} == {"files": 3, "insertions": 4, "deletions": 2, "diff": None, "left_out": [".env"]}
    assert str(seen["diff"]).splitlines()[:-1] == ["a", "new", "staged"]
    assert {**only_staged, "diff": None} == {"files": 1, "insertions": 1, "deletions": 1, "diff": None}
    assert sorted(path for path in (git_sandbox.root / ".git").rglob("*")) == objects

    assert not (await commit(git_sandbox.root, paths=["."])).is_error
    assert tree == f"[tree {git_sandbox.run_git('rev-parse', 'HEAD^{tree}').strip()}]", "what was shown is what was committed"


async def test_the_preview_of_some_paths_leaves_out_what_else_is_staged(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n", b="1\n")
    git_sandbox.write("a", "2\n")
    git_sandbox.write("b", "2\n")
    git_sandbox.run_git("add", "b")

    seen = await preview(git_sandbox.root, paths=["a"])

    assert not (await commit(git_sandbox.root, paths=["a"])).is_error
    assert seen["files"] == 1
    assert str(seen["diff"]) == f"a\n[tree {git_sandbox.run_git('rev-parse', 'HEAD^{tree}').strip()}]"


async def test_the_preview_changes_with_what_would_be_committed(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n")
    git_sandbox.write("a", "2\n")
    first = await preview(git_sandbox.root, paths=["a"])
    git_sandbox.write("a", "3\n")

    assert (await preview(git_sandbox.root, paths=["a"]))["diff"] != first["diff"]


async def test_the_preview_runs_nothing_that_the_repository_names(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n", **{".gitattributes": "* filter=evil diff=evil\n"})
    for name in ("filter.evil.clean", "core.fsmonitor", "diff.evil.textconv", "diff.external"):
        git_sandbox.run_git("config", name, str(git_sandbox.script))
    git_sandbox.write("a", "2\n")

    assert (await preview(git_sandbox.root, paths=["."]))["files"] == 1
    assert not git_sandbox.ran.exists()


async def test_the_preview_outside_a_repository_tells_the_problem(tmp_path: Path) -> None:
    assert "not in a git repository" in str((await preview(tmp_path))["problem"])


def test_looking_is_a_read_and_committing_executes() -> None:
    effects = {tool.name: tool.effect for tool in (tools.GitStatusTool(), tools.GitDiffTool(), tools.GitCommitTool())}

    assert effects == {"git_status": "read", "git_diff": "read", "git_commit": "execute"}
