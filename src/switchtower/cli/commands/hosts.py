"""`tower hosts`: the machines that run programs for this hub."""

import time
from typing import Any

import click

from switchtower.cli import arguments, console, output, table

_id = click.argument("host_id", metavar="ID", callback=arguments.sendable_option)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print one array.")


@click.group(invoke_without_command=True)
@_as_json
@click.pass_context
def hosts(ctx: click.Context, as_json: bool) -> int:
    """List the hosts that have come to this hub, and say which may stay.

    A host is a machine with `tower host --hub URL`. It is known by its id and by the token of its first visit.

    \b
    Example:
      tower hosts
      tower hosts approve host_01JZ…
    """
    return console.Exit.OK if ctx.invoked_subcommand is not None else _list(as_json=as_json)


@hosts.command("list")
@_as_json
def list_(as_json: bool) -> int:
    """List the hosts, as `tower hosts` does.

    \b
    Example:
      tower hosts list --json
    """
    return _list(as_json=as_json)


def _list(*, as_json: bool) -> int:
    import msgspec

    from switchtower.cli import admin

    known = admin.rows("hosts")
    if as_json:
        output.line(msgspec.json.encode(known))
        return console.Exit.OK
    if not known:
        console.say("no hosts yet; hint: run `tower host --hub URL` on another machine")
        return console.Exit.OK
    for row in table.rows([_cells(host, now=time.time()) for host in known]):
        output.line(console.printable(row))
    if any(host.get("state") == "pending" for host in known):
        console.say("hint: a pending host waits for `tower hosts approve ID` or `tower hosts refuse ID`")
    return console.Exit.OK


def _cells(host: dict[str, Any], *, now: float) -> tuple[str, ...]:
    from switchtower.cli import listing

    return (
        listing.text(host, "id"),
        listing.text(host, "state"),
        "online" if host.get("online") is True else "offline",
        f"seen {listing.ago(host, 'last_seen_at', now=now)}",
        listing.text(host, "name"),
    )


@hosts.command()
@_id
def approve(host_id: str) -> int:
    """Let a host run programs for this hub.

    \b
    Example:
      tower hosts approve host_01JZ…
    """
    return _do("POST", (host_id, "approve"), f"`{host_id}` is approved")


@hosts.command()
@_id
def refuse(host_id: str) -> int:
    """Let a host in no more. It stays in the list, so that it is recognised.

    \b
    Example:
      tower hosts refuse host_01JZ…
    """
    return _do("POST", (host_id, "refuse"), f"`{host_id}` is refused")


@hosts.command()
@_id
@click.argument("name", callback=arguments.sendable_option)
def rename(host_id: str, name: str) -> int:
    """Give a host a name that people know it by.

    \b
    Example:
      tower hosts rename host_01JZ… workshop
    """
    return _do("PATCH", (host_id,), f"`{host_id}` is `{name}` now", {"name": name})


@hosts.command()
@_id
def remove(host_id: str) -> int:
    """Forget a host. When it comes again, it is new.

    \b
    Example:
      tower hosts remove host_01JZ…
    """
    return _do("DELETE", (host_id,), f"`{host_id}` is removed")


@hosts.command()
@_id
def rotate(host_id: str) -> int:
    """Forget a host's token: the next one that it comes with is trusted.

    \b
    Example:
      tower hosts rotate host_01JZ…
    """
    return _do("POST", (host_id, "rotate"), f"`{host_id}` may come with a new token; the next one is trusted")


def _do(method: str, names: tuple[str, ...], done: str, body: dict[str, str] | None = None) -> int:
    from switchtower.cli import admin

    admin.call(method, admin.path_of("hosts", *names), body)
    console.say(done)
    return console.Exit.OK
