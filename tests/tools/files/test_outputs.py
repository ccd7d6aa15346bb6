"""What is too long for an answer is in a file of the workspace, and nowhere else."""

import os
import subprocess
from pathlib import Path

import pytest

from switchtower.tools.files import files


def keep_output(root: Path, call_id: str, content: bytes = b"all of it") -> str | None:
    file = files.OutputFile(str(root), call_id)
    try:
        if file.descriptor is not None:
            os.write(file.descriptor, content)
        return file.publish()
    finally:
        file.close()


def list_names(root: Path) -> list[str]:
    return sorted(entry.name for entry in (root / files.FOLDER).iterdir())


def test_an_output_that_is_kept_has_a_name_and_its_content(tmp_path: Path) -> None:
    assert keep_output(tmp_path, "call_1") == ".tower/outputs/call_1.txt"
    assert (tmp_path / ".tower/outputs/call_1.txt").read_bytes() == b"all of it"


def test_an_output_that_is_not_kept_leaves_no_trace(tmp_path: Path) -> None:
    file = files.OutputFile(str(tmp_path), "call_1")
    assert file.descriptor is not None
    os.write(file.descriptor, b"x")
    file.close()

    assert list(tmp_path.iterdir()) == []


def test_git_does_not_see_outputs(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    keep_output(tmp_path, "call_1")

    assert subprocess.run(["git", "status", "--short", "-uall"], cwd=tmp_path, capture_output=True, check=True).stdout == b""


def test_the_same_call_again_replaces_its_output(tmp_path: Path) -> None:
    keep_output(tmp_path, "call_1", b"first and longer")

    assert keep_output(tmp_path, "call_1", b"second") == ".tower/outputs/call_1.txt"
    assert (tmp_path / ".tower/outputs/call_1.txt").read_bytes() == b"second"


def test_only_the_last_twenty_are_kept_and_nothing_else_is_removed(tmp_path: Path) -> None:
    for number in range(25):
        keep_output(tmp_path, f"call_{number:02}")
        os.utime(tmp_path / f".tower/outputs/call_{number:02}.txt", (number, number))
        (tmp_path / ".tower/outputs/mine.md").touch()

    assert list_names(tmp_path) == [".gitignore", *(f"call_{number:02}.txt" for number in range(5, 25)), "mine.md"]


@pytest.mark.parametrize("call_id", ["../../escape", "a/b", "", ".", "..", "x" * 300, "a\nb", "a\0b", "ü", "-rf"])
def test_a_hostile_call_id_cannot_name_another_place(tmp_path: Path, call_id: str) -> None:
    root = tmp_path / "a/b/workspace"
    root.mkdir(parents=True)

    path = keep_output(root, call_id)

    assert path is not None
    assert path.startswith(".tower/outputs/")
    assert len(list_names(root)) == 2
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a"]


@pytest.mark.parametrize("what", ["link out", "file", "link out below", "link inside", "link inside below"])
def test_a_tower_folder_that_leads_elsewhere_is_not_touched(tmp_path: Path, what: str) -> None:
    root, outside, docs = tmp_path / "workspace", tmp_path / "outside", tmp_path / "workspace/docs"
    docs.mkdir(parents=True)
    outside.mkdir()
    for folder in (docs, docs / "outputs", outside):
        folder.mkdir(exist_ok=True)
        for number in range(30):
            (folder / f"{number}.txt").touch()
    match what:
        case "link out":
            (root / ".tower").symlink_to(outside)
        case "link out below":
            (root / ".tower").mkdir()
            (root / ".tower/outputs").symlink_to(outside)
        case "link inside":
            (root / ".tower").symlink_to("docs")
        case "link inside below":
            (root / ".tower").mkdir()
            (root / ".tower/outputs").symlink_to("../docs")
        case _:
            (root / ".tower").touch()

    assert keep_output(root, "call_1") is None
    assert len(list(outside.iterdir())) == 30
    assert len(list(docs.iterdir())) == 31
    assert len(list((docs / "outputs").iterdir())) == 30


@pytest.mark.parametrize("target", ["../../../outside", "../../inside"])
def test_a_link_under_the_files_name_is_replaced_and_not_followed(tmp_path: Path, target: str) -> None:
    root = tmp_path / "workspace"
    (root / ".tower/outputs").mkdir(parents=True)
    for file in (tmp_path / "outside", root / "inside"):
        file.write_text("untouched")
    (root / ".tower/outputs/call_1.txt").symlink_to(target)

    keep_output(root, "call_1")

    assert (tmp_path / "outside").read_text() == (root / "inside").read_text() == "untouched"
    assert not (root / ".tower/outputs/call_1.txt").is_symlink()
    assert (root / ".tower/outputs/call_1.txt").read_text() == "all of it"


def test_a_workspace_that_is_gone_is_no_reason_to_fail(tmp_path: Path) -> None:
    assert keep_output(tmp_path / "gone", "call_1") is None


def test_the_note_says_where_the_rest_is() -> None:
    text = "head\n[… 100 bytes left out …]\ntail"

    assert (
        files.add_output_path(text, 300, 300, 200, "x.txt")
        == "head\n[… 100 bytes left out; the whole output is in `x.txt` …]\ntail"
    )
    assert "; its first 250 bytes are in `x.txt` …]" in files.add_output_path(text, 300, 250, 200, "x.txt")
    assert files.add_output_path(text, 300, 0, 200, None) == text
