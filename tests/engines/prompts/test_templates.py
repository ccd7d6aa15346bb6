"""Skills and prompts are found where they lie, have the names that their places give them, and nobody's is hijacked."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from switchtower.engines.agent.prompts import folders, frontmatter, templates
from switchtower.engines.agent.prompts.shelf import Shelf

Put = Callable[[Path, str], None]


def names(shelf: Shelf, workspace: Path) -> list[str]:
    return [template.name for template in shelf.listed(str(workspace))]


def test_skills_and_prompts_are_listed_from_both_places(shelf: Shelf, workspace: Path, user_folder: Path, put: Put) -> None:
    put(workspace / ".tower/skills/release.md", "# How to release\nTag it.")
    put(workspace / ".tower/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: Work with PDF files\n---\nUse a library.")
    put(workspace / ".tower/prompts/fix.md", "---\ndescription: 'Fix an issue'\narguments: NUMBER\n---\nFix issue $1.")
    put(user_folder / "skills/git/rebase.md", "Rebase carefully.")
    put(user_folder / "prompts/review.md", "\n\n## Review\n\nLook at it.")

    assert shelf.listed(str(workspace)) == (
        templates.Template("fix", "prompt", "Fix an issue", ".tower/prompts/fix.md", "workspace", "NUMBER"),
        templates.Template("git:rebase", "skill", "Rebase carefully.", f"{user_folder}/skills/git/rebase.md", "user"),
        templates.Template("pdf", "skill", "Work with PDF files", ".tower/skills/pdf/SKILL.md", "workspace"),
        templates.Template("release", "skill", "How to release", ".tower/skills/release.md", "workspace"),
        templates.Template("review", "prompt", "Review", f"{user_folder}/prompts/review.md", "user"),
    )


def test_nothing_is_listed_where_there_is_nothing(tmp_path: Path, workspace: Path) -> None:
    assert Shelf(None).listed(str(workspace)) == ()
    assert Shelf(tmp_path / "gone").listed(str(tmp_path / "gone too")) == ()
    assert Shelf(Path("\0")).listed("\0") == ()


def test_the_users_template_keeps_its_name_and_the_workspaces_says_where_it_is_from(
    shelf: Shelf, workspace: Path, user_folder: Path, put: Put
) -> None:
    put(user_folder / "prompts/review.md", "the user's")
    put(workspace / ".tower/prompts/review.md", "the workspace's")

    assert names(shelf, workspace) == ["review", "workspace:review"]
    assert shelf.expand("/review", str(workspace)).text == "the user's"
    assert shelf.expand("/workspace:review", str(workspace)).text == "the workspace's"


def test_a_workspace_cannot_take_a_users_name_by_saying_it_in_front_matter(
    shelf: Shelf, workspace: Path, user_folder: Path, put: Put
) -> None:
    put(user_folder / "skills/review.md", "the user's")
    put(workspace / ".tower/prompts/harmless.md", "---\nname: review\n---\nthe workspace's")

    assert names(shelf, workspace) == ["review", "workspace:review"]
    assert "the user's" in shelf.expand("/review", str(workspace)).text


@pytest.mark.parametrize("claimed", ["user", "workspace"])
def test_no_folder_can_pass_for_an_origin(shelf: Shelf, workspace: Path, put: Put, claimed: str) -> None:
    put(workspace / f".tower/prompts/{claimed}/review.md", "pretended")
    put(workspace / f".tower/prompts/{claimed}.md", "pretended")
    put(workspace / ".tower/prompts/x.md", f"---\nname: {claimed}\n---\npretended")

    assert names(shelf, workspace) == []
    assert "cannot begin with" in shelf.expand(f"/{claimed}:review", str(workspace)).problems[0]


def test_of_a_prompt_and_a_skill_with_one_name_both_can_be_called(
    shelf: Shelf, workspace: Path, user_folder: Path, put: Put
) -> None:
    for folder in (user_folder, workspace / ".tower"):
        put(folder / "prompts/x.md", f"prompt in {folder.name}")
        put(folder / "skills/x.md", f"skill in {folder.name}")
        put(folder / "skills/x/SKILL.md", "never reached: it has the same name and kind and lies deeper")

    assert names(shelf, workspace) == ["user:skill:x", "user:x", "workspace:skill:x", "workspace:x", "x"]
    assert shelf.expand("/x", str(workspace)).text == "prompt in user"
    assert "skill in user" in shelf.expand("/user:x", str(workspace)).text
    assert shelf.expand("/workspace:x", str(workspace)).text == "prompt in .tower"
    assert "skill in .tower" in shelf.expand("/workspace:skill:x", str(workspace)).text


def test_files_beside_a_skill_are_its_own_and_no_skills(shelf: Shelf, workspace: Path, put: Put) -> None:
    put(workspace / ".tower/skills/pdf/SKILL.md", "the skill")
    put(workspace / ".tower/skills/pdf/forms.md", "about forms")
    put(workspace / ".tower/skills/pdf/deeper/SKILL.md", "no skill either")
    put(workspace / ".tower/prompts/pdf/SKILL.md", "prompts have no such files")

    assert names(shelf, workspace) == ["pdf"]


@pytest.mark.parametrize(
    "name",
    [
        "Review.md",
        "README.md",
        "two words.md",
        "-x.md",
        ".hidden.md",
        "x.txt",
        "x",
        "a:b.md",
        "ü.md",
        "x.md.md",
        "x\n.md",
        f"{'x' * 65}.md",
    ],
)
def test_a_file_whose_name_could_not_be_typed_as_a_command_is_none(shelf: Shelf, workspace: Path, put: Put, name: str) -> None:
    put(workspace / ".tower/prompts" / name, "text")

    assert names(shelf, workspace) == []


@pytest.mark.parametrize(
    "name", ["../../outside", "..", "/etc/passwd", "a:b", "A", "", "two words", "x\ny", "$(id)", ".", "x" * 65, "'"]
)
def test_a_name_in_front_matter_that_could_not_be_typed_does_not_count(
    shelf: Shelf, workspace: Path, put: Put, name: str
) -> None:
    put(workspace / ".tower/prompts/x.md", f"---\nname: {name}\n---\ntext")

    assert names(shelf, workspace) == ["x"]


@pytest.mark.parametrize("call", ["/../../outside", "/..", "/skills/../x", "/x/../../outside", "/%2e%2e", "/:x", "/x:", "/x::y"])
def test_a_call_is_a_name_and_never_a_path(shelf: Shelf, workspace: Path, put: Put, call: str) -> None:
    put(workspace / ".tower/prompts/x.md", "text")
    put(workspace.parent / "outside.md", "OUTSIDE")

    assert shelf.expand(call, str(workspace)).text == call


def test_a_link_out_of_the_workspace_is_no_template_and_says_so_when_called(shelf: Shelf, workspace: Path, put: Put) -> None:
    put(workspace.parent / "elsewhere/x.md", "OUTSIDE")
    put(workspace / "inside/y.md", "inside")
    (workspace / ".tower" / "prompts").mkdir(parents=True)
    (workspace / ".tower/prompts/file.md").symlink_to("../../../elsewhere/x.md")
    (workspace / ".tower/prompts/folder").symlink_to("../../../elsewhere")
    (workspace / ".tower/prompts/linked").symlink_to("../../inside")
    (workspace / ".tower/skills").symlink_to("../../elsewhere")

    assert names(shelf, workspace) == ["linked:y"]
    expanded = shelf.expand("/file", str(workspace))
    assert expanded.text == "/file"
    assert "is outside the workspace" in expanded.problems[0]


def test_the_users_own_folder_may_be_made_of_links(workspace: Path, tmp_path: Path, put: Put) -> None:
    put(tmp_path / "dotfiles/x.md", "from the dotfiles")
    put(tmp_path / "dotfiles/more/y.md", "more of them")
    (tmp_path / "home" / "prompts").mkdir(parents=True)
    (tmp_path / "home/prompts/x.md").symlink_to("../../dotfiles/x.md")
    (tmp_path / "home/skills").symlink_to(tmp_path / "dotfiles/more")
    (tmp_path / "alias").symlink_to("home")
    shelf = Shelf(tmp_path / "alias")

    assert names(shelf, workspace) == ["x", "y"]
    assert shelf.expand("/x", str(workspace)).text == "from the dotfiles"
    assert shelf.skill("y", str(workspace)) == "more of them"


def test_a_secret_behind_a_link_is_read_from_neither_folder(shelf: Shelf, workspace: Path, user_folder: Path, put: Put) -> None:
    put(workspace / ".env", "HUSH")
    for folder in (user_folder, workspace / ".tower"):
        (folder / "prompts").mkdir(parents=True)
        (folder / "prompts" / "x.md").symlink_to(workspace / ".env")

    assert names(shelf, workspace) == []
    assert "holds secrets" in shelf.expand("/x", str(workspace)).problems[0]


def test_what_cannot_be_a_template_says_so_when_it_is_called(shelf: Shelf, workspace: Path, put: Put) -> None:
    prompts = workspace / ".tower/prompts"
    put(prompts / "big.md", "x" * (templates.TEMPLATE_LIMIT + 1))
    put(prompts / "fits.md", "x" * templates.TEMPLATE_LIMIT)
    put(prompts / "empty.md", "---\nname: empty\n---\n  \n")
    (prompts / "binary.md").write_bytes(b"\0\1")
    (prompts / "latin.md").write_bytes(b"\xff\xfe")
    os.mkfifo(prompts / "pipe.md")

    assert names(shelf, workspace) == ["fits"]
    for name in ("big", "empty", "binary", "latin", "pipe"):
        expanded = shelf.expand(f"/{name} go", str(workspace))
        assert expanded.text == f"/{name} go"
        assert expanded.problems[0].startswith(f"`.tower/prompts/{name}.md` cannot be used: ")


def test_a_template_that_has_grown_since_it_was_listed_is_not_cut_but_refused(workspace: Path, put: Put) -> None:
    put(workspace / ".tower/prompts/x.md", "small")
    template = templates.catalogue(str(workspace), None).templates["x"]
    put(workspace / ".tower/prompts/x.md", "x" * (templates.TEMPLATE_LIMIT + 1))

    with pytest.raises(Exception, match="longer than 64 KiB"):
        templates.text_of(template, str(workspace), None)


def test_so_many_names_are_looked_at_and_no_more(shelf: Shelf, workspace: Path, user_folder: Path, put: Put) -> None:
    for number in range(folders.MOST_SCANNED + 50):
        put(workspace / f".tower/prompts/p{number}.md", "text")
    put(user_folder / "prompts/mine.md", "the user's own")

    listed = names(shelf, workspace)
    assert len(listed) == folders.MOST_SCANNED + 1
    assert "mine" in listed


def test_names_in_inner_folders_count_too(shelf: Shelf, workspace: Path, put: Put) -> None:
    for number in range(300):
        put(workspace / f".tower/prompts/one/p{number}.md", "text")
        put(workspace / f".tower/prompts/two/p{number}.md", "text")

    assert len(names(shelf, workspace)) == folders.MOST_SCANNED - 2


def test_folders_count_as_deep_as_a_name_may_be_and_circles_end(shelf: Shelf, workspace: Path, put: Put) -> None:
    deep = workspace / ".tower/prompts"
    for depth in range(1, 40):
        put(deep / f"x{depth}.md", "text")
        deep = deep / "d"
    (workspace / ".tower/skills").mkdir()
    (workspace / ".tower/skills/round").symlink_to(".")

    assert names(shelf, workspace) == ["d:d:d:x4", "d:d:x3", "d:x2", "x1"]


def test_a_description_stays_on_one_short_line(shelf: Shelf, workspace: Path, put: Put) -> None:
    put(workspace / ".tower/prompts/x.md", f"---\ndescription: a\u202eb\u2028c\t{'d' * 5000}\narguments: \x1b[31m\n---\ntext")

    (template,) = shelf.listed(str(workspace))
    assert template.description.startswith("a\\u202eb c d")
    assert len(template.description) == templates.LONGEST_DESCRIPTION
    assert template.arguments == "\\x1b[31m"


@pytest.mark.parametrize(
    ("text", "fields", "body"),
    [
        ("---\nname: x\n---\nbody", {"name": "x"}, "body"),
        ("---  \nname:  x  \n---\t\nbody", {"name": "x"}, "body"),
        ("---\nDescription: \"a: b\"\nname: 'x'\n---\n", {"description": "a: b", "name": "x"}, ""),
        ("---\nname: x\nname: y\n---\n", {"name": "x"}, ""),
        ("---\n# a comment\n\nlist:\n  - name: inner\n- item\n  name: y\nname:z\nempty:\n---\nb", {}, "b"),
        ("---\nname: '\n---\nb", {"name": "'"}, "b"),
        ("---\nnever closed\nname: x", {}, "---\nnever closed\nname: x"),
        ("---\n" + "a: b\n" * 200 + "---\nbody", {}, "---\n" + "a: b\n" * 200 + "---\nbody"),
        ("----\nname: x\n---\n", {}, "----\nname: x\n---\n"),
        ("\n---\nname: x\n---\n", {}, "\n---\nname: x\n---\n"),
        ("---\nname: x\n---\nbody\n---\nmore: text\n---\n", {"name": "x"}, "body\n---\nmore: text\n---\n"),
        ("", {}, ""),
        ("---", {}, "---"),
    ],
)
def test_front_matter_is_key_and_value_at_the_left_edge(text: str, fields: dict[str, str], body: str) -> None:
    assert frontmatter.part(text) == (fields, body)


def test_a_file_with_windows_line_ends_is_read_like_any_other(shelf: Shelf, workspace: Path) -> None:
    (workspace / ".tower" / "prompts").mkdir(parents=True)
    (workspace / ".tower/prompts/x.md").write_bytes(b"\xef\xbb\xbf---\r\ndescription: of x\r\n---\r\none\r\ntwo\r\n")

    assert shelf.listed(str(workspace))[0].description == "of x"
    assert shelf.expand("/x", str(workspace)).text == "one\ntwo"


def test_a_relative_users_folder_works(workspace: Path, tmp_path: Path, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "mine/prompts/x.md", "text")
    monkeypatch.chdir(tmp_path)
    shelf = Shelf(Path("mine"))
    monkeypatch.chdir("/")

    assert [template.path for template in shelf.listed(str(workspace))] == [f"{tmp_path}/mine/prompts/x.md"]


def test_a_skill_is_handed_out_whole_by_its_name(shelf: Shelf, workspace: Path, put: Put) -> None:
    put(workspace / ".tower/skills/release.md", "---\nname: release\n---\n# Release\nTag it.\n")
    put(workspace / ".tower/prompts/fix.md", "a prompt is none")

    assert shelf.skill("release", str(workspace)) == "# Release\nTag it."
    assert shelf.skill("fix", str(workspace)) is None
    assert shelf.skill("../release", str(workspace)) is None
