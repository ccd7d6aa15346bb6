"""Real workspaces for the tests of checkpoints and worktrees: plain folders, git repositories, and those that want to do
harm."""

import os
import stat
import subprocess
from pathlib import Path

IDENTITY = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org", "-c", "init.defaultBranch=main")

State = dict[str, tuple[str, bytes]]


def run_git(folder: Path, *args: str, check: bool = True, input: bytes | None = None) -> str:
    """Git as a user runs it, with all that the repository configures."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    finished = subprocess.run(
        ["git", *IDENTITY, *args], cwd=folder, capture_output=True, check=False, input=input, env=environment
    )
    assert not check or finished.returncode == 0, finished.stderr.decode(errors="replace")
    return finished.stdout.decode(errors="replace")


def make_repository(folder: Path, files: dict[str, str | bytes] | None = None, *options: str) -> Path:
    """With the files committed. Without files there is no commit either."""
    folder.mkdir(parents=True, exist_ok=True)
    run_git(folder, "init", "--quiet", *options)
    if files:
        write(folder, files)
        run_git(folder, "add", "--all")
        run_git(folder, "commit", "--quiet", "--message", "first")
    return folder


def write(folder: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def read_tree(folder: Path) -> State:
    """Every file and link below a folder, with its content and whether it is a program; git's own folder is not among them."""
    found: State = {}
    for parent, folders, names in os.walk(folder):
        if ".git" in folders:
            folders.remove(".git")
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        for name in [*names, *links]:
            path = Path(parent) / name
            mode = path.lstat().st_mode
            key = str(path.relative_to(folder))
            if stat.S_ISLNK(mode):
                found[key] = ("link", os.fsencode(path.readlink()))
            elif stat.S_ISREG(mode):
                found[key] = ("program" if mode & stat.S_IXUSR else "file", path.read_bytes())
            else:
                found[key] = ("special", b"")
    return found


def read_git_folder(folder: Path) -> dict[str, bytes]:
    """What a repository's own folder holds, apart from the objects and from our refs."""
    git_dir = folder / ".git"
    ours = ("objects", "refs/switchtower")
    return {
        name: path.read_bytes()
        for path in sorted(git_dir.rglob("*"))
        if path.is_file() and not (name := str(path.relative_to(git_dir))).startswith(ours)
    }


class GitTrap:
    """A program that leaves a mark when somebody runs it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._mark = folder / "sprung"
        self.program = folder / "trap"
        self.program.write_text(f'#!/bin/sh\necho "$0 $*" >> "{self._mark}"\n')
        self.program.chmod(0o755)

    @property
    def sprung(self) -> str:
        return self._mark.read_text() if self._mark.exists() else ""

    def reset(self) -> None:
        self._mark.unlink(missing_ok=True)


def arm_traps(workspace: Path, program: Path) -> None:
    """All that a configuration can have git run when it looks at files, compares them or moves refs."""
    settings = {
        "filter.evil.clean": str(program),
        "filter.evil.smudge": str(program),
        "filter.evil.process": str(program),
        "filter.evil.required": "true",
        "diff.evil.command": str(program),
        "diff.evil.textconv": str(program),
        "diff.external": str(program),
        "core.fsmonitor": str(program),
        "core.pager": str(program),
        "pager.ls-files": str(program),
        "core.hooksPath": str(workspace / ".git/hooks"),
        "core.sshCommand": str(program),
        "core.alternateRefsCommand": str(program),
        "core.editor": str(program),
        "core.logAllRefUpdates": "always",
        "hook.evil.command": str(program),
        "alias.ls-files": f"!{program}",
        "gc.auto": "1",
    }
    for name, value in settings.items():
        run_git(workspace, "config", name, value)
    run_git(workspace, "config", "--add", "hook.evil.event", "reference-transaction")
    run_git(workspace, "config", "--add", "hook.evil.event", "post-index-change")
    write(workspace, {".gitattributes": "* filter=evil diff=evil\n", ".git/info/attributes": "* filter=evil diff=evil\n"})
    for hook in ("reference-transaction", "post-index-change", "post-checkout", "pre-auto-gc", "fsmonitor-watchman"):
        path = workspace / ".git/hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec "{program}" {hook}\n')
        path.chmod(0o755)


def make_partial(workspace: Path, program: Path) -> None:
    """A partial clone, of which git fetches missing objects by the program."""
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": "ssh://nowhere.invalid/x",
        "remote.origin.promisor": "true",
        "remote.origin.partialCloneFilter": "blob:none",
        "core.sshCommand": str(program),
        "protocol.allow": "always",
        "protocol.ssh.allow": "always",
    }.items():
        run_git(workspace, "config", name, value)
