"""Looking at a repository shows what git would show, changes nothing in it, and runs nothing that it names."""

import hashlib
import os
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest
from tests.tools.git.git_world import World, without_own_configuration

from switchtower.tools import outcome, registry
from switchtower.tools.git import tools
from switchtower.tools.running import orphans


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    without_own_configuration(monkeypatch, tmp_path / "home")
    return World(tmp_path)


async def call(root: Path, tool: str, **args: object) -> outcome.ToolOutput:
    context = outcome.ToolContext(workspace=str(root), run_id=f"run_{uuid4().hex}", call_id="call_1")
    return await registry.core_toolbox().execute(tool, args, context)


async def status(root: Path) -> str:
    output = await call(root, "git_status")
    assert not output.is_error, output.text
    return output.text


async def diff(root: Path, **args: object) -> str:
    output = await call(root, "git_diff", **args)
    assert not output.is_error, output.text
    return output.text


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file of a git folder, so that a single changed byte shows."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): f"{path.stat().st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files}


async def test_status_names_the_branch_and_every_kind_of_change(world: World) -> None:
    assert await status(world.root) == "On branch main, which has no commit yet\n[nothing changed]"
    world.commit(a="1\n", b="1\n", c="1\n", src__d="1\n")
    assert await status(world.root) == "On branch main\n[nothing changed]"

    world.write("a", "2\n")
    (world.root / "b").unlink()
    world.git("mv", "c", "moved")
    world.write("src/new", "1\n")
    world.git("add", "src/new")
    world.write("folder/inner", "1\n")

    assert await status(world.root) == "On branch main\n M a\n D b\nR  c -> moved\nA  src/new\n?? folder/"


async def test_a_detached_head_and_a_merge_under_way_are_told(world: World) -> None:
    world.commit(a="1\n")
    world.git("checkout", "-q", "-b", "other")
    world.commit(a="2\n")
    world.git("checkout", "-q", "main")
    world.commit(a="3\n")
    world.git("merge", "other", check=False)

    assert await status(world.root) == "On branch main\n[a merge is under way]\nUU a"
    assert "<<<<<<<" in await diff(world.root)

    world.git("merge", "--abort")
    world.git("checkout", "-q", "--detach")
    commit = world.git("rev-parse", "HEAD")[:12]
    assert await status(world.root) == f"HEAD is detached at {commit}\n[nothing changed]"


async def test_a_diff_shows_what_is_staged_or_what_is_not(world: World) -> None:
    world.commit(a="1\n", src__b="1\n")
    world.write("a", "staged\n")
    world.git("add", "a")
    world.write("a", "later\n")
    world.write("src/b", "2\n")

    plain, staged = await diff(world.root), await diff(world.root, staged=True)

    assert plain == world.git("diff").rstrip("\n")
    assert "-staged\n+later" in plain
    assert staged == world.git("diff", "--cached").rstrip("\n")
    assert "-1\n+staged" in staged
    assert await diff(world.root, path="src") == world.git("diff", "--", "src").rstrip("\n")
    assert await diff(world.root, path=f"{world.root}/src/b") == world.git("diff", "--", "src").rstrip("\n")
    assert await diff(world.root, path="src", staged=True) == "[no difference]"


async def test_a_diff_of_a_first_commit_to_be_is_against_nothing(world: World) -> None:
    world.write("a", "1\n")
    world.git("add", "a")

    assert "new file mode 100644" in await diff(world.root, staged=True)


async def test_looking_changes_nothing_in_the_repository(world: World) -> None:
    world.commit(a="1\n", b="1\n")
    os.utime(world.root / "b", (1, 1))  # as if touched: git would refresh its index for that
    world.write("a", "2\n")
    before = fingerprint(world.root / ".git")

    await status(world.root)
    text = await diff(world.root)
    await diff(world.root, staged=True)

    assert "b" not in [line.split("/")[-1] for line in text.splitlines() if line.startswith("diff")]
    assert fingerprint(world.root / ".git") == before
    assert not (world.root / ".tower").exists()


