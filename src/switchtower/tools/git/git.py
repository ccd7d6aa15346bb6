"""Looking at a git repository without trusting it. Blocking; belongs on a thread.

A repository's own configuration can name programs for git to run: filters, diff drivers, watchers, hooks, transports. So git
never works with that configuration here. It is given a git folder of ours, made for the moment, with the same commit, a copy
of the index and the repository's objects to read from; of the settings only those come along that are known to run nothing.
Nothing is written to the repository.
"""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from msgspec import Struct

from switchtower.tools import outcome
from switchtower.tools.git import repository
from switchtower.tools.git.plumbing import git as plumbing
from switchtower.tools.git.plumbing.unavailable import Unavailable
from switchtower.tools.running import leash

_ALWAYS = ("--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false")
_READABLE = {"LC_ALL": "C.UTF-8"}
"""Names come as they are."""
_HARMLESS = re.compile(
    r"core\.(?:autocrlf|eol|filemode|ignorecase|symlinks|precomposeunicode|trustctime|checkstat)|extensions\.objectformat"
)
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9]{0,20}")
_LARGEST_INDEX = 512 * 1024 * 1024
_LARGEST_RULES = 1024 * 1024
_MOST_OUTPUT = 16 * 1024 * 1024


class Answer(Struct, frozen=True):
    exit_code: int
    output: bytes
    complaint: str


class View:
    """A repository as it was when the view was opened, beside the files as they are."""

    def __init__(
        self,
        held: leash.Leash,
        found: repository.Repository,
        *,
        cwd: str,
        variables: Mapping[str, str],
        branch: str | None,
        commit: str | None,
    ) -> None:
        self._held = held
        self._cwd = cwd
        self._variables = variables
        self.found = found
        self.branch = branch
        self.commit = commit

    def ask(self, *args: str) -> bytes:
        """What git prints. Raises `outcome.Failed` with git's own words when it cannot."""
        answer = _ask(self._held, args, cwd=self._cwd, variables=self._variables)
        if answer.exit_code != 0:
            raise outcome.Failed(outcome.ErrorType.UNKNOWN, f"git could not do it: {answer.complaint or answer.exit_code}")
        return answer.output

    def start(self, *args: str) -> AbstractContextManager[leash.Program]:
        return _start(self._held, args, cwd=self._cwd, variables=self._variables)


@contextmanager
def view(root: str, held: leash.Leash) -> Iterator[View]:
    """Raises `outcome.Failed` when the workspace is in no repository."""
    found = repository.find(root)
    with tempfile.TemporaryDirectory(prefix="tower-git-", ignore_cleanup_errors=True) as folder:
        ours = Path(folder)
        theirs = {"GIT_DIR": found.git_dir}
        # None of these three looks at a file or an object, so nothing is run by them either.
        commit = _line(_ask(held, ("rev-parse", "--quiet", "--verify", "HEAD"), cwd=folder, variables=theirs))
        branch = _line(_ask(held, ("symbolic-ref", "--quiet", "--short", "HEAD"), cwd=folder, variables=theirs))
        listed = _ask(held, ("config", "--null", "--get-regexp", r"^(core|extensions)\."), cwd=folder, variables=theirs)
        (ours / "HEAD").write_text(f"{commit}\n" if commit else "ref: refs/heads/unborn\n")
        (ours / "config").write_text(_configuration(listed.output))
        (ours / "objects" / "info").mkdir(parents=True)
        (ours / "objects" / "info" / "alternates").write_bytes(_quoted(found.objects) + b"\n")
        (ours / "refs").mkdir()
        (ours / "info").mkdir()
        _bring(found, ours)
        variables = {"GIT_DIR": folder, "GIT_WORK_TREE": found.top}
        yield View(held, found, cwd=os.path.realpath(root), variables=variables, branch=branch, commit=commit)


