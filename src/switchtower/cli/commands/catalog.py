"""`tower models` lists usable models and why others are not, `tower skills` the templates for `/name`, and `tower presets` the
presets for `tower run --preset`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from switchtower.cli import arguments, console, output, table

if TYPE_CHECKING:
    from switchtower.protocols.push import extension_messages


@click.command()
@click.argument("provider", required=False)
@click.option("--all", "of_all", is_flag=True, help="List the models of every usable provider.")
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
def models(provider: str | None, of_all: bool, as_json: bool) -> int:
    """List the models that can be used, and why the others cannot. `*` marks the one that serves when none is named.

    With PROVIDER or --all: list the models that the provider's own server has, for --model.

    The first column is what --provider takes. Prices are in US dollars per million tokens, in and out. The last column names
    where a usable model's key comes from: a variable of your shell or of the daemon's environment, a `key_command`, the system
    keyring or the file of `tower login`. Keys themselves are never shown.

    \b
    Example:
      tower models
      tower models ollama
      ANTHROPIC_API_KEY=… tower models
    """
    import msgspec

    if provider is not None or of_all:
        return asyncio.run(_print_server_models(provider, as_json=as_json))
    listed = sorted(asyncio.run(_fetch_models()), key=lambda model: (not model.usable, not model.isDefault))
    if as_json:
        output.write_line(msgspec.json.encode(listed))
        return console.ExitStatus.OK
    for row in table.format_rows(_format_model(listed)):
        output.write_line(console.escape_unprintable(row))
    return console.ExitStatus.OK


async def _fetch_models() -> "list[extension_messages.ModelListing]":
    from switchtower import config
    from switchtower.client.client import DaemonClient

    async with await DaemonClient.connect(config.load()) as client:
        return await client.list_models()


async def _print_server_models(provider: str | None, *, as_json: bool) -> int:
    import msgspec

    from switchtower import config
    from switchtower.client.client import DaemonClient

    async with await DaemonClient.connect(config.load()) as client:
        names = [provider] if provider else [one.name for one in await client.list_models() if one.usable and one.name != "demo"]
        found = {name: await client.list_server_models(name) for name in names}
    if as_json:
        rows = [{"provider": name, "model": model} for name, listed in found.items() for model in listed or ()]
        output.write_line(msgspec.json.encode(rows))
    for name, listed in found.items():
        if listed is None:
            console.print_line(f"{name}: the server lists no models", "yellow")
        elif not as_json:
            for model in listed:
                output.write_line(console.escape_unprintable(model if provider else f"{name}  {model}"))
    return console.ExitStatus.OK if any(listed is not None for listed in found.values()) else console.ExitStatus.FAILED


def _format_model(listed: "Sequence[extension_messages.ModelListing]") -> list[tuple[str, ...]]:
    return [
        (
            "*" if model.isDefault else " ",
            model.name,
            model.provider,
            model.model or "-",
            _format_token_count(model.contextWindow),
            _format_prices(model.priceIn, model.priceOut),
            _format_model_status(model),
        )
        for model in listed
    ]


def _format_model_status(model: "extension_messages.ModelListing") -> str:
    if model.usable and model.keySource and not model.reason:
        return f"usable, key from {model.keySource}"
    status = "usable" if model.usable else "not usable"
    return f"{status}: {model.reason}" if model.reason else status


def _format_token_count(count: int | None) -> str:
    if count is None:
        return "-"
    return f"{count / 1_000_000:g}M" if count >= 1_000_000 else f"{count / 1_000:.0f}k" if count >= 1_000 else str(count)


def _format_prices(price_in: float | None, price_out: float | None) -> str:
    if price_in is None and price_out is None:
        return "-"
    return "/".join("?" if price is None else f"${price:g}" for price in (price_in, price_out))


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


async def _fetch_templates(folder: Path) -> "list[extension_messages.Template]":
    from switchtower import config
    from switchtower.client import workspace
    from switchtower.client.client import DaemonClient

    root = workspace.resolve_root(folder)
    async with await DaemonClient.connect(config.load()) as client:
        return await client.list_templates(root)


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


async def _fetch_presets(folder: Path) -> "list[extension_messages.Preset]":
    from switchtower import config
    from switchtower.client import workspace
    from switchtower.client.client import DaemonClient

    root = workspace.resolve_root(folder)
    async with await DaemonClient.connect(config.load()) as client:
        return await client.list_presets(root)


def _format_preset(listed: "Sequence[extension_messages.Preset]") -> list[tuple[str, ...]]:
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
