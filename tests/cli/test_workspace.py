"""A folder's branches, read from the files that git itself writes."""

import subprocess
from pathlib import Path

import pytest

from switchtower.client import workspace


def run_git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    run_git(folder, "init", "-b", "trunk")
    run_git(folder, "commit", "--allow-empty", "-m", "first")
    return folder


def test_a_plain_folder_has_no_branches(tmp_path: Path) -> None:
    repo = workspace.describe_repo(tmp_path)

    assert (repo.rootPath, repo.currentBranch, repo.defaultBranch) == (str(tmp_path.resolve()), None, None)


def test_the_current_branch_is_found_from_a_subfolder(repository: Path) -> None:
    run_git(repository, "switch", "-c", "feature/x")
    inner = repository / "a" / "b"
    inner.mkdir(parents=True)

    repo = workspace.describe_repo(inner)

    assert (repo.rootPath, repo.currentBranch) == (str(inner.resolve()), "feature/x")


def test_a_detached_head_has_no_branch(repository: Path) -> None:
    run_git(repository, "checkout", "--detach")

    assert workspace.describe_repo(repository).currentBranch == "HEAD"


def test_the_default_branch_is_the_clone_s_origin_head_also_in_a_worktree(repository: Path, tmp_path: Path) -> None:
    clone, tree = tmp_path / "clone", tmp_path / "tree"
    run_git(tmp_path, "clone", str(repository), str(clone))
    run_git(clone, "worktree", "add", "-b", "side", str(tree))

    assert workspace.describe_repo(clone).defaultBranch == "trunk"
    assert (workspace.describe_repo(tree).currentBranch, workspace.describe_repo(tree).defaultBranch) == ("side", "trunk")
