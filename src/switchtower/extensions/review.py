"""`/review`: asks which changes of this repository to review, and has the agent review them with care."""

import shlex

from msgspec import Struct

from switchtower.extensions import port

UNCOMMITTED, LAST_COMMIT, BRANCH = "uncommitted", "last", "branch"

_PROMPT = """\
Review {what}. Change nothing; this is a review.

Get the change with these commands:
{commands}

Then, for each part of the change:
- Read enough of the code around it to know what it does and who relies on it. A diff alone is not enough.
- Look for what is wrong: mistakes in logic, cases that are not handled, errors that are swallowed, races, resources that are not
  given back, input that is trusted too much, secrets, broken callers, tests that are missing or cannot fail.
- Try what can be tried: run the tests that cover it.
- Leave matters of taste out, unless they go against what this project says of itself.

Answer with what you found, the worst first. For each: the file and line, what happens and when, how sure you are, and what to do
about it. Say plainly what is fine and what you did not check. If nothing is wrong, say that."""


class ReviewTarget(Struct, frozen=True):
    """A target of a review. `word` chooses it without a question."""

    word: str
    shown: str
    what: str
    commands: tuple[str, ...]


async def run(ctx: port.ExtensionContext, arguments: str) -> str | None:
    repository = await ctx.repository()
    if repository is None:
        raise port.ExtensionError("there is nothing to review: the workspace is not in a git repository")
    offered = list_targets(repository)
    if not offered:
        raise port.ExtensionError("there is nothing to review: no change and no commit")
    word, _, focus = arguments.partition(" ")
    target = next((target for target in offered if target.word == word), None)
    if target is None:
        focus = arguments
        by_name = {target.shown: target for target in offered}
        target = by_name[await ctx.ui.select("What should be reviewed?", list(by_name))]
    await ctx.notify(f"Reviewing {target.what}")
    return build_prompt(target, focus.strip())


def list_targets(repository: port.RepositoryInfo) -> list[ReviewTarget]:
    """Lists only targets that exist."""
    found = []
    if repository.changed:
        files = "1 file" if repository.changed == 1 else f"{repository.changed} files"
        # A repository without a commit has nothing to compare with.
        diff = ("git diff HEAD",) if repository.commit else ("git diff --cached", "git diff")
        commands = ("git status --short --untracked-files=all", *diff)
        found.append(
            ReviewTarget(UNCOMMITTED, f"Uncommitted changes ({files})", "the uncommitted changes, new files included", commands)
        )
    if repository.commit:
        short = repository.commit[:12]
        commands = ("git show --stat --format=fuller HEAD", "git show HEAD")
        found.append(ReviewTarget(LAST_COMMIT, f"The last commit ({short})", f"the last commit, {short}", commands))
    if repository.base and repository.ahead:
        base, branch = shlex.quote(repository.base), repository.branch or "HEAD"
        commits = "1 commit" if repository.ahead == 1 else f"{repository.ahead} commits"
        commands = (f"git log --oneline {base}..HEAD", f"git diff {base}...HEAD")
        shown = f"Branch {branch} against {repository.base} ({commits})"
        found.append(ReviewTarget(BRANCH, shown, f"what `{branch}` changes compared with `{repository.base}`", commands))
    return found


def build_prompt(target: ReviewTarget, focus: str) -> str:
    asked = _PROMPT.format(what=target.what, commands="\n".join(f"- `{command}`" for command in target.commands))
    return f"{asked}\n\nLook above all at this: {focus}" if focus else asked


EXTENSION = port.Extension(
    name="review",
    description="Reviews changes of the workspace's git repository",
    commands=(port.ExtensionCommand("review", "Review uncommitted changes, the last commit or the branch", run),),
)
