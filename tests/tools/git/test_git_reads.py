"""Looking at a repository shows what git would show, changes nothing in it, and runs nothing that it names."""

import hashlib
import os
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest
from tests.tools.git.git_world import GitSandbox, isolate_git_configuration

from switchtower.tools import outcome, registry
from switchtower.tools.git import tools
from switchtower.tools.processes import orphans


@pytest.fixture
def git_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitSandbox:
    isolate_git_configuration(monkeypatch, tmp_path / "home")
    return GitSandbox(tmp_path)


async def call(root: Path, tool: str, **args: object) -> outcome.ToolOutput:
    context = outcome.ToolContext(workspace=str(root), run_id=f"run_{uuid4().hex}", call_id="call_1")
    return await registry.make_core_toolbox().execute(tool, args, context)


async def read_status(root: Path) -> str:
    output = await call(root, "git_status")
    assert not output.is_error, output.text
    return output.text


async def diff(root: Path, **args: object) -> str:
    output = await call(root, "git_diff", **args)
    assert not output.is_error, output.text
    return output.text


def hash_git_folder(folder: Path) -> dict[str, str]:
    """Every file of a git folder, so that a single changed byte shows."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): f"{path.stat().st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files}


async def test_status_names_the_branch_and_every_kind_of_change(git_sandbox: GitSandbox) -> None:
    assert await read_status(git_sandbox.root) == "On branch main, which has no commit yet\n[nothing changed]"
    git_sandbox.commit(a="1\n", b="1\n", c="1\n", src__d="1\n")
    assert await read_status(git_sandbox.root) == "On branch main\n[nothing changed]"

    git_sandbox.write("a", "2\n")
    (git_sandbox.root / "b").unlink()
    git_sandbox.run_git("mv", "c", "moved")
    git_sandbox.write("src/new", "1\n")
    git_sandbox.run_git("add", "src/new")
    git_sandbox.write("folder/inner", "1\n")

    assert await read_status(git_sandbox.root) == "On branch main\n M a\n D b\nR  c -> moved\nA  src/new\n?? folder/"


async def test_a_detached_head_and_a_merge_under_way_are_told(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n")
    git_sandbox.run_git("checkout", "-q", "-b", "other")
    git_sandbox.commit(a="2\n")
    git_sandbox.run_git("checkout", "-q", "main")
    git_sandbox.commit(a="3\n")
    git_sandbox.run_git("merge", "other", check=False)

    assert await read_status(git_sandbox.root) == "On branch main\n[a merge is under way]\nUU a"
    assert "<<<<<<<" in await diff(git_sandbox.root)

    git_sandbox.run_git("merge", "--abort")
    git_sandbox.run_git("checkout", "-q", "--detach")
    commit = git_sandbox.run_git("rev-parse", "HEAD")[:12]
    assert await read_status(git_sandbox.root) == f"HEAD is detached at {commit}\n[nothing changed]"


async def test_a_diff_shows_what_is_staged_or_what_is_not(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n", src__b="1\n")
    git_sandbox.write("a", "staged\n")
    git_sandbox.run_git("add", "a")
    git_sandbox.write("a", "later\n")
    git_sandbox.write("src/b", "2\n")

    plain, staged = await diff(git_sandbox.root), await diff(git_sandbox.root, staged=True)

    assert plain == git_sandbox.run_git("diff").rstrip("\n")
    assert "-staged\n+later" in plain
    assert staged == git_sandbox.run_git("diff", "--cached").rstrip("\n")
    assert "-1\n+staged" in staged
    assert await diff(git_sandbox.root, path="src") == git_sandbox.run_git("diff", "--", "src").rstrip("\n")
    assert await diff(git_sandbox.root, path=f"{git_sandbox.root}/src/b") == git_sandbox.run_git("diff", "--", "src").rstrip("\n")
    assert await diff(git_sandbox.root, path="src", staged=True) == "[no difference]"


async def test_a_diff_of_a_first_commit_to_be_is_against_nothing(git_sandbox: GitSandbox) -> None:
    git_sandbox.write("a", "1\n")
    git_sandbox.run_git("add", "a")

    assert "new file mode 100644" in await diff(git_sandbox.root, staged=True)


async def test_looking_changes_nothing_in_the_repository(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n", b="1\n")
    os.utime(git_sandbox.root / "b", (1, 1))  # as if touched: git would refresh its index for that
    git_sandbox.write("a", "2\n")
    before = hash_git_folder(git_sandbox.root / ".git")

    await read_status(git_sandbox.root)
    text = await diff(git_sandbox.root)
    await diff(git_sandbox.root, staged=True)

    assert "b" not in [line.split("/")[-1] for line in text.splitlines() if line.startswith("diff")]
    assert hash_git_folder(git_sandbox.root / ".git") == before
    assert not (git_sandbox.root / ".tower").exists()


async def test_a_change_in_the_same_moment_as_the_commit_is_seen(git_sandbox: GitSandbox) -> None:
    for number in range(20):
        git_sandbox.commit(a=f"{number}\n")
        git_sandbox.write("a", f"{number + 1}\n")
        assert await read_status(git_sandbox.root) == "On branch main\n M a"


async def test_a_workspace_below_the_top_sees_only_itself(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n", sub__b="1\n", sub__deep__c="1\n")
    for path in ("a", "sub/b", "sub/deep/c", "sub/new"):
        git_sandbox.write(path, "2\n")

    assert await read_status(git_sandbox.root / "sub") == "On branch main\n M b\n M deep/c\n?? new"
    text = await diff(git_sandbox.root / "sub")
    assert "a/b b/b" in text
    assert "a/deep/c b/deep/c" in text
    assert "a/a b/a" not in text


async def test_an_ignored_file_stays_ignored(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(**{".gitignore": "*.log\n"})
    git_sandbox.write(".git/info/exclude", "mine\n")
    for name in ("a.log", "mine", "seen"):
        git_sandbox.write(name, "x")

    assert await read_status(git_sandbox.root) == "On branch main\n?? seen"


async def test_a_split_index_and_sha256_are_read(git_sandbox: GitSandbox, tmp_path: Path) -> None:
    git_sandbox.commit(a="1\n", b="1\n")
    git_sandbox.run_git("update-index", "--split-index")
    git_sandbox.write("a", "2\n")
    assert await read_status(git_sandbox.root) == "On branch main\n M a"

    other = tmp_path / "other"
    other.mkdir()
    if git_sandbox.run_git("init", "-q", "--object-format=sha256", cwd=other, check=False) or not (other / ".git").exists():
        pytest.skip("this git knows no sha256")
    (other / "a").write_text("1\n")
    git_sandbox.run_git("add", "a", cwd=other)
    git_sandbox.run_git("commit", "-q", "-m", "x", cwd=other)
    (other / "a").write_text("2\n")
    assert await read_status(other) == "On branch main\n M a"


async def test_settings_that_only_say_how_files_look_are_followed(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(**{"a.txt": "1\n2\n", "run.sh": "x\n"})
    git_sandbox.run_git("config", "core.autocrlf", "true")
    git_sandbox.run_git("config", "core.fileMode", "false")
    (git_sandbox.root / "a.txt").write_bytes(b"1\r\n2\r\n")
    (git_sandbox.root / "run.sh").chmod(0o755)

    assert git_sandbox.run_git("diff") == ""
    assert await diff(git_sandbox.root) == "[no difference]"
    assert (await read_status(git_sandbox.root)).splitlines()[1:] == git_sandbox.run_git("status", "--short").splitlines()


async def test_no_repository_is_a_clear_error_with_a_remedy(tmp_path: Path) -> None:
    for tool, args in (("git_status", {}), ("git_diff", {}), ("git_commit", {"message": "x"})):
        output = await call(tmp_path, tool, **args)
        assert output.text == "the workspace is not in a git repository; hint: make one with the command `git init`"
        assert output.is_error
    missing = await call(tmp_path / "gone", "git_status")
    assert missing.error is not None
    assert missing.error.type == "SANDBOX_UNREACHABLE"


@pytest.mark.parametrize("broken", ["empty", "rubbish HEAD", "rubbish index", "rubbish pointer", "index is a pipe"])
async def test_a_broken_repository_is_an_error_and_not_a_crash(git_sandbox: GitSandbox, broken: str) -> None:
    git_sandbox.commit(a="1\n")
    git_dir = git_sandbox.root / ".git"
    match broken:
        case "empty":
            subprocess.run(["rm", "-rf", git_dir], check=True)
            git_dir.mkdir()
        case "rubbish HEAD":
            (git_dir / "HEAD").write_bytes(b"\xff\0rubbish")
        case "rubbish index":
            (git_dir / "index").write_bytes(os.urandom(1000))
        case "rubbish pointer":
            subprocess.run(["rm", "-rf", git_dir], check=True)
            git_dir.write_bytes(os.urandom(100))
        case _:
            (git_dir / "index").unlink()
            os.mkfifo(git_dir / "index")

    output = await call(git_sandbox.root, "git_status")

    assert output.is_error
    assert "failed (" not in output.text, "not a bug of ours"


@pytest.mark.parametrize("name", ["-x", "--output=pwned", "a\nb", ":(top)x", "*", "ü", '"'])
async def test_hostile_names_are_names(git_sandbox: GitSandbox, name: str) -> None:
    git_sandbox.commit(plain="1\n")
    git_sandbox.write(name, "1\n")
    git_sandbox.run_git("add", "--", f":(literal){name}")
    git_sandbox.run_git("commit", "-q", "-m", "x")
    git_sandbox.write(name, "2\n")
    git_sandbox.write("plain", "2\n")

    text = await diff(git_sandbox.root, path=name)

    assert "-1\n+2" in text
    assert "plain" not in text
    assert len((await read_status(git_sandbox.root)).splitlines()) == 3
    assert not (git_sandbox.root / "pwned").exists()


async def test_a_name_that_is_no_text_is_listed(git_sandbox: GitSandbox) -> None:
    os.close(os.open(os.fsencode(git_sandbox.root) + b"/caf\xe9", os.O_CREAT))

    assert (await read_status(git_sandbox.root)).startswith("On branch main, which has no commit yet\n?? ")


async def test_files_of_secrets_are_named_but_their_content_is_left_out(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(**{".env": "KEY=one\n", "a": "1\n", "sub/.env.local": "KEY=one\n"})
    for path in (".env", "sub/.env.local"):
        git_sandbox.write(path, "KEY=hush\n")
    git_sandbox.write("a", "2\n")

    text = await diff(git_sandbox.root)
    git_sandbox.run_git("add", "--all")
    staged = await diff(git_sandbox.root, staged=True)

    for shown in (text, staged):
        assert "hush" not in shown
        assert "+2" in shown
        assert shown.endswith("[left out, because they may hold secrets: `.env`, `sub/.env.local`]")
    assert (await call(git_sandbox.root, "git_diff", path=".env")).is_error
    assert "hush" not in await diff(git_sandbox.root, path="sub", staged=True)


async def test_a_long_diff_keeps_both_ends_and_is_whole_in_a_file(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="".join(f"old {number}\n" for number in range(20_000)))
    git_sandbox.write("a", "".join(f"new {number}\n" for number in range(20_000)))

    text = await diff(git_sandbox.root)

    assert len(text.encode()) < 66 * 1024
    assert text.startswith("diff --git a/a b/a")
    assert text.endswith("+new 19999")
    assert "bytes left out; the whole output is in `.tower/outputs/call_1.txt` …]" in text
    assert (git_sandbox.root / ".tower/outputs/call_1.txt").read_text() == git_sandbox.run_git("diff")
    assert await read_status(git_sandbox.root) == "On branch main\n M a", "outputs are not the repository's business"


# What a repository can name for git to run, and how git is brought to look at it.
TRAPS: dict[str, list[tuple[str, str]]] = {
    "fsmonitor": [("core.fsmonitor", "{script}")],
    "external diff": [("diff.external", "{script}")],
    "diff driver": [("diff.evil.command", "{script}")],
    "textconv": [("diff.evil.textconv", "{script}"), ("diff.evil.cachetextconv", "true")],
    "clean filter": [("filter.evil.clean", "{script}"), ("filter.evil.required", "true")],
    "smudge filter": [("filter.evil.smudge", "{script}"), ("filter.evil.clean", "{script}")],
    "filter process": [("filter.evil.process", "{script}"), ("filter.evil.required", "true")],
    "odd filter name": [("filter.e=v i\tl.clean", "{script}")],
    "hooks folder": [("core.hooksPath", "{hooks}")],
    "pager": [("core.pager", "{script}"), ("pager.diff", "{script}"), ("pager.status", "{script}")],
    "editor": [("core.editor", "{script}"), ("sequence.editor", "{script}")],
    "ssh and askpass": [("core.sshCommand", "{script}"), ("core.askPass", "{script}"), ("credential.helper", "!{script}")],
    "alias": [("alias.status", "!{script}"), ("alias.diff", "!{script}"), ("alias.rev-parse", "!{script}")],
    "partial clone": [
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", "ext::{script}"),
        ("remote.origin.promisor", "true"),
        ("protocol.ext.allow", "always"),
        ("remote.origin.uploadpack", "{script}"),
    ],
    "trace": [("trace2.eventTarget", "{ran}"), ("trace2.normalTarget", "{ran}")],
    "include": [("include.path", "{include}")],
    "submodule recursion": [("submodule.recurse", "true"), ("status.submoduleSummary", "true"), ("diff.submodule", "log")],
    "gpg": [("gpg.program", "{script}"), ("log.showSignature", "true")],
    "alternates command": [("core.alternateRefsCommand", "{script}")],
}


@pytest.mark.parametrize("trap", TRAPS)
async def test_nothing_that_a_repository_names_is_run(git_sandbox: GitSandbox, tmp_path: Path, trap: str) -> None:
    git_sandbox.commit(a="1\n", b="1\n", **{".gitattributes": '* diff=evil filter=evil\nb filter="e=v i\\tl"\n'})
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "pre-commit", "fsmonitor-watchman", "reference-transaction", "post-checkout"):
        for folder in (hooks, git_sandbox.root / ".git/hooks"):
            (folder / name).write_text(git_sandbox.script.read_text())
            (folder / name).chmod(0o755)
    (tmp_path / "include").write_text(
        f'[filter "evil"]\n\tclean = {git_sandbox.script}\n[core]\n\tfsmonitor = {git_sandbox.script}\n'
    )
    places = {"script": git_sandbox.script, "hooks": hooks, "ran": git_sandbox.ran, "include": tmp_path / "include"}
    for name, value in TRAPS[trap]:
        git_sandbox.run_git("config", name, value.format(**places))
    for name in ("a", "b"):
        git_sandbox.write(name, "2\n")
    os.utime(git_sandbox.root / ".gitattributes", (1, 1))
    if trap == "partial clone":
        missing = git_sandbox.run_git("rev-parse", "HEAD:a").strip()
        (git_sandbox.root / ".git/objects" / missing[:2] / missing[2:]).unlink()

    outputs = [
        await call(git_sandbox.root, "git_status"),
        await call(git_sandbox.root, "git_diff"),
        await call(git_sandbox.root, "git_diff", staged=True),
        await call(git_sandbox.root, "git_diff", path="a"),
    ]

    assert not git_sandbox.ran.exists()
    if trap != "partial clone":
        assert outputs[0].text == "On branch main\n M a\n M b"
        assert all(not output.is_error for output in outputs)


async def test_the_traps_are_real(git_sandbox: GitSandbox) -> None:
    """Plain git falls into one of them: so the test above could fail."""
    git_sandbox.commit(a="1\n", **{".gitattributes": "* filter=evil\n"})
    git_sandbox.run_git("config", "filter.evil.clean", str(git_sandbox.script))
    git_sandbox.write("a", "2\n")

    git_sandbox.run_git("status")

    assert git_sandbox.ran.exists()


async def test_a_hostile_submodule_is_not_entered(git_sandbox: GitSandbox, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    inner = GitSandbox(tmp_path / "second")
    inner.commit(a="1\n")
    git_sandbox.commit(top="1\n")
    git_sandbox.run_git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner.root), "sub")
    git_sandbox.run_git("commit", "-q", "-m", "sub")
    sub = git_sandbox.root / "sub"
    git_sandbox.run_git("config", "core.fsmonitor", str(git_sandbox.script), cwd=sub)
    git_sandbox.run_git("config", "filter.evil.clean", str(git_sandbox.script), cwd=sub)
    (sub / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (sub / "a").write_text("2\n")
    git_sandbox.write("top", "2\n")

    assert await read_status(git_sandbox.root) == "On branch main\n M top"
    assert "+2" in await diff(git_sandbox.root)
    assert not git_sandbox.ran.exists()


async def test_files_elsewhere_named_as_the_working_tree_are_not_shown(git_sandbox: GitSandbox, tmp_path: Path) -> None:
    git_sandbox.commit(**{"plain.txt": "1\n"})
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/plain.txt").write_text("hush\n")
    git_sandbox.run_git("config", "core.worktree", str(tmp_path / "outside"))
    git_sandbox.write("plain.txt", "2\n")

    assert "hush" not in await diff(git_sandbox.root)
    assert "+2" in await diff(git_sandbox.root)
    commit = await call(git_sandbox.root, "git_commit", message="x", paths=["."])
    assert commit.error is not None
    assert commit.error.type == "EDIT_GUARD_BLOCKED"
    assert "core.worktree" in commit.text


def make_private_repository(folder: Path) -> GitSandbox:
    folder.mkdir()
    private = GitSandbox(folder)
    private.commit(a="hush\n")
    private.run_git("repack", "-adq")
    return private


@pytest.mark.parametrize(
    "way",
    ["pointer", "link", "common folder", "linked objects", "linked packs", "alternates", "quoted", "forged worktree"],
)
async def test_another_repository_cannot_be_borrowed_from_outside(git_sandbox: GitSandbox, tmp_path: Path, way: str) -> None:
    private = make_private_repository(tmp_path / "private").root / ".git"
    ours = git_sandbox.root / ".git"
    branch = ours / "refs/heads/main"
    branch.unlink(missing_ok=True)
    match way:
        case "pointer":
            subprocess.run(["rm", "-rf", ours], check=True)
            ours.write_text(f"gitdir: {private}\n")
        case "link":
            subprocess.run(["rm", "-rf", ours], check=True)
            ours.symlink_to(private)
        case "common folder":
            (ours / "commondir").write_text(f"{private}\n")
        case "linked objects":
            subprocess.run(["rm", "-rf", ours / "objects"], check=True)
            (ours / "objects").symlink_to(private / "objects")
            branch.symlink_to(private / "refs/heads/main")
        case "linked packs":
            (ours / "objects/pack").rmdir()
            (ours / "objects/pack").symlink_to(private / "objects/pack")
            branch.symlink_to(private / "refs/heads/main")
        case "alternates":
            (ours / "objects/info/alternates").write_text(f"{private}/objects\n")
            branch.symlink_to(private / "refs/heads/main")
        case "quoted":
            (ours / "objects/info/alternates").write_text(f'"{private}/objects"\n')
            branch.symlink_to(private / "refs/heads/main")
        case _:
            subprocess.run(["rm", "-rf", ours], check=True)
            forged = git_sandbox.root / "fake/worktrees/x"
            forged.mkdir(parents=True)
            (forged / "gitdir").write_text(f"{ours}\n")
            (forged / "commondir").write_text(f"{private}\n")
            (forged / "HEAD").write_text("ref: refs/heads/main\n")
            ours.write_text(f"gitdir: {forged}\n")

    for tool, args in (("git_diff", {"staged": True}), ("git_status", {}), ("git_commit", {"message": "x", "paths": ["."]})):
        output = await call(git_sandbox.root, tool, **args)
        assert output.error is not None, output.text
        assert output.error.type == "EDIT_GUARD_BLOCKED"
        assert "hush" not in output.text


async def test_a_worktree_and_a_submodule_know_their_repository(git_sandbox: GitSandbox, tmp_path: Path) -> None:
    git_sandbox.commit(a="1\n")
    git_sandbox.run_git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    (tmp_path / "side/a").write_text("2\n")
    assert await read_status(tmp_path / "side") == "On branch side\n M a"
    commit = await call(tmp_path / "side", "git_commit", message="from the side", paths=["a"])
    assert not commit.is_error, commit.text

    outer = tmp_path / "outer"
    outer.mkdir()
    superproject = GitSandbox(outer)
    superproject.run_git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(git_sandbox.root), "sub")
    (superproject.root / "sub/a").write_text("3\n")
    assert await read_status(superproject.root / "sub") == "On branch main\n M a"


async def test_a_configuration_that_never_ends_is_given_up(git_sandbox: GitSandbox) -> None:
    git_sandbox.commit(a="1\n")
    os.mkfifo(git_sandbox.root / "pipe")
    git_sandbox.run_git("config", "include.path", str(git_sandbox.root / "pipe"))
    context = outcome.ToolContext(workspace=str(git_sandbox.root), run_id=f"run_{uuid4().hex}")
    hasty = tools.GitStatusTool()
    hasty.time_limit = 1.0

    output = await registry.Toolbox([hasty]).execute("git_status", {}, context)

    assert output.error is not None
    assert output.error.type == "EXEC_TIMEOUT"
    assert not orphans.has_marked_processes(context.run_id)


async def test_variables_that_lead_git_elsewhere_have_no_say(
    git_sandbox: GitSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "second").mkdir()
    other = GitSandbox(tmp_path / "second")
    other.commit(elsewhere="1\n")
    git_sandbox.commit(a="1\n")
    git_sandbox.write("a", "2\n")
    monkeypatch.setenv("GIT_DIR", str(other.root / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.root / ".git/index"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(git_sandbox.script))

    assert await read_status(git_sandbox.root) == "On branch main\n M a"
    assert "+2" in await diff(git_sandbox.root)
    assert not git_sandbox.ran.exists()


async def test_git_that_is_not_installed_is_told(
    git_sandbox: GitSandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))

    output = await call(git_sandbox.root, "git_status")

    assert output.text == "git is not installed; hint: install git, version 2.31 or newer"
