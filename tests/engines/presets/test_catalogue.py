"""Presets are found by name in the workspace and in the user's folder, and read only from where they may be."""

import os
from pathlib import Path

import pytest

from switchtower.core import redact
from switchtower.engines.agent.presets import PresetCatalog


def write_workspace_preset(workspace: Path, name: str, text: str) -> Path:
    path = workspace / ".tower" / "presets" / name
    path.write_text(text)
    return path


def write_user_preset(user_folder: Path, name: str, text: str) -> Path:
    path = user_folder / "presets" / name
    path.write_text(text)
    return path


def get_problem(presets: PresetCatalog, name: str, workspace: Path) -> str:
    found = presets.find_preset(name, str(workspace))
    assert found is not None
    assert found.parsed.system is None
    return found.problem


def test_both_places_are_listed_and_the_user_s_has_the_name(presets: PresetCatalog, workspace: Path, user_folder: Path) -> None:
    write_workspace_preset(workspace, "review.toml", 'description = "theirs"')
    write_workspace_preset(workspace, "Bad Name.toml", "")
    write_workspace_preset(workspace, "notes.md", "")
    write_user_preset(user_folder, "review.toml", 'description = "mine"')
    write_user_preset(user_folder, "write.toml", 'description = "to write"\npolicy = "yolo"')
    write_user_preset(user_folder, "broken.toml", "x")

    listed = presets.list_presets(str(workspace))

    assert [(found.name, found.origin, found.parsed.description, bool(found.problem)) for found in listed] == [
        ("broken", "user", "", True),
        ("review", "user", "mine", False),
        ("workspace:review", "workspace", "theirs", False),
        ("write", "user", "to write", False),
    ]
    assert listed[0].problem.startswith(f"`{user_folder}/presets/broken.toml` cannot be used: it is not TOML")
    assert [found.name for found in listed] == presets.list_names(str(workspace))


def test_a_preset_can_be_named_with_where_it_is_from(presets: PresetCatalog, workspace: Path, user_folder: Path) -> None:
    write_user_preset(user_folder, "review.toml", 'system = "mine"')

    for name in ("review", "user:review"):
        found = presets.find_preset(name, str(workspace))
        assert found is not None
        assert (found.preset.name, found.preset.origin, found.preset.system) == (name, "user", "mine")
    assert presets.find_preset("workspace:review", str(workspace)) is None


@pytest.mark.parametrize(
    "name", ["", "nobody", "../review", "a/b", "review.toml", "REVIEW", "x:review", "user:", "a\0b", "é" * 300]
)
def test_a_name_that_is_none_finds_nothing(presets: PresetCatalog, workspace: Path, name: str) -> None:
    write_workspace_preset(workspace, "review.toml", "")
    assert presets.find_preset(name, str(workspace)) is None


def test_a_file_is_read_anew_each_time(presets: PresetCatalog, workspace: Path) -> None:
    path = write_workspace_preset(workspace, "review.toml", 'model = "a"')
    first = presets.find_preset("review", str(workspace))
    path.write_text('model = "b"')
    second = presets.find_preset("review", str(workspace))
    path.unlink()

    assert (first and first.parsed.model, second and second.parsed.model) == ("a", "b")
    assert presets.find_preset("review", str(workspace)) is None


def test_without_folders_there_are_no_presets(tmp_path: Path) -> None:
    assert PresetCatalog(None, redact.Redactor()).list_presets(str(tmp_path)) == []
    assert PresetCatalog(tmp_path / "nowhere", redact.Redactor()).list_presets(str(tmp_path / "nothing")) == []


def test_a_system_text_can_stand_in_a_file_beside_the_preset(presets: PresetCatalog, workspace: Path, user_folder: Path) -> None:
    (workspace / ".tower/presets/texts").mkdir()
    write_workspace_preset(workspace, "texts/review.md", "\nYou are a reviewer.\n")
    write_workspace_preset(workspace, "review.toml", 'system_file = "texts/review.md"')
    write_user_preset(user_folder, "write.md", "You write.")
    write_user_preset(user_folder, "write.toml", 'system_file = "write.md"')

    found = {preset.name: preset.preset.system for preset in presets.list_presets(str(workspace))}
    assert found == {"review": "You are a reviewer.", "write": "You write."}


@pytest.mark.parametrize(
    "path", ["../../secret.txt", "/etc/hostname", "", ".", "..", "missing.md", "link.md", "out.md", "loop.md"]
)
def test_a_system_file_of_the_workspace_lies_in_the_preset_s_own_folder(
    presets: PresetCatalog, workspace: Path, path: str
) -> None:
    (workspace / "secret.txt").write_text("INSIDE THE WORKSPACE")
    folder = workspace / ".tower" / "presets"
    (folder / "link.md").symlink_to("../../secret.txt")
    (folder / "out.md").symlink_to(workspace.parent / "outside.txt")
    (folder / "loop.md").symlink_to("loop.md")
    write_workspace_preset(workspace, "review.toml", f'system_file = "{path}"')

    told = get_problem(presets, "review", workspace)
    assert told.startswith("`.tower/presets/review.toml` cannot be used: `system_file`")
    assert "INSIDE" not in told


def test_a_system_file_of_the_user_is_not_named_by_a_way_out_of_the_folder(
    presets: PresetCatalog, workspace: Path, user_folder: Path
) -> None:
    for path in ("../../outside.txt", str(workspace.parent / "outside.txt")):
        write_user_preset(user_folder, "far.toml", f'system_file = "{path}"')
        assert "is not a path inside the preset's own folder" in get_problem(presets, "far", workspace)


def test_a_link_in_the_user_s_folder_is_the_user_s_word(presets: PresetCatalog, workspace: Path, user_folder: Path) -> None:
    (user_folder / "presets" / "far.md").symlink_to(workspace.parent / "outside.txt")
    write_user_preset(user_folder, "far.toml", 'system_file = "far.md"')

    found = presets.find_preset("far", str(workspace))
    assert found is not None
    assert found.preset.system == "OUTSIDE"


def test_a_preset_that_is_a_link_out_of_the_workspace_is_refused(presets: PresetCatalog, workspace: Path) -> None:
    outside = workspace.parent / "outside.toml"
    outside.write_text('system = "OUTSIDE"')
    (workspace / ".tower/presets/out.toml").symlink_to(outside)

    assert "`.tower/presets/out.toml` cannot be used" in get_problem(presets, "out", workspace)


def test_files_that_are_no_text_or_too_long_are_refused_at_once(presets: PresetCatalog, workspace: Path) -> None:
    folder = workspace / ".tower" / "presets"
    os.mkfifo(folder / "pipe.toml")
    (folder / "folder.toml").mkdir()
    (folder / "binary.toml").write_bytes(b"\x00\x01\x02")
    (folder / "latin.toml").write_bytes(b'description = "caf\xe9"')
    (folder / "long.toml").write_text("#" * 65_537)
    (folder / "text.md").write_text("x" * 65_537)
    (folder / "longer.toml").write_text('system_file = "text.md"')

    listed = {found.name: found.problem for found in presets.list_presets(str(workspace))}

    assert listed.keys() == {"pipe", "folder", "binary", "latin", "long", "longer"}
    assert all("cannot be used" in problem for problem in listed.values())
    assert "longer than 64 KiB" in listed["long"]
    assert "`system_file` is longer than 64 KiB" in listed["longer"]
