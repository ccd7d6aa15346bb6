"""`tower user`: who may log in from elsewhere, with a name and a password."""

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
    from switchtower.cli import admin, secret_input

    body = {"name": name, "password": secret_input.read_password(from_stdin=from_stdin), "role": role}
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
    from switchtower.cli import admin

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

    from switchtower.cli import admin

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
    from switchtower.cli import listing

    return (
        listing.format_cell(user, "name"),
        listing.format_cell(user, "role"),
        f"added {listing.format_since(user, 'created_at', now=now)}",
        f"last login {listing.format_since(user, 'last_login_at', now=now)}",
    )


@user.command()
@_name_argument
def remove(name: str) -> int:
    """Let NAME log in no more, and end what they are logged in with.

    \b
    Example:
      tower user remove ann
    """
    from switchtower.cli import admin

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
    from switchtower.cli import admin, secret_input

    body = {"password": secret_input.read_password(from_stdin=from_stdin)}
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
    from switchtower.cli import secret_input
    from switchtower.daemon import passwords

    given = secret_input.read_password(from_stdin=from_stdin)
    # The public tools take short passwords, and the hash is for the user's own environment.
    problem = passwords.find_password_problem(given)
    if problem is not None and len(given) >= passwords.MIN_LENGTH:
        raise click.ClickException(f"{problem}; hint: choose another one")
    if problem is not None:
        console.print_line(f"Warning: {problem}; it is easy to guess. Choose a longer one where others can reach the port.")
    output.write_line(passwords.hash_blocking(given))
    return console.ExitStatus.OK