async def test_a_change_in_the_same_moment_as_the_commit_is_seen(world: World) -> None:
    for number in range(20):
        world.commit(a=f"{number}\n")
        world.write("a", f"{number + 1}\n")
        assert await status(world.root) == "On branch main\n M a"


async def test_a_workspace_below_the_top_sees_only_itself(world: World) -> None:
    world.commit(a="1\n", sub__b="1\n", sub__deep__c="1\n")
    for path in ("a", "sub/b", "sub/deep/c", "sub/new"):
        world.write(path, "2\n")

    assert await status(world.root / "sub") == "On branch main\n M b\n M deep/c\n?? new"
    text = await diff(world.root / "sub")
    assert "a/b b/b" in text
    assert "a/deep/c b/deep/c" in text
    assert "a/a b/a" not in text


async def test_an_ignored_file_stays_ignored(world: World) -> None:
    world.commit(**{".gitignore": "*.log\n"})
    world.write(".git/info/exclude", "mine\n")
    for name in ("a.log", "mine", "seen"):
        world.write(name, "x")

    assert await status(world.root) == "On branch main\n?? seen"


async def test_a_split_index_and_sha256_are_read(world: World, tmp_path: Path) -> None:
    world.commit(a="1\n", b="1\n")
    world.git("update-index", "--split-index")
    world.write("a", "2\n")
    assert await status(world.root) == "On branch main\n M a"

    other = tmp_path / "other"
    other.mkdir()
    if world.git("init", "-q", "--object-format=sha256", cwd=other, check=False) or not (other / ".git").exists():
        pytest.skip("this git knows no sha256")
    (other / "a").write_text("1\n")
    world.git("add", "a", cwd=other)
    world.git("commit", "-q", "-m", "x", cwd=other)
    (other / "a").write_text("2\n")
    assert await status(other) == "On branch main\n M a"


async def test_settings_that_only_say_how_files_look_are_followed(world: World) -> None:
    world.commit(**{"a.txt": "1\n2\n", "run.sh": "x\n"})
    world.git("config", "core.autocrlf", "true")
    world.git("config", "core.fileMode", "false")
    (world.root / "a.txt").write_bytes(b"1\r\n2\r\n")
    (world.root / "run.sh").chmod(0o755)

    assert world.git("diff") == ""
    assert await diff(world.root) == "[no difference]"
    assert (await status(world.root)).splitlines()[1:] == world.git("status", "--short").splitlines()


async def test_no_repository_is_a_clear_error_with_a_remedy(tmp_path: Path) -> None:
    for tool, args in (("git_status", {}), ("git_diff", {}), ("git_commit", {"message": "x"})):
        output = await call(tmp_path, tool, **args)
        assert output.text == "the workspace is not in a git repository; hint: make one with the command `git init`"
        assert output.is_error
    missing = await call(tmp_path / "gone", "git_status")
    assert missing.error is not None
    assert missing.error.type == "SANDBOX_UNREACHABLE"


@pytest.mark.parametrize("broken", ["empty", "rubbish HEAD", "rubbish index", "rubbish pointer", "index is a pipe"])
async def test_a_broken_repository_is_an_error_and_not_a_crash(world: World, broken: str) -> None:
    world.commit(a="1\n")
    git_dir = world.root / ".git"
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

    output = await call(world.root, "git_status")

    assert output.is_error
    assert "failed (" not in output.text, "not a bug of ours"


@pytest.mark.parametrize("name", ["-x", "--output=pwned", "a\nb", ":(top)x", "*", "ü", '"'])
async def test_hostile_names_are_names(world: World, name: str) -> None:
    world.commit(plain="1\n")
    world.write(name, "1\n")
    world.git("add", "--", f":(literal){name}")
    world.git("commit", "-q", "-m", "x")
    world.write(name, "2\n")
    world.write("plain", "2\n")

    text = await diff(world.root, path=name)

    assert "-1\n+2" in text
    assert "plain" not in text
    assert len((await status(world.root)).splitlines()) == 3
    assert not (world.root / "pwned").exists()


