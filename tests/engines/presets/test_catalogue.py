"""Presets are found by name in the workspace and in the user's folder, and read only from where they may be."""

import os
from pathlib import Path

import pytest

from switchtower.core import redact
from switchtower.engines.agent.presets.catalogue import Presets


def of_workspace(workspace: Path, name: str, text: str) -> Path:
    path = workspace / ".tower" / "presets" / name
    path.write_text(text)
    return path


def of_user(user_folder: Path, name: str, text: str) -> Path:
    path = user_folder / "presets" / name
    path.write_text(text)
    return path


def problem(presets: Presets, name: str, workspace: Path) -> str:
    found = presets.find(name, str(workspace))
    assert found is not None
    assert found.said.system is None
    return found.problem


def test_both_places_are_listed_and_the_user_s_has_the_name(presets: Presets, workspace: Path, user_folder: Path) -> None:
    of_workspace(workspace, "review.toml", 'description = "theirs"')
    of_workspace(workspace, "Bad Name.toml", "")
    of_workspace(workspace, "notes.md", "")
    of_user(user_folder, "review.toml", 'description = "mine"')
    of_user(user_folder, "write.toml", 'description = "to write"\npolicy = "yolo"')
    of_user(user_folder, "broken.toml", "x")

    listed = presets.listed(str(workspace))

    assert [(found.name, found.origin, found.said.description, bool(found.problem)) for found in listed] == [
        ("broken", "user", "", True),
        ("review", "user", "mine", False),
        ("workspace:review", "workspace", "theirs", False),
        ("write", "user", "to write", False),
    ]
    assert listed[0].problem.startswith(f"`{user_folder}/presets/broken.toml` cannot be used: it is not TOML")
    assert [found.name for found in listed] == presets.names(str(workspace))


def test_a_preset_can_be_named_with_where_it_is_from(presets: Presets, workspace: Path, user_folder: Path) -> None:
    of_user(user_folder, "review.toml", 'system = "mine"')

    for name in ("review", "user:review"):
        found = presets.find(name, str(workspace))
        assert found is not None
        assert (found.taken.name, found.taken.origin, found.taken.system) == (name, "user", "mine")
    assert presets.find("workspace:review", str(workspace)) is None


@pytest.mark.parametrize(
    "name", ["", "nobody", "../review", "a/b", "review.toml", "REVIEW", "x:review", "user:", "a\0b", "é" * 300]
)
def test_a_name_that_is_none_finds_nothing(presets: Presets, workspace: Path, name: str) -> None:
    of_workspace(workspace, "review.toml", "")
    assert presets.find(name, str(workspace)) is None


def test_a_file_is_read_anew_each_time(presets: Presets, workspace: Path) -> None:
    path = of_workspace(workspace, "review.toml", 'model = "a"')
    first = presets.find("review", str(workspace))
    path.write_text('model = "b"')
    second = presets.find("review", str(workspace))
    path.unlink()

    assert (first and first.said.model, second and second.said.model) == ("a", "b")
    assert presets.find("review", str(workspace)) is None


def test_without_folders_there_are_no_presets(tmp_path: Path) -> None:
    assert Presets(None, redact.Redactor()).listed(str(tmp_path)) == []
    assert Presets(tmp_path / "nowhere", redact.Redactor()).listed(str(tmp_path / "nothing")) == []


def test_a_system_text_can_stand_in_a_file_beside_the_preset(presets: Presets, workspace: Path, user_folder: Path) -> None:
    (workspace / ".tower/presets/texts").mkdir()
    of_workspace(workspace, "texts/review.md", "\nYou are a reviewer.\n")
    of_workspace(workspace, "review.toml", 'system_file = "texts/review.md"')
    of_user(user_folder, "write.md", "You write.")
    of_user(user_folder, "write.toml", 'system_file = "write.md"')

    found = {preset.name: preset.taken.system for preset in presets.listed(str(workspace))}
    assert found == {"review": "You are a reviewer.", "write": "You write."}


@pytest.mark.parametrize(
    "path", ["../../secret.txt", "/etc/hostname", "", ".", "..", "missing.md", "link.md", "out.md", "loop.md"]
)
def test_a_system_file_of_the_workspace_lies_in_the_preset_s_own_folder(presets: Presets, workspace: Path, path: str) -> None:
    (workspace / "secret.txt").write_text("INSIDE THE WORKSPACE")
    folder = workspace / ".tower" / "presets"
    (folder / "link.md").symlink_to("../../secret.txt")
    (folder / "out.md").symlink_to(workspace.parent / "outside.txt")
    (folder / "loop.md").symlink_to("loop.md")
    of_workspace(workspace, "review.toml", f'system_file = "{path}"')

    told = problem(presets, "review", workspace)
    assert told.startswith("`.tower/presets/review.toml` cannot be used: `system_file`")
    assert "INSIDE" not in told


def test_a_system_file_of_the_user_is_not_named_by_a_way_out_of_the_folder(
    presets: Presets, workspace: Path, user_folder: Path
) -> None:
    for path in ("../../outside.txt", str(workspace.parent / "outside.txt")):
        of_user(user_folder, "far.toml", f'system_file = "{path}"')
        assert "is not a path inside the preset's own folder" in problem(presets, "far", workspace)


def test_a_link_in_the_user_s_folder_is_the_user_s_word(presets: Presets, workspace: Path, user_folder: Path) -> None:
    (user_folder / "presets" / "far.md").symlink_to(workspace.parent / "outside.txt")
    of_user(user_folder, "far.toml", 'system_file = "far.md"')

    found = presets.find("far", str(workspace))
    assert found is not None
    assert found.taken.system == "OUTSIDE"


def test_a_preset_that_is_a_link_out_of_the_workspace_is_refused(presets: Presets, workspace: Path) -> None:
    outside = workspace.parent / "outside.toml"
    outside.write_text('system = "OUTSIDE"')
    (workspace / ".tower/presets/out.toml").symlink_to(outside)

    assert "`.tower/presets/out.toml` cannot be used" in problem(presets, "out", workspace)


def test_files_that_are_no_text_or_too_long_are_refused_at_once(presets: Presets, workspace: Path) -> None:
    folder = workspace / ".tower" / "presets"
    os.mkfifo(folder / "pipe.toml")
    (folder / "folder.toml").mkdir()
    (folder / "binary.toml").write_bytes(b"\x00\x01\x02")
    (folder / "latin.toml").write_bytes(b'description = "caf\xe9"')
    (folder / "long.toml").write_text("#" * 65_537)
    (folder / "text.md").write_text("x" * 65_537)
    (folder / "longer.toml").write_text('system_file = "text.md"')

    listed = {found.name: found.problem for found in presets.listed(str(workspace))}

    assert listed.keys() == {"pipe", "folder", "binary", "latin", "long", "longer"}
    assert all("cannot be used" in problem for problem in listed.values())
    assert "longer than 64 KiB" in listed["long"]
    assert "`system_file` is longer than 64 KiB" in listed["longer"]
