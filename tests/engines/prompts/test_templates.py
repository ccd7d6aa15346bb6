"""Skills and prompts are found where they lie, have the names that their places give them, and nobody's is hijacked."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from switchtower.engines.agent.prompts import files, templates
from switchtower.engines.agent.prompts.system_prompt import PromptCatalog

Put = Callable[[Path, str], None]


def list_names(shelf: PromptCatalog, workspace: Path) -> list[str]:
    return [template.name for template in shelf.list_templates(str(workspace))]


def test_skills_and_prompts_are_listed_from_both_places(
    prompt_catalog: PromptCatalog, workspace: Path, user_folder: Path, write_file: Put
) -> None:
    write_file(workspace / ".tower/skills/release.md", "# How to release\nTag it.")
    write_file(workspace / ".tower/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: Work with PDF files\n---\nUse a library.")
    write_file(workspace / ".tower/prompts/fix.md", "---\ndescription: 'Fix an issue'\narguments: NUMBER\n---\nFix issue $1.")
    write_file(user_folder / "skills/git/rebase.md", "Rebase carefully.")
    write_file(user_folder / "prompts/review.md", "\n\n## Review\n\nLook at it.")

    assert prompt_catalog.list_templates(str(workspace)) == (
        templates.Template("fix", "prompt", "Fix an issue", ".tower/prompts/fix.md", "workspace", "NUMBER"),
        templates.Template("git:rebase", "skill", "Rebase carefully.", f"{user_folder}/skills/git/rebase.md", "user"),
        templates.Template("pdf", "skill", "Work with PDF files", ".tower/skills/pdf/SKILL.md", "workspace"),
        templates.Template("release", "skill", "How to release", ".tower/skills/release.md", "workspace"),
        templates.Template("review", "prompt", "Review", f"{user_folder}/prompts/review.md", "user"),
    )


def test_nothing_is_listed_where_there_is_nothing(tmp_path: Path, workspace: Path) -> None:
    assert PromptCatalog(None).list_templates(str(workspace)) == ()
    assert PromptCatalog(tmp_path / "gone").list_templates(str(tmp_path / "gone too")) == ()
    assert PromptCatalog(Path("\0")).list_templates("\0") == ()


def test_the_users_template_keeps_its_name_and_the_workspaces_says_where_it_is_from(
    prompt_catalog: PromptCatalog, workspace: Path, user_folder: Path, write_file: Put
) -> None:
    write_file(user_folder / "prompts/review.md", "the user's")
    write_file(workspace / ".tower/prompts/review.md", "the workspace's")

    assert list_names(prompt_catalog, workspace) == ["review", "workspace:review"]
    assert prompt_catalog.expand_message("/review", str(workspace)).text == "the user's"
    assert prompt_catalog.expand_message("/workspace:review", str(workspace)).text == "the workspace's"


def test_a_workspace_cannot_take_a_users_name_by_saying_it_in_front_matter(
    prompt_catalog: PromptCatalog, workspace: Path, user_folder: Path, write_file: Put
) -> None:
    write_file(user_folder / "skills/review.md", "the user's")
    write_file(workspace / ".tower/prompts/harmless.md", "---\nname: review\n---\nthe workspace's")

    assert list_names(prompt_catalog, workspace) == ["review", "workspace:review"]
    assert "the user's" in prompt_catalog.expand_message("/review", str(workspace)).text


@pytest.mark.parametrize("claimed", ["user", "workspace"])
def test_no_folder_can_pass_for_an_origin(prompt_catalog: PromptCatalog, workspace: Path, write_file: Put, claimed: str) -> None:
    write_file(workspace / f".tower/prompts/{claimed}/review.md", "pretended")
    write_file(workspace / f".tower/prompts/{claimed}.md", "pretended")
    write_file(workspace / ".tower/prompts/x.md", f"---\nname: {claimed}\n---\npretended")

    assert list_names(prompt_catalog, workspace) == []
    assert "cannot begin with" in prompt_catalog.expand_message(f"/{claimed}:review", str(workspace)).problems[0]


def test_of_a_prompt_and_a_skill_with_one_name_both_can_be_called(
    prompt_catalog: PromptCatalog, workspace: Path, user_folder: Path, write_file: Put
) -> None:
    for folder in (user_folder, workspace / ".tower"):
        write_file(folder / "prompts/x.md", f"prompt in {folder.name}")
        write_file(folder / "skills/x.md", f"skill in {folder.name}")
        write_file(folder / "skills/x/SKILL.md", "never reached: it has the same name and kind and lies deeper")

    assert list_names(prompt_catalog, workspace) == ["user:skill:x", "user:x", "workspace:skill:x", "workspace:x", "x"]
    assert prompt_catalog.expand_message("/x", str(workspace)).text == "prompt in user"
    assert "skill in user" in prompt_catalog.expand_message("/user:x", str(workspace)).text
    assert prompt_catalog.expand_message("/workspace:x", str(workspace)).text == "prompt in .tower"
    assert "skill in .tower" in prompt_catalog.expand_message("/workspace:skill:x", str(workspace)).text


def test_files_beside_a_skill_are_its_own_and_no_skills(prompt_catalog: PromptCatalog, workspace: Path, write_file: Put) -> None:
    write_file(workspace / ".tower/skills/pdf/SKILL.md", "the skill")
    write_file(workspace / ".tower/skills/pdf/forms.md", "about forms")
    write_file(workspace / ".tower/skills/pdf/deeper/SKILL.md", "no skill either")
    write_file(workspace / ".tower/prompts/pdf/SKILL.md", "prompts have no such files")

    assert list_names(prompt_catalog, workspace) == ["pdf"]


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
def test_a_file_whose_name_could_not_be_typed_as_a_command_is_none(
    prompt_catalog: PromptCatalog, workspace: Path, write_file: Put, name: str
) -> None:
    write_file(workspace / ".tower/prompts" / name, "text")

    assert list_names(prompt_catalog, workspace) == []


@pytest.mark.parametrize(
    "name", ["../../outside", "..", "/etc/passwd", "a:b", "A", "", "two words", "x\ny", "$(id)", ".", "x" * 65, "'"]
)
def test_a_name_in_front_matter_that_could_not_be_typed_does_not_count(
    prompt_catalog: PromptCatalog, workspace: Path, write_file: Put, name: str
) -> None:
    write_file(workspace / ".tower/prompts/x.md", f"---\nname: {name}\n---\ntext")

    assert list_names(prompt_catalog, workspace) == ["x"]


@pytest.mark.parametrize("call", ["/../../outside", "/..", "/skills/../x", "/x/../../outside", "/%2e%2e", "/:x", "/x:", "/x::y"])
def test_a_call_is_a_name_and_never_a_path(prompt_catalog: PromptCatalog, workspace: Path, write_file: Put, call: str) -> None:
    write_file(workspace / ".tower/prompts/x.md", "text")
    write_file(workspace.parent / "outside.md", "OUTSIDE")

    assert prompt_catalog.expand_message(call, str(workspace)).text == call


def test_a_link_out_of_the_workspace_is_no_template_and_says_so_when_called(
    prompt_catalog: PromptCatalog, workspace: Path, write_file: Put
) -> None:
    write_file(workspace.parent / "elsewhere/x.md", "OUTSIDE")
    write_file(workspace / "inside/y.md", "inside")
    (workspace / ".tower" / "prompts").mkdir(parents=True)
    (workspace / ".tower/prompts/file.md").symlink_to("../../../elsewhere/x.md")
    (workspace / ".tower/prompts/folder").symlink_to("../../../elsewhere")
    (workspace / ".tower/prompts/linked").symlink_to("../../inside")
    (workspace / ".tower/skills").symlink_to("../../elsewhere")

    assert list_names(prompt_catalog, workspace) == ["linked:y"]
    expanded = prompt_catalog.expand_message("/file", str(workspace))
    assert expanded.text == "/file"
    assert "is outside the workspace" in expanded.problems[0]


def test_the_users_own_folder_may_be_made_of_links(workspace: Path, tmp_path: Path, write_file: Put) -> None:
    write_file(tmp_path / "dotfiles/x.md", "from the dotfiles")
    write_file(tmp_path / "dotfiles/more/y.md", "more of them")
    (tmp_path / "home" / "prompts").mkdir(parents=True)
    (tmp_path / "home/prompts/x.md").symlink_to("../../dotfiles/x.md")
    (tmp_path / "home/skills").symlink_to(tmp_path / "dotfiles/more")
    (tmp_path / "alias").symlink_to("home")
    shelf = PromptCatalog(tmp_path / "alias")

    assert list_names(shelf, workspace) == ["x", "y"]
    assert shelf.expand_message("/x", str(workspace)).text == "from the dotfiles"
    assert shelf.read_skill("y", str(workspace)) == "more of them"


def test_a_secret_behind_a_link_is_read_from_neither_folder(
    prompt_catalog: PromptCatalog, workspace: Path, user_folder: Path, write_file: Put
) -> None:
    write_file(workspace / ".env", "HUSH")
    for folder in (user_folder, workspace / ".tower"):
        (folder / "prompts").mkdir(parents=True)
        (folder / "prompts" / "x.md").symlink_to(workspace / ".env")

    assert list_names(prompt_catalog, workspace) == []
    assert "holds secrets" in prompt_catalog.expand_message("/x", str(workspace)).problems[0]


def test_what_cannot_be_a_template_says_so_when_it_is_called(
    prompt_catalog: PromptCatalog, workspace: Path, write_file: Put
) -> None:
    prompts = workspace / ".tower/prompts"
    write_file(prompts / "big.md", "x" * (templates.TEMPLATE_LIMIT + 1))
    write_file(prompts / "fits.md", "x" * templates.TEMPLATE_LIMIT)
    write_file(prompts / "empty.md", "---\nname: empty\n---\n  \n")
    (prompts / "binary.md").write_bytes(b"\0\1")
    (prompts / "latin.md").write_bytes(b"\xff\xfe")
    os.mkfifo(prompts / "pipe.md")

    assert list_names(prompt_catalog, workspace) == ["fits"]
    for name in ("big", "empty", "binary", "latin", "pipe"):
        expanded = prompt_catalog.expand_message(f"/{name} go", str(workspace))
        assert expanded.text == f"/{name} go"
        assert expanded.problems[0].startswith(f"`.tower/prompts/{name}.md` cannot be used: ")


def test_a_template_that_has_grown_since_it_was_listed_is_not_cut_but_refused(workspace: Path, write_file: Put) -> None:
    write_file(workspace / ".tower/prompts/x.md", "small")
    template = templates.load_catalog(str(workspace), None).templates["x"]
    write_file(workspace / ".tower/prompts/x.md", "x" * (templates.TEMPLATE_LIMIT + 1))

    with pytest.raises(Exception, match="longer than 64 KiB"):
        templates.read_template(template, str(workspace), None)


def test_so_many_names_are_looked_at_and_no_more(
    prompt_catalog: PromptCatalog, workspace: Path, user_folder: Path, write_file: Put
) -> None:
    for number in range(files.MOST_SCANNED + 50):
        write_file(workspace / f".tower/prompts/p{number}.md", "text")
    write_file(user_folder / "prompts/mine.md", "the user's own")

    listed = list_names(prompt_catalog, workspace)
    assert len(listed) == files.MOST_SCANNED + 1
    assert "mine" in listed


def test_names_in_inner_folders_count_too(prompt_catalog: PromptCatalog, workspace: Path, write_file: Put) -> None:
    for number in range(300):
        write_file(workspace / f".tower/prompts/one/p{number}.md", "text")
        write_file(workspace / f".tower/prompts/two/p{number}.md", "text")

    assert len(list_names(prompt_catalog, workspace)) == files.MOST_SCANNED - 2


def test_folders_count_as_deep_as_a_name_may_be_and_circles_end(
    prompt_catalog: PromptCatalog, workspace: Path, write_file: Put
) -> None:
    deep = workspace / ".tower/prompts"
    for depth in range(1, 40):
        write_file(deep / f"x{depth}.md", "text")
        deep = deep / "d"
    (workspace / ".tower/skills").mkdir()
    (workspace / ".tower/skills/round").symlink_to(".")

    assert list_names(prompt_catalog, workspace) == ["d:d:d:x4", "d:d:x3", "d:x2", "x1"]


def test_a_description_stays_on_one_short_line(prompt_catalog: PromptCatalog, workspace: Path, write_file: Put) -> None:
    write_file(
        workspace / ".tower/prompts/x.md", f"---\ndescription: a\u202eb\u2028c\t{'d' * 5000}\narguments: \x1b[31m\n---\ntext"
    )

    (template,) = prompt_catalog.list_templates(str(workspace))
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
    assert templates.split_front_matter(text) == (fields, body)


def test_a_file_with_windows_line_ends_is_read_like_any_other(prompt_catalog: PromptCatalog, workspace: Path) -> None:
    (workspace / ".tower" / "prompts").mkdir(parents=True)
    (workspace / ".tower/prompts/x.md").write_bytes(b"\xef\xbb\xbf---\r\ndescription: of x\r\n---\r\none\r\ntwo\r\n")

    assert prompt_catalog.list_templates(str(workspace))[0].description == "of x"
    assert prompt_catalog.expand_message("/x", str(workspace)).text == "one\ntwo"


def test_a_relative_users_folder_works(workspace: Path, tmp_path: Path, write_file: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "mine/prompts/x.md", "text")
    monkeypatch.chdir(tmp_path)
    shelf = PromptCatalog(Path("mine"))
    monkeypatch.chdir("/")

    assert [template.path for template in shelf.list_templates(str(workspace))] == [f"{tmp_path}/mine/prompts/x.md"]


def test_a_skill_is_handed_out_whole_by_its_name(prompt_catalog: PromptCatalog, workspace: Path, write_file: Put) -> None:
    write_file(workspace / ".tower/skills/release.md", "---\nname: release\n---\n# Release\nTag it.\n")
    write_file(workspace / ".tower/prompts/fix.md", "a prompt is none")

    assert prompt_catalog.read_skill("release", str(workspace)) == "# Release\nTag it."
    assert prompt_catalog.read_skill("fix", str(workspace)) is None
    assert prompt_catalog.read_skill("../release", str(workspace)) is None