async def test_a_name_that_is_no_text_is_listed(world: World) -> None:
    os.close(os.open(os.fsencode(world.root) + b"/caf\xe9", os.O_CREAT))

    assert (await status(world.root)).startswith("On branch main, which has no commit yet\n?? ")


async def test_files_of_secrets_are_named_but_their_content_is_left_out(world: World) -> None:
    world.commit(**{".env": "KEY=one\n", "a": "1\n", "sub/.env.local": "KEY=one\n"})
    for path in (".env", "sub/.env.local"):
        world.write(path, "KEY=hush\n")
    world.write("a", "2\n")

    text = await diff(world.root)
    world.git("add", "--all")
    staged = await diff(world.root, staged=True)

    for shown in (text, staged):
        assert "hush" not in shown
        assert "+2" in shown
        assert shown.endswith("[left out, because they may hold secrets: `.env`, `sub/.env.local`]")
    assert (await call(world.root, "git_diff", path=".env")).is_error
    assert "hush" not in await diff(world.root, path="sub", staged=True)


async def test_a_long_diff_keeps_both_ends_and_is_whole_in_a_file(world: World) -> None:
    world.commit(a="".join(f"old {number}\n" for number in range(20_000)))
    world.write("a", "".join(f"new {number}\n" for number in range(20_000)))

    text = await diff(world.root)

    assert len(text.encode()) < 66 * 1024
    assert text.startswith("diff --git a/a b/a")
    assert text.endswith("+new 19999")
    assert "bytes left out; the whole output is in `.tower/outputs/call_1.txt` …]" in text
    assert (world.root / ".tower/outputs/call_1.txt").read_text() == world.git("diff")
    assert await status(world.root) == "On branch main\n M a", "outputs are not the repository's business"


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
async def test_nothing_that_a_repository_names_is_run(world: World, tmp_path: Path, trap: str) -> None:
    world.commit(a="1\n", b="1\n", **{".gitattributes": '* diff=evil filter=evil\nb filter="e=v i\\tl"\n'})
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "pre-commit", "fsmonitor-watchman", "reference-transaction", "post-checkout"):
        for folder in (hooks, world.root / ".git/hooks"):
            (folder / name).write_text(world.script.read_text())
            (folder / name).chmod(0o755)
    (tmp_path / "include").write_text(f'[filter "evil"]\n\tclean = {world.script}\n[core]\n\tfsmonitor = {world.script}\n')
    places = {"script": world.script, "hooks": hooks, "ran": world.ran, "include": tmp_path / "include"}
    for name, value in TRAPS[trap]:
        world.git("config", name, value.format(**places))
    for name in ("a", "b"):
        world.write(name, "2\n")
    os.utime(world.root / ".gitattributes", (1, 1))
    if trap == "partial clone":
        missing = world.git("rev-parse", "HEAD:a").strip()
        (world.root / ".git/objects" / missing[:2] / missing[2:]).unlink()

    outputs = [
        await call(world.root, "git_status"),
        await call(world.root, "git_diff"),
        await call(world.root, "git_diff", staged=True),
        await call(world.root, "git_diff", path="a"),
    ]

    assert not world.ran.exists()
    if trap != "partial clone":
        assert outputs[0].text == "On branch main\n M a\n M b"
        assert all(not output.is_error for output in outputs)


async def test_the_traps_are_real(world: World) -> None:
    """Plain git falls into one of them: so the test above could fail."""
    world.commit(a="1\n", **{".gitattributes": "* filter=evil\n"})
    world.git("config", "filter.evil.clean", str(world.script))
    world.write("a", "2\n")

    world.git("status")

    assert world.ran.exists()


