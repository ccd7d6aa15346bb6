"""What extensions are told of the workspace's repository, by real git; and `/review` in real repositories."""

import subprocess
from pathlib import Path

import pytest
from tests.engines.parts import MakeAgent, MakeDesk, MakeTask, ScriptedModel

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.engines.agent import extensions
from switchtower.models import port


def run_git(folder: Path, *args: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *args], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder: Path, name: str) -> str:
    (folder / name).write_text(name)
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "-qm", name)
    return run_git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    run_git(tmp_path, "init", "-q")
    return tmp_path


async def test_outside_a_repository_there_is_nothing_to_tell(make_task: MakeTask) -> None:
    assert await extensions.read_repository(make_task("x")) is None


async def test_before_the_first_commit(make_task: MakeTask, repository: Path) -> None:
    (repository / "new file.txt").write_text("x")

    found = await extensions.read_repository(make_task("x"))

    assert found is not None
    assert (found.branch, found.commit, found.changed, found.base, found.ahead) == ("main", None, 1, None, 0)


async def test_changed_and_new_files_are_counted_and_the_base_has_no_base(make_task: MakeTask, repository: Path) -> None:
    head = commit(repository, "a.txt")
    commit_b = commit(repository, "b.txt")
    (repository / "a.txt").write_text("changed")
    (repository / "folder").mkdir()
    (repository / "folder" / "c.txt").write_text("new")
    (repository / "folder" / "d.txt").write_text("new")

    found = await extensions.read_repository(make_task("x"))

    assert found is not None
    assert head != commit_b
    assert (found.branch, found.commit, found.changed, found.base, found.ahead) == ("main", commit_b, 3, None, 0)


async def test_a_branch_knows_how_far_it_has_gone_from_its_base(make_task: MakeTask, repository: Path) -> None:
    commit(repository, "a.txt")
    run_git(repository, "checkout", "-qb", "feature/x")
    commit(repository, "b.txt")
    commit(repository, "c.txt")

    found = await extensions.read_repository(make_task("x"))

    assert found is not None
    assert (found.branch, found.changed, found.base, found.ahead) == ("feature/x", 0, "main", 2)


async def test_the_remotes_default_branch_goes_before_the_usual_names(make_task: MakeTask, repository: Path) -> None:
    first = commit(repository, "a.txt")
    run_git(repository, "update-ref", "refs/remotes/origin/stable", first)
    run_git(repository, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/stable")
    run_git(repository, "checkout", "-qb", "feature")
    commit(repository, "b.txt")

    found = await extensions.read_repository(make_task("x"))

    assert found is not None
    assert (found.base, found.ahead) == ("origin/stable", 1)


async def test_what_the_session_was_told_is_its_base(make_task: MakeTask, repository: Path) -> None:
    commit(repository, "a.txt")
    run_git(repository, "branch", "release")
    commit(repository, "b.txt")
    workspace = events.Workspace(root=str(repository), default_branch="release")

    found = await extensions.read_repository(make_task("x", workspace=workspace))

    assert found is not None
    assert (found.base, found.ahead) == ("release", 1)


async def test_a_detached_head_has_no_branch(make_task: MakeTask, repository: Path) -> None:
    commit(repository, "a.txt")
    run_git(repository, "checkout", "-q", "--detach")
    commit(repository, "b.txt")

    found = await extensions.read_repository(make_task("x"))

    assert found is not None
    assert (found.branch, found.base, found.ahead) == (None, "main", 1)


async def test_nothing_that_the_repository_names_is_run(make_task: MakeTask, repository: Path) -> None:
    (repository / ".gitattributes").write_text("* filter=evil diff=evil\n")
    commit(repository, "a.txt")
    ran = repository / "ran"
    for key in ("core.fsmonitor", "filter.evil.clean", "filter.evil.process", "diff.evil.command", "core.sshCommand"):
        run_git(repository, "config", key, f"touch {ran}; false")
    (repository / "a.txt").write_text("changed")

    found = await extensions.read_repository(make_task("x"))

    assert found is not None
    assert found.changed == 1
    assert not ran.exists()


async def test_a_broken_repository_is_none(make_task: MakeTask, tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")

    assert await extensions.read_repository(make_task("x")) is None


async def test_the_shipped_review_asks_what_to_review_in_a_real_repository(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, repository: Path
) -> None:
    commit(repository, "a.txt")
    run_git(repository, "checkout", "-qb", "feature")
    head = commit(repository, "b.txt")
    (repository / "b.txt").write_text("changed")
    model = ScriptedModel([port.TextPart("all is well")])
    desk = make_run_context(dialogs=[engine.DialogAnswer({"value": "Branch feature against main (1 commit)"})])

    result = await agent(model).run(make_task("/review naming"), desk)

    assert result == engine.RunResult(events.Outcome.SUCCESS, "all is well")
    [asked] = desk.dialogs
    assert asked.options == (
        "Uncommitted changes (1 file)",
        f"The last commit ({head[:12]})",
        "Branch feature against main (1 commit)",
    )
    told = model.conversations[0][-1].text
    assert "git diff main...HEAD" in told
    assert told.endswith("Look above all at this: naming")
    assert [expanded.sources for expanded in desk.list_events(events.PromptExpanded)] == [("extension:review",)]


async def test_a_review_without_a_repository_fails_with_its_reason(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    result = await agent().run(make_task("/review"), make_run_context())

    assert result.outcome is events.Outcome.FAILED
    assert result.summary == "`/review` cannot go on: there is nothing to review: the workspace is not in a git repository"
