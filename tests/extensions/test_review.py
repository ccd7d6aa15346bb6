"""`/review`: what it offers in which repository, and the prompt that it makes."""

import pytest
from tests.extensions.parts import DialogResponder

from switchtower.core.ports import engine
from switchtower.extensions import port, review
from switchtower.extensions.ui import RunContextUi

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FULL = port.RepositoryInfo(branch="feature", commit=COMMIT, changed=2, base="main", ahead=3)


class ReviewExtensionContext:
    """Implements `port.ExtensionContext` with a repository that is told to it."""

    workspace = "/work"
    session_id = "sess_1"

    def __init__(self, repository: port.RepositoryInfo | None, person: DialogResponder, *, headless: bool = False) -> None:
        self.ui: port.Ui = RunContextUi(person.consult, lambda: 0, timeout=60, headless=headless)
        self.notes: list[str] = []
        self._repository = repository

    async def notify(self, text: str) -> None:
        self.notes.append(text)

    async def repository(self) -> port.RepositoryInfo | None:
        return self._repository


@pytest.mark.parametrize(
    ("repository", "options"),
    [
        (FULL, ["Uncommitted changes (2 files)", "The last commit (0123456789ab)", "Branch feature against main (3 commits)"]),
        (port.RepositoryInfo(branch="main", commit=COMMIT), ["The last commit (0123456789ab)"]),
        (port.RepositoryInfo(branch="main", commit=None, changed=1), ["Uncommitted changes (1 file)"]),
        (
            port.RepositoryInfo(branch=None, commit=COMMIT, base="origin/main", ahead=1),
            ["The last commit (0123456789ab)", "Branch HEAD against origin/main (1 commit)"],
        ),
        (port.RepositoryInfo(branch="feature", commit=COMMIT, base="main", ahead=0), ["The last commit (0123456789ab)"]),
    ],
)
async def test_only_what_makes_sense_in_this_repository_is_offered(repository: port.RepositoryInfo, options: list[str]) -> None:
    person = DialogResponder({"value": options[-1]})

    prompt = await review.run(ReviewExtensionContext(repository, person), "")

    [asked] = person.asked
    assert (asked.method, asked.title, list(asked.options)) == ("select", "What should be reviewed?", options)
    assert prompt is not None
    assert "Change nothing; this is a review." in prompt


@pytest.mark.parametrize(
    ("choice", "commands"),
    [
        (0, ["git status --short --untracked-files=all", "git diff HEAD"]),
        (1, ["git show --stat --format=fuller HEAD", "git show HEAD"]),
        (2, ["git log --oneline main..HEAD", "git diff main...HEAD"]),
    ],
)
async def test_the_prompt_has_the_right_commands_and_what_to_look_at(choice: int, commands: list[str]) -> None:
    person = DialogResponder({"value": review.list_targets(FULL)[choice].shown})

    prompt = await review.run(desk := ReviewExtensionContext(FULL, person), "locking")

    assert prompt is not None
    assert [line[3:-1] for line in prompt.splitlines() if line.startswith("- `")] == commands
    assert prompt.endswith("Look above all at this: locking")
    assert desk.notes == [f"Reviewing {review.list_targets(FULL)[choice].what}"]


async def test_before_the_first_commit_there_is_no_head_to_compare_with() -> None:
    [target] = review.list_targets(port.RepositoryInfo(branch="main", commit=None, changed=1))

    assert target.commands == ("git status --short --untracked-files=all", "git diff --cached", "git diff")


async def test_whoever_names_it_is_not_asked_not_even_headless() -> None:
    person = DialogResponder()

    prompt = await review.run(ReviewExtensionContext(FULL, person, headless=True), "branch the tests")

    assert person.asked == []
    assert prompt is not None
    assert "git diff main...HEAD" in prompt
    assert prompt.endswith("the tests")


async def test_a_branch_with_a_hostile_name_stays_one_word_of_a_command() -> None:
    repository = port.RepositoryInfo(branch="x", commit=COMMIT, base="a;rm$IFS-rf", ahead=1)

    assert review.list_targets(repository)[-1].commands[1] == "git diff 'a;rm$IFS-rf'...HEAD"


@pytest.mark.parametrize(
    ("repository", "reason"),
    [(None, "not in a git repository"), (port.RepositoryInfo(branch="main", commit=None), "no change and no commit")],
)
async def test_where_there_is_nothing_to_review_it_says_so(repository: port.RepositoryInfo | None, reason: str) -> None:
    with pytest.raises(port.ExtensionError, match=reason):
        await review.run(ReviewExtensionContext(repository, DialogResponder()), "")


async def test_nobody_there_to_choose_ends_it() -> None:
    with pytest.raises(port.DialogFailed, match="headless"):
        await review.run(ReviewExtensionContext(FULL, DialogResponder(), headless=True), "")
    with pytest.raises(port.DialogDismissed):
        await review.run(ReviewExtensionContext(FULL, DialogResponder(engine.DialogAnswer(None, "dismissed"))), "")
