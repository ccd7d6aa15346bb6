"""`tower skills`: what a message can begin with as `/name`."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from switchtower.cli import arguments, console, output, table

if TYPE_CHECKING:
    from switchtower.protocols.push import extensions


@click.command()
@arguments.folder("The folder to look in; the current one by default.")
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
def skills(folder: Path, as_json: bool) -> int:
    """List the skills and prompt templates of a folder, the user's own, and the commands of extensions.

    Skills and prompts are Markdown files in `.tower/skills` and `.tower/prompts`; extensions are installed plugins, which may
    ask before they begin. A message that begins with `/NAME` uses one.

    \b
    Example:
      tower skills
      tower run "/review uncommitted"
      tower run "/brief make the tests faster"
    """
    import msgspec

    listed = asyncio.run(_list(folder))
    if as_json:
        output.line(msgspec.json.encode(listed))
        return console.Exit.OK
    if not listed:
        console.say("no skills, prompts or extensions here; hint: put one in `.tower/prompts/NAME.md`")
        return console.Exit.OK
    for row in table.rows([(f"/{offer.name}", offer.kind, offer.origin, offer.description) for offer in listed]):
        output.line(console.printable(row))
    return console.Exit.OK


async def _list(folder: Path) -> "list[extensions.Template]":
    from switchtower import config
    from switchtower.client import workspace
    from switchtower.client.client import Client

    root = workspace.root_of(folder)
    async with await Client.connect(config.load()) as client:
        return await client.templates(root)
