"""`tower user`: who may log in from elsewhere, with a name and a password."""

import time
from typing import Any

import click

from switchtower.cli import arguments, console, output, table

_name = click.argument("name", callback=arguments.sendable_option)
_from_stdin = click.option(
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
        output.line(ctx.get_help())


@user.command()
@_name
@_from_stdin
def add(name: str, from_stdin: bool) -> int:
    """Let NAME log in. Asks twice for the password, of at least 8 characters.

    \b
    Example:
      tower user add ann
      pass show tower/ann | tower user add ann --password-stdin
    """
    from switchtower.cli import admin, password

    body = {"name": name, "password": password.read(from_stdin=from_stdin)}
    admin.call("POST", admin.path_of("users"), body)
    console.say(f"`{name}` may log in")
    return console.Exit.OK


@user.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
def list_(as_json: bool) -> int:
    """List the users: since when, and when they logged in last.

    \b
    Example:
      tower user list --json
    """
    import msgspec

    from switchtower.cli import admin

    users = admin.rows("users")
    if as_json:
        output.line(msgspec.json.encode(users))
        return console.Exit.OK
    if not users:
        console.say("no users yet; hint: add one with `tower user add NAME`")
        return console.Exit.OK
    for row in table.rows([_cells(user, now=time.time()) for user in users]):
        output.line(console.printable(row))
    return console.Exit.OK


def _cells(user: dict[str, Any], *, now: float) -> tuple[str, ...]:
    from switchtower.cli import listing

    return (
        listing.text(user, "name"),
        f"added {listing.ago(user, 'created_at', now=now)}",
        f"last login {listing.ago(user, 'last_login_at', now=now)}",
    )


@user.command()
@_name
def remove(name: str) -> int:
    """Let NAME log in no more, and end what they are logged in with.

    \b
    Example:
      tower user remove ann
    """
    from switchtower.cli import admin

    admin.call("DELETE", admin.path_of("users", name))
    console.say(f"`{name}` is removed, and logged out everywhere")
    return console.Exit.OK


@user.command()
@_name
@_from_stdin
def passwd(name: str, from_stdin: bool) -> int:
    """Give NAME another password, and end what they are logged in with.

    \b
    Example:
      tower user passwd ann
    """
    from switchtower.cli import admin, password

    body = {"password": password.read(from_stdin=from_stdin)}
    admin.call("PUT", admin.path_of("users", name, "password"), body)
    console.say(f"`{name}` has a new password, and is logged out everywhere")
    return console.Exit.OK


@user.command()
@_from_stdin
def hash(from_stdin: bool) -> int:
    """Print a password's argon2 hash, such as `ADMIN_PASSWORD_HASH` takes. Needs no daemon.

    \b
    Example:
      ADMIN_USERNAME=ann ADMIN_PASSWORD_HASH="$(tower user hash)" tower serve
    """
    from switchtower.cli import password
    from switchtower.daemon import passwords

    given = password.read(from_stdin=from_stdin)
    if problem := passwords.problem_with(given):
        raise click.ClickException(f"{problem}; hint: choose another one")
    output.line(passwords.hash_now(given))
    return console.Exit.OK