def program() -> str:
    try:
        return plumbing.program()
    except Unavailable as reason:
        raise outcome.Failed(outcome.ErrorType.SANDBOX_UNREACHABLE, str(reason)) from reason


def literally(path: str) -> str:
    """A path below the current folder as git takes it, without a meaning for any character."""
    return f":(literal){path}"


def all_but(path: str) -> str:
    """Leaves out a path, as seen from the repository's top."""
    return f":(top,exclude,literal){path}"


def top_by_git(root: str, held: leash.Leash) -> str:
    """Where git itself, with all of the repository's configuration, takes the top to be. It refuses strangers' folders."""
    answer = _ask(held, ("rev-parse", "--show-toplevel"), cwd=root, variables={})
    if answer.exit_code != 0:
        raise outcome.Failed(outcome.ErrorType.UNKNOWN, f"git cannot use this repository: {answer.complaint}")
    return os.path.realpath(os.fsdecode(answer.output).rstrip("\n"))


def _start(
    held: leash.Leash, args: tuple[str, ...], *, cwd: str, variables: Mapping[str, str]
) -> AbstractContextManager[leash.Program]:
    return held.start([program(), *_ALWAYS, *args], cwd=cwd, env=plumbing.environment({**_READABLE, **variables}))


def _ask(held: leash.Leash, args: tuple[str, ...], *, cwd: str, variables: Mapping[str, str]) -> Answer:
    output = bytearray()
    with _start(held, args, cwd=cwd, variables=variables) as running:
        for chunk in running.output():
            output += chunk
            if len(output) > _MOST_OUTPUT:
                raise outcome.Failed(outcome.ErrorType.UNKNOWN, "git has too much to say about this; hint: name a narrower path")
        return Answer(running.exit_code, bytes(output), running.complaint)


def _line(answer: Answer) -> str | None:
    """None when there is no such thing, which is not an error."""
    if answer.exit_code > 1:
        raise outcome.Failed(outcome.ErrorType.UNKNOWN, f"git cannot use this repository: {answer.complaint}")
    return os.fsdecode(answer.output).rstrip("\n") or None


def _configuration(listed: bytes) -> str:
    """The last word on each harmless setting. Bare values, so nothing in them can begin another line."""
    settings = {"core.bare": "false", "core.repositoryformatversion": "0"}
    for entry in listed.split(b"\0"):
        name, _, value = entry.decode(errors="replace").partition("\n")
        if _HARMLESS.fullmatch(name) and _PLAIN_VALUE.fullmatch(value):
            settings[name] = value
    if "extensions.objectformat" in settings:
        settings["core.repositoryformatversion"] = "1"
    return "".join("[{}]\n\t{} = {}\n".format(*name.split("."), value) for name, value in settings.items())


def _quoted(path: str) -> bytes:
    return b'"%b"' % os.fsencode(path).replace(b"\\", rb"\\").replace(b'"', rb"\"").replace(b"\n", rb"\n")


def _bring(found: repository.Repository, ours: Path) -> None:
    for name in ("exclude", "attributes"):
        content = repository.small_file(f"{found.common_dir}/info/{name}", _LARGEST_RULES)
        if content is not None:
            (ours / "info" / name).write_bytes(content)
    _copy_index(f"{found.git_dir}/index", ours / "index")
    # A split index names its other half by a hash.
    for entry in os.scandir(found.git_dir):
        if entry.name.startswith("sharedindex.") and entry.is_file(follow_symlinks=False):
            _copy_index(entry.path, ours / entry.name)


def _copy_index(source: str, target: Path) -> None:
    try:
        status = os.lstat(source)
    except FileNotFoundError:
        return  # a repository in which nothing was ever added
    content = repository.small_file(source, _LARGEST_INDEX)
    if content is None:
        raise outcome.Failed(outcome.ErrorType.UNKNOWN, "the repository's index cannot be read; hint: see what `git status` says")
    target.write_bytes(content)
    # Its age tells git which files may have changed unseen in the moment when it was written.
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
