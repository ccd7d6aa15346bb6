"""Renders a reference page for each command: `python -m switchtower.cli.reference docs/commands`.

A page is the command's own help, so the two cannot differ. A test compares the committed pages with fresh ones.
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from switchtower.cli import main

INDEX = "README.md"
_BLOCK = "\b"
_MAX_WIDTH = 10_000
"""A width at which click wraps no line."""
_EXIT_CODES = """\
| code | what it means |
|---|---|
| 0 | done; of a run: it succeeded |
| 1 | it failed, and stderr says why and what to do |
| 2 | cancelled, by Ctrl-C too |
| 3 | denied |
| 4 | the run ended, and its acceptance checks did not pass |
| 64 | the command line is wrong |
| 141 | nobody reads stdout any more, as behind `… \\| head` |
"""


def render_pages() -> dict[str, str]:
    """Returns all pages by file name: one for each command, and the index."""
    made = {f"{row.name}.md": _render_page(row) for row in main.COMMANDS}
    made[INDEX] = _render_index()
    return made


def write_pages(folder: Path) -> None:
    """Writes all pages, and removes the pages of commands that no longer exist."""
    folder.mkdir(parents=True, exist_ok=True)
    made = render_pages()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    for page in folder.glob("*.md"):
        if page.name not in made:
            page.unlink()


def _render_index() -> str:
    rows = "\n".join(f"| [`tower {row.name}`]({row.name}.md) | {_escape_cell(row.help)} |" for row in main.COMMANDS)
    aliases = ", ".join(f"`tower {alias}` is `tower {name}`" for alias, name in main.ALIASES.items())
    return f"""\
# Commands

One page a command, made from the commands' own help by `make reference`. stdout is data; everything that people read goes to
stderr. Also: {aliases}.

| command | what it does |
|---|---|
{rows}

## Exit codes

{_EXIT_CODES}
`tower flow` has those of its own protocol, which its page tells.
"""


def _render_page(row: main.CommandEntry) -> str:
    context = click.Context(main.tower, info_name="tower")
    command = main.tower.get_command(context, row.name)
    assert command is not None, "a row has its command"
    return "\n".join(_render_section(command, context, row.name, level=1)).rstrip() + "\n"


def _render_section(command: click.Command, parent: click.Context, name: str, *, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent, terminal_width=_MAX_WIDTH, max_content_width=_MAX_WIDTH)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"{'#' * level} {context.command_path}\n"
    yield f"```\n{context.command_path} {usage}".rstrip() + "\n```\n"
    yield from _render_prose(command.help or "")
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    if records := [record for option in options if (record := option.get_help_record(context)) is not None]:
        yield "| option | what it does |\n|---|---|"
        yield from (f"| `{_escape_cell(spelled)}` | {_escape_cell(said)} |" for spelled, said in records)
        yield ""
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is not None and not found.hidden:
                yield from _render_section(found, context, below, level=level + 1)


def _render_prose(text: str) -> Iterator[str]:
    """Yields paragraphs, each on one line; text that click keeps verbatim, such as examples, becomes a code block."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        kept, _, block = paragraph.partition(f"{_BLOCK}\n")
        if not block:
            yield " ".join(paragraph.replace(_BLOCK, "").split()) + "\n"
            continue
        assert not kept, "a block begins its paragraph"
        first, *rest = block.splitlines()
        if first.startswith("Example"):
            yield "```console\n" + "\n".join(f"$ {line[2:]}" if line.startswith("  ") else line for line in rest) + "\n```\n"
        else:
            yield "```\n" + block.rstrip() + "\n```\n"


def _escape_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m switchtower.cli.reference FOLDER")
    write_pages(Path(sys.argv[1]))
