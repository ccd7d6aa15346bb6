"""`tower user` manages the users who log in with a name and a password; `tower token` manages access tokens."""

import time
from typing import Any

import click

from switchtower.cli import arguments, console, output, table

_name_argument = click.argument("name", callback=arguments.validate_sendable)
_ROLE_CHOICE = click.Choice(arguments.ROLES)
_password_stdin_option = click.option(
    "--password-stdin", "from_stdin", is_flag=True, help="Read the password from stdin, instead of asking."
)


@click.group(invoke_without_command=True)
@click.pass_context
def user(ctx: click.Context) -> None:
    """Say who may log in to the page and the apps, and with which password.

    The owner needs none of this: `tower token url` prints the page's address with the owner's token.

    \b
    Example:
      tower user add ann
      tower user list
    """
    if ctx.invoked_subcommand is None:
        output.write_line(ctx.get_help())


@user.command()
@_name_argument
@click.option("--role", type=_ROLE_CHOICE, default="operator", help="What NAME may do; operator unless you choose another.")
@_password_stdin_option
def add(name: str, role: str, from_stdin: bool) -> int:
    """Let NAME log in. Asks twice for the password, of at least 8 characters.

    A viewer lists, watches and reads. An approver also decides approvals and answers dialogs. An operator also starts, steers,
    types, stops, undoes, renames, forks and deletes. An admin also manages users, tokens and hosts, reads the audit and
    loosens the policy.

    \b
    Example:
      tower user add ann --role approver
      pass show tower/ann | tower user add ann --password-stdin
    """
    from switchtower.cli.terminal import user_input
    from switchtower.client import admin

    body = {"name": name, "password": user_input.read_password(from_stdin=from_stdin), "role": role}
    admin.request("POST", admin.build_path("users"), body)
    console.print_line(f"`{name}` may log in, with the role {role}")
    return console.ExitStatus.OK


@user.command()
@_name_argument
@click.argument("role", type=_ROLE_CHOICE)
def role(name: str, role: str) -> int:
    """Give NAME another ROLE. It holds at once; connections that NAME has open are closed.

    \b
    Example:
      tower user role ann viewer
    """
    from switchtower.client import admin

    admin.request("PUT", admin.build_path("users", name, "role"), {"role": role})
    console.print_line(f"`{name}` has the role {role}")
    return console.ExitStatus.OK


@user.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
def list_users(as_json: bool) -> int:
    """List the users: their role, since when, and when they logged in last.

    \b
    Example:
      tower user list --json
    """
    import msgspec

    from switchtower.client import admin

    users = admin.get_rows("users")
    if as_json:
        output.write_line(msgspec.json.encode(users))
        return console.ExitStatus.OK
    if not users:
        console.print_line("no users yet; hint: add one with `tower user add NAME`")
        return console.ExitStatus.OK
    for row in table.format_rows([_format_user(user, now=time.time()) for user in users]):
        output.write_line(console.escape_unprintable(row))
    return console.ExitStatus.OK


def _format_user(user: dict[str, Any], *, now: float) -> tuple[str, ...]:
    from switchtower.cli import table

    return (
        table.format_cell(user, "name"),
        table.format_cell(user, "role"),
        f"added {table.format_since(user, 'created_at', now=now)}",
        f"last login {table.format_since(user, 'last_login_at', now=now)}",
    )


@user.command()
@_name_argument
def remove(name: str) -> int:
    """Let NAME log in no more, and end what they are logged in with.

    \b
    Example:
      tower user remove ann
    """
    from switchtower.client import admin

    admin.request("DELETE", admin.build_path("users", name))
    console.print_line(f"`{name}` is removed, and logged out everywhere")
    return console.ExitStatus.OK


@user.command()
@_name_argument
@_password_stdin_option
def passwd(name: str, from_stdin: bool) -> int:
    """Give NAME another password, and end what they are logged in with.

    \b
    Example:
      tower user passwd ann
    """
    from switchtower.cli.terminal import user_input
    from switchtower.client import admin

    body = {"password": user_input.read_password(from_stdin=from_stdin)}
    admin.request("PUT", admin.build_path("users", name, "password"), body)
    console.print_line(f"`{name}` has a new password, and is logged out everywhere")
    return console.ExitStatus.OK


@user.command()
@_password_stdin_option
def hash(from_stdin: bool) -> int:
    """Print a password's argon2 hash, such as `ADMIN_PASSWORD_HASH` takes. Needs no daemon.

    \b
    Example:
      ADMIN_USERNAME=ann ADMIN_PASSWORD_HASH="$(tower user hash)" tower serve
    """
    from switchtower.accounts import passwords
    from switchtower.cli.terminal import user_input

    given = user_input.read_password(from_stdin=from_stdin)
    # The public tools accept short passwords, and the hash is for the user's own environment.
    problem = passwords.find_password_problem(given)
    if problem is not None and len(given) >= passwords.MIN_LENGTH:
        raise click.ClickException(f"{problem}; hint: choose another one")
    if problem is not None:
        console.print_line(f"Warning: {problem}; it is easy to guess. Choose a longer one where others can reach the port.")
    output.write_line(passwords.hash_blocking(given))
    return console.ExitStatus.OK


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

    from switchtower.client import admin

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

    from switchtower.client import admin

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
    from switchtower.cli import table

    return (
        table.format_cell(token, "id"),
        table.format_cell(token, "user"),
        f"{token['name']} ({table.format_cell(token, 'scope')})" if token.get("name") else "login",
        f"given {table.format_since(token, 'created_at', now=now)}",
        f"ends {table.format_until(token, 'expires_at', now=now)}",
        f"used {table.format_since(token, 'last_used_at', now=now)}" if token.get("name") else table.format_cell(token, "client"),
    )


@token.command()
@click.argument("token_id", metavar="ID", callback=arguments.validate_sendable)
def revoke(token_id: str) -> int:
    """End one token or login, and close what it has open. ID is as `tower token list` shows it.

    \b
    Example:
      tower token revoke tok_01JZ…
    """
    from switchtower.client import admin

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
    from switchtower.cli import reachability
    from switchtower.client import admin

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
