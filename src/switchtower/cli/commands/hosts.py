"""`tower hosts`: manages the machines that run programs for this hub."""

import time
from typing import Any

import click

from switchtower.cli import arguments, console, output, table

_id_argument = click.argument("host_id", metavar="ID", callback=arguments.validate_sendable)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print one array.")


@click.group(invoke_without_command=True)
@_json_option
@click.pass_context
def hosts(ctx: click.Context, as_json: bool) -> int:
    """List the hosts that have come to this hub, and say which may stay.

    A host is a machine with `tower host --hub URL`. It is known by its id and by the token of its first visit.

    \b
    Example:
      tower hosts
      tower hosts approve host_01JZ…
    """
    return console.ExitStatus.OK if ctx.invoked_subcommand is not None else _print_hosts(as_json=as_json)


@hosts.command("list")
@_json_option
def list_hosts(as_json: bool) -> int:
    """List the hosts, as `tower hosts` does.

    \b
    Example:
      tower hosts list --json
    """
    return _print_hosts(as_json=as_json)


def _print_hosts(*, as_json: bool) -> int:
    import msgspec

    from switchtower.client import admin

    known = admin.get_rows("hosts")
    if as_json:
        output.write_line(msgspec.json.encode(known))
        return console.ExitStatus.OK
    if not known:
        console.print_line("no hosts yet; hint: run `tower host --hub URL` on another machine")
        return console.ExitStatus.OK
    for row in table.format_rows([_format_host(host, now=time.time()) for host in known]):
        output.write_line(console.escape_unprintable(row))
    if any(host.get("state") == "pending" for host in known):
        console.print_line("hint: a pending host waits for `tower hosts approve ID` or `tower hosts refuse ID`")
    return console.ExitStatus.OK


def _format_host(host: dict[str, Any], *, now: float) -> tuple[str, ...]:
    from switchtower.cli import table

    return (
        table.format_cell(host, "id"),
        table.format_cell(host, "state"),
        "online" if host.get("online") is True else "offline",
        f"seen {table.format_since(host, 'last_seen_at', now=now)}",
        table.format_cell(host, "name"),
    )


@hosts.command()
@_id_argument
def approve(host_id: str) -> int:
    """Let a host run programs for this hub.

    \b
    Example:
      tower hosts approve host_01JZ…
    """
    return _send_change("POST", (host_id, "approve"), f"`{host_id}` is approved")


@hosts.command()
@_id_argument
def refuse(host_id: str) -> int:
    """Let a host in no more. It stays in the list, so that it is recognised.

    \b
    Example:
      tower hosts refuse host_01JZ…
    """
    return _send_change("POST", (host_id, "refuse"), f"`{host_id}` is refused")


@hosts.command()
@_id_argument
@click.argument("name", callback=arguments.validate_sendable)
def rename(host_id: str, name: str) -> int:
    """Give a host a name that people know it by.

    \b
    Example:
      tower hosts rename host_01JZ… workshop
    """
    return _send_change("PATCH", (host_id,), f"`{host_id}` is `{name}` now", {"name": name})


@hosts.command()
@_id_argument
def remove(host_id: str) -> int:
    """Forget a host. When it comes again, it is new.

    \b
    Example:
      tower hosts remove host_01JZ…
    """
    return _send_change("DELETE", (host_id,), f"`{host_id}` is removed")


@hosts.command()
@_id_argument
def rotate(host_id: str) -> int:
    """Forget a host's token: the next one that it comes with is trusted.

    \b
    Example:
      tower hosts rotate host_01JZ…
    """
    return _send_change("POST", (host_id, "rotate"), f"`{host_id}` may come with a new token; the next one is trusted")


def _send_change(method: str, names: tuple[str, ...], done: str, body: dict[str, str] | None = None) -> int:
    from switchtower.client import admin

    admin.request(method, admin.build_path("hosts", *names), body)
    console.print_line(done)
    return console.ExitStatus.OK
