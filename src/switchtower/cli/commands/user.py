"""`tower user`: who may log in from elsewhere, with a name and a password."""

import time
from typing import Any

import click

from switchtower.cli import arguments, console, output, table

_name = click.argument("name", callback=arguments.sendable_option)
_ROLE = click.Choice(arguments.ROLES)
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
@click.option("--role", type=_ROLE, default="operator", help="What NAME may do; operator unless you choose another.")
@_from_stdin
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
    from switchtower.cli import admin, secret_input

    body = {"name": name, "password": secret_input.read_password(from_stdin=from_stdin), "role": role}
    admin.call("POST", admin.path_of("users"), body)
    console.say(f"`{name}` may log in, with the role {role}")
    return console.Exit.OK


@user.command()
@_name
@click.argument("role", type=_ROLE)
def role(name: str, role: str) -> int:
    """Give NAME another ROLE. It holds at once; connections that NAME has open are closed.

    \b
    Example:
      tower user role ann viewer
    """
    from switchtower.cli import admin

    admin.call("PUT", admin.path_of("users", name, "role"), {"role": role})
    console.say(f"`{name}` has the role {role}")
    return console.Exit.OK


@user.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
def list_(as_json: bool) -> int:
    """List the users: their role, since when, and when they logged in last.

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
        listing.text(user, "role"),
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
    from switchtower.cli import admin, secret_input

    body = {"password": secret_input.read_password(from_stdin=from_stdin)}
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
    from switchtower.cli import secret_input
    from switchtower.daemon import passwords

    given = secret_input.read_password(from_stdin=from_stdin)
    # The public tools take short passwords, and the hash is for the user's own environment.
    problem = passwords.problem_with(given)
    if problem is not None and len(given) >= passwords.SHORTEST:
        raise click.ClickException(f"{problem}; hint: choose another one")
    if problem is not None:
        console.say(f"Warning: {problem}; it is easy to guess. Choose a longer one where others can reach the port.")
    output.line(passwords.hash_now(given))
    return console.Exit.OK
