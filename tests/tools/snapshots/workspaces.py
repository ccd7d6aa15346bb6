"""The kinds of workspace that checkpoints are taken of."""

from collections.abc import Callable
from pathlib import Path

from tests.tools.git.repositories import make_repository, run_git, write

SESSION = "sess_01"
MakeWorkspace = Callable[[dict[str, str | bytes]], Path]


def make(kind: str, tmp_path: Path, files: dict[str, str | bytes]) -> Path:
    """A workspace of that kind, with the files in it."""
    workspace = tmp_path / "workspace"
    match kind:
        case "plain folder":
            workspace.mkdir()
        case "repository":
            make_repository(workspace, {"committed.txt": "committed\n"})
        case "subfolder of a repository":
            make_repository(tmp_path / "above", {"committed.txt": "above\n", "sub/committed.txt": "committed\n"})
            workspace = tmp_path / "above" / "sub"
        case "repository without commits":
            make_repository(workspace)
        case "worktree":
            make_repository(tmp_path / "origin", {"committed.txt": "committed\n"})
            run_git(tmp_path / "origin", "worktree", "add", "--quiet", str(workspace))
        case _:
            raise AssertionError(kind)
    write(workspace, files)
    return workspace
