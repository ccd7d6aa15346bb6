"""`tower token`: what people are logged in with, and the owner's own way in."""

import time
from typing import Any

import click

from switchtower.cli import arguments, console, output, table


@click.group(invoke_without_command=True)
@click.pass_context
def token(ctx: click.Context) -> None:
    """Create, list and revoke access tokens, or print the page's address with a token for one visit.

    \b
    Example:
      tower token url
      tower token create --name ci --scope operator --expires 30d
      tower token list --user ann
    """
    if ctx.invoked_subcommand is None:
        output.write_line(ctx.get_help())


_LIFETIME_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def _parse_lifetime(ctx: click.Context, parameter: click.Parameter, text: str) -> int:
    count, unit = text[:-1], text[-1:].lower()
    if not (count.isascii() and count.isdecimal() and len(count) <= 6 and unit in _LIFETIME_UNITS and int(count)):
        raise click.BadParameter(f"`{text}` is not a length of time; hint: write 90m, 12h, 30d or 8w", ctx, parameter)
    return int(count) * _LIFETIME_UNITS[unit]


@token.command()
@click.option("--name", required=True, callback=arguments.validate_sendable, help="What the token is for, as listings show it.")
@arguments.text_option("--user", "Whose token it is; yours, the owner's, unless you name a user.")
@click.option("--scope", type=click.Choice(arguments.ROLES), help="The role that it allows at most; its user's role without it.")
@click.option(
    "--expires", callback=_parse_lifetime, default="30d", metavar="TIME", help="When it ends: 90m, 12h, 30d; at most 366d."
)
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def create(name: str, user: str | None, scope: str | None, expires: int, as_json: bool) -> int:
    """Create a token for a program, and print it once: the daemon keeps only its digest.

    A program sends it as `Authorization: Bearer TOKEN`, or as `?token=TOKEN` with a WebSocket.

    \b
    Example:
      tower token create --name ci --scope operator --expires 30d
      tower token create --name dashboard --user ann --scope viewer --expires 12h
    """
    import msgspec

    from switchtower.cli import admin

    asked = {"name": name, "user": user, "scope": scope, "expires_in_s": expires}
    body = {key: value for key, value in asked.items() if value is not None}
    made = msgspec.convert(admin.request("POST", admin.build_path("tokens"), body), dict[str, Any])
    if as_json:
        output.write_line(msgspec.json.encode(made))
        return console.ExitStatus.OK
    console.print_line(f"`{name}` is a token of `{made['user']}` with the role {made['scope']}; it ends at {made['expires_at']}")
    output.write_line(str(made["token"]))
    return console.ExitStatus.OK


@token.command("list")
@arguments.text_option("--user", "Only this user's.")
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
def list_tokens(user: str | None, as_json: bool) -> int:
    """List the access tokens that are good, the newest first.

    \b
    Example:
      tower token list --user ann
    """
    import msgspec

    from switchtower.cli import admin

    tokens = admin.get_rows("tokens", user=user)
    if as_json:
        output.write_line(msgspec.json.encode(tokens))
        return console.ExitStatus.OK
    if not tokens:
        console.print_line("nobody is logged in")
        return console.ExitStatus.OK
    for row in table.format_rows([_format_token(token, now=time.time()) for token in tokens]):
        output.write_line(console.escape_unprintable(row))
    return console.ExitStatus.OK


def _format_token(token: dict[str, Any], *, now: float) -> tuple[str, ...]:
    from switchtower.cli import listing

    return (
        listing.format_cell(token, "id"),
        listing.format_cell(token, "user"),
        f"{token['name']} ({listing.format_cell(token, 'scope')})" if token.get("name") else "login",
        f"given {listing.format_since(token, 'created_at', now=now)}",
        f"ends {listing.format_until(token, 'expires_at', now=now)}",
        f"used {listing.format_since(token, 'last_used_at', now=now)}"
        if token.get("name")
        else listing.format_cell(token, "client"),
    )


@token.command()
@click.argument("token_id", metavar="ID", callback=arguments.validate_sendable)
def revoke(token_id: str) -> int:
    """End one token or login, and close what it has open. ID is as `tower token list` shows it.

    \b
    Example:
      tower token revoke tok_01JZ…
    """
    from switchtower.cli import admin

    admin.request("DELETE", admin.build_path("tokens", token_id))
    console.print_line(f"`{token_id}` is revoked")
    return console.ExitStatus.OK


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
    from switchtower.cli import admin, reachability

    settings = config.load()
    endpoints = admin.ensure_running(settings)
    if endpoints.http is None:
        raise click.ClickException("the daemon has no HTTP port; hint: `tower stop`, then `tower serve --http 127.0.0.1:8787`")
    visit = msgspec.convert(admin.request("POST", admin.build_path("visits")), dict[str, str])
    public_url = endpoints.options.get("public_url") or settings.public_url
    reached = reachability.describe_reachability(
        http=endpoints.http, pi=None, listening=endpoints.listening, public_url=public_url
    )
    address = f"{public_url or reached.http or endpoints.http}/?token={visit['token']}"
    if reached.warning:
        console.print_line(f"warning: {reached.warning}", "yellow")
        console.print_line(f"hint: {reachability.TLS_REMEDY}")
    output.write_line(msgspec.json.encode({"url": address, "expires_at": visit["expires_at"]}) if as_json else address)
    return console.ExitStatus.OK
