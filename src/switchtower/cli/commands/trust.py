"""`tower trust`: manages the folders whose instructions agents follow."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from switchtower.cli import console, output, table
from switchtower.presentation import formats

if TYPE_CHECKING:
    from switchtower.client.client import DaemonClient
    from switchtower.protocols.push import listing_messages

_folder_argument = click.argument(
    "folder", default=".", metavar="[FOLDER]", type=click.Path(file_okay=False, path_type=Path, resolve_path=True)
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print one array.")


@click.group(invoke_without_command=True)
@_json_option
@click.pass_context
def trust(ctx: click.Context, as_json: bool) -> int:
    """List the folders that you trust, and trust others.

    In a folder that you do not trust, `AGENTS.md` and `CLAUDE.md`, skills, prompts, presets and the servers of `.mcp.json` do not
    count. The first run in a folder that has any of these asks you; a headless run works without them. Your trust in a folder
    covers the folders below it. The setting `trusted_folders` names more.

    \b
    Example:
      tower trust
      tower trust add ~/work/site
      tower trust remove ~/work/site
    """
    return console.ExitStatus.OK if ctx.invoked_subcommand is not None else _print_folders(as_json=as_json)


@trust.command("list")
@_json_option
def list_folders(as_json: bool) -> int:
    """List the folders that you trust, as `tower trust` does.

    \b
    Example:
      tower trust list --json
    """
    return _print_folders(as_json=as_json)


@trust.command()
@_folder_argument
def add(folder: Path) -> int:
    """Trust FOLDER and the folders below it; the current one by default.

    \b
    Example:
      tower trust add
    """
    path = asyncio.run(_trust_folder(folder))
    console.print_line(f"{path} is trusted")
    return console.ExitStatus.OK


@trust.command()
@_folder_argument
def remove(folder: Path) -> int:
    """Stop trusting FOLDER; the current one by default. Sessions keep what they have read.

    \b
    Example:
      tower trust remove
    """
    if not asyncio.run(_untrust_folder(folder)):
        console.print_line(f"{folder} was not trusted; hint: see `tower trust list` and the setting `trusted_folders`", "yellow")
        return console.ExitStatus.FAILED
    console.print_line(f"{folder} is not trusted any more")
    return console.ExitStatus.OK


def _print_folders(*, as_json: bool) -> int:
    import msgspec

    from switchtower import config

    folders = asyncio.run(_fetch_folders())
    configured = config.load().trusted_folders
    if as_json:
        output.write_line(msgspec.json.encode(folders))
        return console.ExitStatus.OK
    if not folders and not configured:
        console.print_line("you trust no folder yet; hint: `tower trust add` trusts the current one")
    now = time.time()
    cells = [(folder.path, f"{formats.format_age(now - folder.since / 1000)} ago", folder.by) for folder in folders]
    for row in table.format_rows([*cells, *((pattern, "configured", "") for pattern in configured)]):
        output.write_line(console.escape_unprintable(row))
    return console.ExitStatus.OK


async def _fetch_folders() -> "list[listing_messages.TrustedFolder]":
    async with await _connect() as client:
        return await client.list_trusted_folders()


async def _trust_folder(folder: Path) -> str:
    async with await _connect() as client:
        return await client.trust_folder(str(folder))


async def _untrust_folder(folder: Path) -> bool:
    async with await _connect() as client:
        return await client.untrust_folder(str(folder))


async def _connect() -> "DaemonClient":
    from switchtower import config
    from switchtower.client.client import DaemonClient

    return await DaemonClient.connect(config.load())
