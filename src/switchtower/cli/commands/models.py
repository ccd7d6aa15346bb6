"""`tower models`: which models can be used, and why the others cannot."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from switchtower.cli import console, output, table

if TYPE_CHECKING:
    from switchtower.protocols.push import extensions


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


async def _fetch_models() -> "list[extensions.ModelListing]":
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


def _format_model(listed: "Sequence[extensions.ModelListing]") -> list[tuple[str, ...]]:
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


def _format_model_status(model: "extensions.ModelListing") -> str:
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
