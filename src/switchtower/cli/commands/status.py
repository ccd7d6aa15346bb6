"""`tower status`: whether the daemon runs, and where. Starts nothing."""

import asyncio
import time
from typing import TYPE_CHECKING, Any

import click

from switchtower.cli import ages, console, output

if TYPE_CHECKING:
    from switchtower import config
    from switchtower.client.homes import NodeNames


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def status(as_json: bool) -> int:
    """Say whether the daemon runs, where it listens, what waits for a decision, and how the link to its hub stands. Where several
    nodes share one store, also which of them this is.

    Exits with 0 when a daemon answers and with 1 when none does; it never starts one.

    \b
    Example:
      tower status --json
    """
    import msgspec

    from switchtower import config

    settings = config.load()
    found = asyncio.run(_collect_status(settings))
    if found["running"]:
        found["hub"] = _fetch_hub_link(settings)
    if as_json:
        output.write_line(msgspec.json.encode(found))
    else:
        for name, value in _format_status(found):
            output.write_line(f"{name + ':':<20}{value}")
    if not found["running"]:
        console.print_line("hint: start the daemon with `tower serve`, or let a command such as `tower run` do it")
        return console.ExitStatus.FAILED
    return console.ExitStatus.OK


async def _collect_status(settings: "config.Settings") -> dict[str, Any]:
    from switchtower.cli import lookup
    from switchtower.client import discover, errors, homes
    from switchtower.client.client import DaemonClient

    socket = str(discover.locate_socket(settings))
    endpoints = discover.read_endpoints(settings)
    if endpoints is not None and endpoints.socket != socket:
        endpoints = None  # the socket that was asked for is another daemon's
    try:
        async with await DaemonClient.connect(settings, start=False) as client:
            version = client.runtime_version
            listed = await client.list_sessions(lookup.MAX_LISTED)
            node = _describe_own_node(await homes.fetch_node_names(client))
    except errors.DaemonUnreachable as problem:
        return {"running": False, "socket": socket, "problem": problem.message}
    return {
        "running": True,
        "pid": endpoints.pid if endpoints else None,
        "version": version,
        "socket": socket,
        "http": endpoints.http if endpoints else None,
        "pi": endpoints.pi if endpoints else None,
        "startedAt": endpoints.started_at_ms if endpoints else None,
        "sessions": len(listed),
        "moreSessions": len(listed) == lookup.MAX_LISTED,
        "runningSessions": sum(session.state == "running" for session in listed),
        "pendingApprovals": sum(session.state == "awaiting_approval" for session in listed),
        **({"node": node} if node else {}),
    }


def _describe_own_node(known: "NodeNames") -> dict[str, Any] | None:
    """Which of several nodes this is; None when it is alone."""
    if (this := known.own_node) is None:
        return None
    alive = sum(node.alive for node in known.nodes)
    return {"id": this.id, "name": this.name, "draining": this.draining, "homes": this.sessions, "alive": alive}


def _fetch_hub_link(settings: "config.Settings") -> dict[str, Any] | None:
    """How the daemon's link to a hub stands; None when it dials none."""
    from switchtower.cli import admin

    link = admin.get_if_running(settings, "link")
    return link if isinstance(link, dict) and link.get("hub") else None


def _format_link(link: dict[str, Any]) -> str:
    phase = link.get("phase")
    told = f"{link['hub']}, {phase}"
    if isinstance(since_ms := link.get("since_ms"), int) and since_ms:
        told += f" for {ages.format_age(time.time() - since_ms / 1000)}"
    if phase != "connected" and link.get("problem"):
        told += f": {link['problem']}"
    if behind := link.get("backlog"):
        told += f"; {behind} sessions not told yet"
    return console.escape_unprintable(told)


def _format_status(found: dict[str, Any]) -> list[tuple[str, str]]:
    if not found["running"]:
        return [("daemon", "not running"), ("socket", found["socket"])]
    rows = [
        ("daemon", f"running, version {found['version']}" + (f", pid {found['pid']}" if found["pid"] else "")),
        ("socket", found["socket"]),
    ]
    rows += [(name, found[name]) for name in ("http", "pi") if found[name]]
    if found["startedAt"]:
        rows.append(("uptime", ages.format_age(time.time() - found["startedAt"] / 1000)))
    count = f"{found['sessions']} or more" if found["moreSessions"] else str(found["sessions"])
    rows.append(("sessions", f"{count}, {found['runningSessions']} running"))
    rows.append(("pending approvals", str(found["pendingApprovals"])))
    if node := found.get("node"):
        drains = ", draining" if node["draining"] else ""
        is_home = "1 session" if node["homes"] == 1 else f"{node['homes']} sessions"
        rows.append(("node", console.escape_unprintable(f"{node['name']}, home of {is_home}{drains}; {node['alive']} alive")))
    if found["hub"]:
        rows.append(("hub", _format_link(found["hub"])))
    return rows
