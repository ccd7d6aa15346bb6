"""The pages about the commands are the commands' own words, and the committed ones are up to date."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from switchtower.cli import main, reference

COMMITTED = Path(__file__).parents[2] / "docs/commands"


def list_commands() -> list[tuple[str, click.Command]]:
    """Every command and subcommand that is not hidden, with its whole name."""
    context = click.Context(main.tower, info_name="tower")

    def below(name: str, command: click.Command) -> list[tuple[str, click.Command]]:
        children = command.commands.items() if isinstance(command, click.Group) else ()
        shown = [(key, child) for key, child in children if not child.hidden]
        return [(name, command), *(found for key, child in shown for found in below(f"{name} {key}", child))]

    found = []
    for row in main.COMMANDS:
        command = main.tower.get_command(context, row.name)
        assert command is not None
        found += below(row.name, command)
    return found


EVERY = list_commands()


def test_the_committed_pages_are_as_a_fresh_generation_has_them() -> None:
    committed = {page.name: page.read_text() for page in COMMITTED.glob("*.md")}

    assert committed == reference.render_pages(), "run `make reference`"


def test_the_pages_are_the_same_on_every_machine(tmp_path: Path) -> None:
    environment = {**os.environ, "COLUMNS": "40", "TOWER_HOME": str(tmp_path / "x"), "HOME": str(tmp_path), "LANG": "C"}
    command = [sys.executable, "-m", "switchtower.cli.reference", str(tmp_path / "pages")]

    subprocess.run(command, env=environment, check=True, timeout=60)

    assert {page.name: page.read_text(encoding="utf-8") for page in (tmp_path / "pages").iterdir()} == reference.render_pages()


def test_the_page_of_a_command_that_is_no_more_goes(tmp_path: Path) -> None:
    (tmp_path / "gone.md").write_text("old")

    reference.write_pages(tmp_path)

    assert not (tmp_path / "gone.md").exists()


def test_every_command_has_a_page_and_a_line_in_the_index() -> None:
    pages = reference.render_pages()

    assert set(pages) == {f"{row.name}.md" for row in main.COMMANDS} | {reference.INDEX}
    for row in main.COMMANDS:
        assert f"[`tower {row.name}`]({row.name}.md) | " in pages[reference.INDEX]


@pytest.mark.parametrize(("name", "command"), EVERY, ids=[name for name, _ in EVERY])
def test_every_command_says_what_it_does_with_an_example(name: str, command: click.Command) -> None:
    assert command.help
    assert "Example:" in command.help, "an example says more than a sentence"
    page = reference.render_pages()[f"{name.split()[0]}.md"]
    assert f"# tower {name}\n" in page


def test_other_words_for_a_command_are_no_rows_and_work(tmp_path: Path) -> None:
    context = click.Context(main.tower, info_name="tower")

    for alias, name in main.ALIASES.items():
        assert alias not in main.tower.list_commands(context)
        assert main.tower.get_command(context, alias) is main.tower.get_command(context, name)
