"""`tower skills`: what a message can begin with as `/name`."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from switchtower.cli import arguments, console, output, table

if TYPE_CHECKING:
    from switchtower.protocols.push import extensions


@click.command()
@arguments.folder_option("The folder to look in; the current one by default.")
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

    listed = asyncio.run(_fetch_templates(folder))
    if as_json:
        output.write_line(msgspec.json.encode(listed))
        return console.ExitStatus.OK
    if not listed:
        console.print_line("no skills, prompts or extensions here; hint: put one in `.tower/prompts/NAME.md`")
        return console.ExitStatus.OK
    for row in table.format_rows([(f"/{offer.name}", offer.kind, offer.origin, offer.description) for offer in listed]):
        output.write_line(console.escape_unprintable(row))
    return console.ExitStatus.OK


async def _fetch_templates(folder: Path) -> "list[extensions.Template]":
    from switchtower import config
    from switchtower.client import workspace
    from switchtower.client.client import DaemonClient

    root = workspace.resolve_root(folder)
    async with await DaemonClient.connect(config.load()) as client:
        return await client.list_templates(root)
