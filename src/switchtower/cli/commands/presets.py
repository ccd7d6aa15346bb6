"""`tower presets`: what a session can begin with, as `tower run --preset NAME`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from switchtower.cli import arguments, console, output, table

if TYPE_CHECKING:
    from switchtower.protocols.push import extensions


@click.command()
@arguments.folder("The folder to look in; the current one by default.")
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
def presets(folder: Path, as_json: bool) -> int:
    """List the presets of a folder and the user's own, and why some cannot be used.

    A preset is a TOML file in `.tower/presets`, or in `presets` beside the configuration file: a system text, a model, a
    policy, MCP servers, limits. One of the folder goes before the user's own of the same name, which is then `user:NAME`.

    \b
    Example:
      tower presets
      tower run "look at the last commit" --preset review
    """
    import msgspec

    listed = asyncio.run(_list(folder))
    if as_json:
        output.line(msgspec.json.encode(listed))
        return console.Exit.OK
    if not listed:
        console.say("no presets here; hint: put one in `.tower/presets/NAME.toml`")
        return console.Exit.OK
    for row in table.rows(_cells(listed)):
        output.line(console.printable(row))
    return console.Exit.OK


async def _list(folder: Path) -> "list[extensions.Preset]":
    from switchtower import config
    from switchtower.client import workspace
    from switchtower.client.client import Client

    root = workspace.root_of(folder)
    async with await Client.connect(config.load()) as client:
        return await client.presets(root)


def _cells(listed: "Sequence[extensions.Preset]") -> list[tuple[str, ...]]:
    return [
        (
            preset.name,
            preset.origin,
            " ".join(part for part in (preset.provider, preset.model) if part) or "-",
            preset.policy or "-",
            preset.description if preset.usable else f"not usable: {preset.reason}",
        )
        for preset in listed
    ]
