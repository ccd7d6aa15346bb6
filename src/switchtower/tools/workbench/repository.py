"""Asks git about the run's folder, without trusting the repository: `git.view` runs nothing that it configures and writes
nothing to it. Files above the run's folder, and files of secrets, are left out.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from msgspec import Struct

from switchtower.tools import outcome, tool
from switchtower.tools.git import commits, git
from switchtower.tools.git.plumbing import git as plumbing
from switchtower.tools.running import leash
from switchtower.tools.searching import finding
from switchtower.tools.workbench import paths, refusals, text

OUTPUT_LIMIT = 512 * 1024
_LONGEST_COMPLAINT = 500
_STATUS = ("status", "--porcelain=v1", "--no-column", "--ignore-submodules=dirty", "--untracked-files=normal")


class GitResult(Struct, frozen=True):
    stdout: str
    truncated: bool


async def git_status(cwd: str, *, run_id: str | None = None) -> GitResult:
    """As `git status --porcelain=v1 -b` has it, as far as it is about files in the run's folder."""
    return await _asked(partial(_status, cwd), run_id)


async def git_diff(cwd: str, path: str | None = None, *, run_id: str | None = None) -> GitResult:
    """As `git diff` has it: what is not staged. A path is taken to the letter."""
    return await _asked(partial(_diff, cwd, path or "."), run_id)


async def _asked(work: Callable[[leash.Leash], GitResult], run_id: str | None) -> GitResult:
    try:
        async with asyncio.timeout(tool.GIT_TIME) as limit:
            return await leash.lead(run_id, work)
    except TimeoutError:
        if not limit.expired():
            raise
        raise refusals.Refused("git took too long") from None


def _status(cwd: str, held: leash.Leash) -> GitResult:
    with _view(cwd, held) as seen:
        listed, is_cut = _collected(seen, *_STATUS, "--", ".")
        head = f"## {_head(seen, held)}\n"
    return GitResult(f"{text.of_name(head)}{listed}", is_cut)


def _head(seen: git.View, held: leash.Leash) -> str:
    """The view has no branches, so what git says about them is put together here."""
    if seen.branch is None:
        return "HEAD (no branch)"
    if seen.commit is None:
        return f"No commits yet on {seen.branch}"
    # Reads refs and commits; no file, no index, no filter is looked at.
    theirs = plumbing.Git(seen.found.top, {"GIT_DIR": seen.found.git_dir})
    asked = ("for-each-ref", "--count=1", "--format=%(upstream:short) %(upstream:track)", f"refs/heads/{seen.branch}")
    upstream = theirs.attempt(held, *asked).printed.decode(errors="surrogateescape").strip()
    return f"{seen.branch}...{upstream}" if upstream else seen.branch


def _diff(cwd: str, path: str, held: leash.Leash) -> GitResult:
    paths.check(cwd, path)
    with _view(cwd, held) as seen:
        wanted = [git.literally(path)]
        names = commits.names_in(seen.ask("diff", *commits.DIFF, "--name-only", "-z", "--", *wanted))
        left_out = commits.secrets_in(cwd, names, seen.found.top)
        wanted += [git.all_but(name) for name in left_out]
        prefixes = ("--src-prefix=a/", "--dst-prefix=b/", "--relative")
        listed, is_cut = _collected(seen, "diff", *commits.DIFF, *prefixes, "--", *wanted)
    note = "".join(f"# left out, because it may hold secrets: {text.of_name(name)!r}\n" for name in left_out)
    return GitResult(f"{listed}{note}", is_cut)


@contextmanager
def _view(cwd: str, held: leash.Leash) -> Iterator[git.View]:
    paths.enter(cwd)
    if not finding.has_repository(cwd):
        raise refusals.Refused("not a git repository")
    try:
        with git.view(cwd, held) as seen:
            yield seen
    except outcome.Failed as failed:
        raise refusals.Refused(failed.message[:_LONGEST_COMPLAINT]) from failed
    except (OSError, plumbing.Failed) as error:
        raise refusals.Refused("the repository cannot be read") from error


def _collected(seen: git.View, *args: str) -> tuple[str, bool]:
    """The beginning of what git prints. Of a longer text the rest is not waited for."""
    printed = bytearray()
    with seen.start(*args) as running:
        for chunk in running.output():
            printed += chunk
            if len(printed) > OUTPUT_LIMIT:
                break
        else:
            if running.exit_code != 0:
                raise refusals.Refused(f"git could not do it: {running.complaint[-_LONGEST_COMPLAINT:]}")
    return text.beginning(bytes(printed), OUTPUT_LIMIT, errors="replace")
