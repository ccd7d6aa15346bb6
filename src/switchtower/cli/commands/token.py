"""`tower token`: what people are logged in with, and the owner's own way in."""

import time
from typing import Any

import click

from switchtower.cli import arguments, console, output, table


@click.group(invoke_without_command=True)
@click.pass_context
def token(ctx: click.Context) -> None:
    """List and revoke the access tokens that were given out, or print the page's address with a token for one visit.

    \b
    Example:
      tower token url
      tower token list --user ann
    """
    if ctx.invoked_subcommand is None:
        output.line(ctx.get_help())


@token.command("list")
@arguments.text_option("--user", "Only this user's.")
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
def list_(user: str | None, as_json: bool) -> int:
    """List the access tokens that are good, the newest first.

    \b
    Example:
      tower token list --user ann
    """
    import msgspec

    from switchtower.cli import admin

    tokens = admin.rows("tokens", user=user)
    if as_json:
        output.line(msgspec.json.encode(tokens))
        return console.Exit.OK
    if not tokens:
        console.say("nobody is logged in")
        return console.Exit.OK
    for row in table.rows([_cells(token, now=time.time()) for token in tokens]):
        output.line(console.printable(row))
    return console.Exit.OK


def _cells(token: dict[str, Any], *, now: float) -> tuple[str, ...]:
    from switchtower.cli import listing

    return (
        listing.text(token, "id"),
        listing.text(token, "user"),
        f"given {listing.ago(token, 'created_at', now=now)}",
        f"ends {listing.ahead(token, 'expires_at', now=now)}",
        listing.text(token, "client"),
    )


@token.command()
@click.argument("token_id", metavar="ID", callback=arguments.sendable_option)
def revoke(token_id: str) -> int:
    """End one login. ID is as `tower token list` shows it.

    \b
    Example:
      tower token revoke tok_01JZ…
    """
    from switchtower.cli import admin

    admin.call("DELETE", admin.path_of("tokens", token_id))
    console.say(f"`{token_id}` is revoked")
    return console.Exit.OK


@token.command()
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def url(as_json: bool) -> int:
    """Print the page's address with a token for one visit. Whoever opens it first is logged in as the owner: do not hand it on.

    It is good once, and for ten minutes.

    \b
    Example:
      xdg-open "$(tower token url)"
    """
    import msgspec

    from switchtower import config
    from switchtower.cli import admin

    settings = config.load()
    endpoints = admin.running(settings)
    if endpoints.http is None:
        raise click.ClickException("the daemon has no HTTP port; hint: `tower stop`, then `tower serve --http 127.0.0.1:8787`")
    visit = msgspec.convert(admin.call("POST", admin.path_of("visits")), dict[str, str])
    address = f"{settings.public_url or endpoints.http}/?token={visit['token']}"
    output.line(msgspec.json.encode({"url": address, "expires_at": visit["expires_at"]}) if as_json else address)
    return console.Exit.OK
