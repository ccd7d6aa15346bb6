"""Which repository a folder lies in, when git itself would work with it: not somebody else's, not a broken one, and not one
that the folder merely claims to belong to.
"""

import os
from pathlib import PurePath

from switchtower.tools import outcome
from switchtower.tools.git import repository
from switchtower.tools.git.plumbing import git
from switchtower.tools.git.plumbing.unavailable import GitUnavailable
from switchtower.tools.running.leash import CancelScope

_QUESTIONS = ("--is-inside-git-dir", "--show-object-format", "--git-common-dir", "--show-toplevel")


class VerifiedRepository(repository.GitRepository, frozen=True, kw_only=True):
    algorithm: str
    """`sha1` or `sha256`."""


def find_verified_repository(root: str, cancel_scope: CancelScope) -> VerifiedRepository | None:
    """`None` when there is none that may be used. Raises `Unavailable` for a folder that is part of a repository's store."""
    attempt = git.GitRunner(root).try_run(cancel_scope, "rev-parse", "--path-format=absolute", *_QUESTIONS)
    # One that has no working tree answers the first questions and then fails.
    inside, *answers = os.fsdecode(attempt.printed).split("\n")
    if inside == "true" or any(part.casefold() == ".git" for part in PurePath(root).parts):
        raise GitUnavailable(f"`{root}` is part of a repository's own store", hint="work in a folder with files of your own")
    try:
        found = repository.find_repository(root)
    except outcome.ToolFailed:
        return None
    # The repository's configuration can name any folder as its working tree: then git's answer is another.
    expected = [os.path.realpath(found.common_dir), os.path.realpath(found.top), ""]
    algorithm, *places = answers if answers else [""]
    if attempt.exit_code != 0 or [os.path.realpath(place) if place else "" for place in places] != expected:
        return None
    return VerifiedRepository(top=found.top, git_dir=found.git_dir, common_dir=found.common_dir, algorithm=algorithm)