async def test_a_hostile_submodule_is_not_entered(world: World, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    inner = World(tmp_path / "second")
    inner.commit(a="1\n")
    world.commit(top="1\n")
    world.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner.root), "sub")
    world.git("commit", "-q", "-m", "sub")
    sub = world.root / "sub"
    world.git("config", "core.fsmonitor", str(world.script), cwd=sub)
    world.git("config", "filter.evil.clean", str(world.script), cwd=sub)
    (sub / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (sub / "a").write_text("2\n")
    world.write("top", "2\n")

    assert await status(world.root) == "On branch main\n M top"
    assert "+2" in await diff(world.root)
    assert not world.ran.exists()


async def test_files_elsewhere_named_as_the_working_tree_are_not_shown(world: World, tmp_path: Path) -> None:
    world.commit(**{"plain.txt": "1\n"})
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/plain.txt").write_text("hush\n")
    world.git("config", "core.worktree", str(tmp_path / "outside"))
    world.write("plain.txt", "2\n")

    assert "hush" not in await diff(world.root)
    assert "+2" in await diff(world.root)
    commit = await call(world.root, "git_commit", message="x", paths=["."])
    assert commit.error is not None
    assert commit.error.type == "EDIT_GUARD_BLOCKED"
    assert "core.worktree" in commit.text


def private_repository(folder: Path) -> World:
    folder.mkdir()
    private = World(folder)
    private.commit(a="hush\n")
    private.git("repack", "-adq")
    return private


@pytest.mark.parametrize(
    "way",
    ["pointer", "link", "common folder", "linked objects", "linked packs", "alternates", "quoted", "forged worktree"],
)
async def test_another_repository_cannot_be_borrowed_from_outside(world: World, tmp_path: Path, way: str) -> None:
    private = private_repository(tmp_path / "private").root / ".git"
    ours = world.root / ".git"
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
            forged = world.root / "fake/worktrees/x"
            forged.mkdir(parents=True)
            (forged / "gitdir").write_text(f"{ours}\n")
            (forged / "commondir").write_text(f"{private}\n")
            (forged / "HEAD").write_text("ref: refs/heads/main\n")
            ours.write_text(f"gitdir: {forged}\n")

    for tool, args in (("git_diff", {"staged": True}), ("git_status", {}), ("git_commit", {"message": "x", "paths": ["."]})):
        output = await call(world.root, tool, **args)
        assert output.error is not None, output.text
        assert output.error.type == "EDIT_GUARD_BLOCKED"
        assert "hush" not in output.text


async def test_a_worktree_and_a_submodule_know_their_repository(world: World, tmp_path: Path) -> None:
    world.commit(a="1\n")
    world.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    (tmp_path / "side/a").write_text("2\n")
    assert await status(tmp_path / "side") == "On branch side\n M a"
    commit = await call(tmp_path / "side", "git_commit", message="from the side", paths=["a"])
    assert not commit.is_error, commit.text

    outer = tmp_path / "outer"
    outer.mkdir()
    superproject = World(outer)
    superproject.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(world.root), "sub")
    (superproject.root / "sub/a").write_text("3\n")
    assert await status(superproject.root / "sub") == "On branch main\n M a"


async def test_a_configuration_that_never_ends_is_given_up(world: World) -> None:
    world.commit(a="1\n")
    os.mkfifo(world.root / "pipe")
    world.git("config", "include.path", str(world.root / "pipe"))
    context = outcome.ToolContext(workspace=str(world.root), run_id=f"run_{uuid4().hex}")
    hasty = tools.GitStatus()
    hasty.time_limit = 1.0

    output = await registry.Toolbox([hasty]).execute("git_status", {}, context)

    assert output.error is not None
    assert output.error.type == "EXEC_TIMEOUT"
    assert not orphans.any_marked(context.run_id)


async def test_variables_that_lead_git_elsewhere_have_no_say(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "second").mkdir()
    other = World(tmp_path / "second")
    other.commit(elsewhere="1\n")
    world.commit(a="1\n")
    world.write("a", "2\n")
    monkeypatch.setenv("GIT_DIR", str(other.root / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.root / ".git/index"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(world.script))

    assert await status(world.root) == "On branch main\n M a"
    assert "+2" in await diff(world.root)
    assert not world.ran.exists()


async def test_git_that_is_not_installed_is_told(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))

    output = await call(world.root, "git_status")

    assert output.text == "git is not installed; hint: install git, version 2.31 or newer"
