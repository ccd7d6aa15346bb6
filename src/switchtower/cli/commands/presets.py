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
@arguments.folder_option("The folder to look in; the current one by default.")
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

    listed = asyncio.run(_fetch_presets(folder))
    if as_json:
        output.write_line(msgspec.json.encode(listed))
        return console.ExitStatus.OK
    if not listed:
        console.print_line("no presets here; hint: put one in `.tower/presets/NAME.toml`")
        return console.ExitStatus.OK
    for row in table.format_rows(_format_preset(listed)):
        output.write_line(console.escape_unprintable(row))
    return console.ExitStatus.OK


async def _fetch_presets(folder: Path) -> "list[extensions.Preset]":
    from switchtower import config
    from switchtower.client import workspace
    from switchtower.client.client import DaemonClient

    root = workspace.resolve_root(folder)
    async with await DaemonClient.connect(config.load()) as client:
        return await client.list_presets(root)


def _format_preset(listed: "Sequence[extensions.Preset]") -> list[tuple[str, ...]]:
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
