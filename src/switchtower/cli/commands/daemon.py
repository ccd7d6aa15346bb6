"""`tower status` shows whether the daemon runs and where, without starting it; `tower stop` stops only this home's daemon, and
`tower restart` also starts it again with the same options."""

import asyncio
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from switchtower.cli import console, output
from switchtower.presentation import formats

if TYPE_CHECKING:
    from switchtower import config
    from switchtower.client.node_names import NodeNames


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
    from switchtower.cli import session_lookup
    from switchtower.client import discovery, errors, node_names
    from switchtower.client.client import DaemonClient

    socket = str(discovery.locate_socket(settings))
    endpoints = discovery.read_endpoints(settings)
    if endpoints is not None and endpoints.socket != socket:
        endpoints = None  # the configured socket belongs to another daemon
    try:
        async with await DaemonClient.connect(settings, start=False) as client:
            version = client.runtime_version
            listed = await client.list_sessions(session_lookup.MAX_LISTED)
            node = _describe_own_node(await node_names.fetch_node_names(client))
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
        "moreSessions": len(listed) == session_lookup.MAX_LISTED,
        "runningSessions": sum(session.state == "running" for session in listed),
        "pendingApprovals": sum(session.state == "awaiting_approval" for session in listed),
        **({"node": node} if node else {}),
    }


def _describe_own_node(known: "NodeNames") -> dict[str, Any] | None:
    """Describes this node; None with a single node."""
    if (this := known.own_node) is None:
        return None
    alive = sum(node.alive for node in known.nodes)
    return {"id": this.id, "name": this.name, "draining": this.draining, "homes": this.sessions, "alive": alive}


def _fetch_hub_link(settings: "config.Settings") -> dict[str, Any] | None:
    """Returns the state of the daemon's link to a hub; None when it connects to none."""
    from switchtower.client import admin

    link = admin.get_if_running(settings, "link")
    return link if isinstance(link, dict) and link.get("hub") else None


def _format_link(link: dict[str, Any]) -> str:
    phase = link.get("phase")
    told = f"{link['hub']}, {phase}"
    if isinstance(since_ms := link.get("since_ms"), int) and since_ms:
        told += f" for {formats.format_age(time.time() - since_ms / 1000)}"
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
        rows.append(("uptime", formats.format_age(time.time() - found["startedAt"] / 1000)))
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


_EXIT_MARGIN = 10.0


@click.command()
def stop() -> int:
    """Stop the daemon and wait until it is gone. Sessions and pending approvals are kept.

    Exits with 0 when no daemon runs afterwards.

    \b
    Example:
      tower stop && tower serve
    """
    from switchtower import config
    from switchtower.client import discovery

    settings = config.load()
    # The pid comes from the lock's holder, not from a file: the number in a file may belong to another process by now.
    pid = discovery.find_lock_holder(settings)
    if not pid:
        console.print_line("no daemon is running")
        return console.ExitStatus.OK
    if not stop_process(pid, settings):
        console.print_error(f"the daemon (pid {pid}) is still busy ending", f"see its log at `{settings.log_path}`")
        return console.ExitStatus.FAILED
    console.print_line(f"stopped the daemon (pid {pid})")
    return console.ExitStatus.OK


def stop_process(pid: int, settings: "config.Settings") -> bool:
    """Stops the process and returns whether it exited in time."""
    from switchtower.client import discovery

    patience = settings.shutdown_timeout + _EXIT_MARGIN
    try:
        process = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except ProcessLookupError:
        return True
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if process is not None:
        try:
            return bool(select.select([process], [], [], patience)[0])
        finally:
            os.close(process)
    deadline = time.monotonic() + patience
    while discovery.find_lock_holder(settings) == pid:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@click.command()
@click.option("-f", "--force", is_flag=True, help="Restart also while runs are active.")
def restart(force: bool) -> int:
    """Stop the daemon, wait until it is gone, and start it again in the background, with the options that it had and the
    environment of this shell.

    Sessions, queues and pending approvals continue. A run that works at this moment is interrupted, and a program in a terminal
    ends: with such runs the command asks at a terminal, and elsewhere needs --force. Where no daemon runs, one is started. A
    daemon that a service manager holds is not touched; the command that restarts it is printed.

    \b
    Exit codes:
      0 the daemon runs again, 1 refused or it did not start

    \b
    Example:
      tower restart
      OPENAI_API_KEY=… tower restart --force
    """
    from switchtower import config
    from switchtower.client import discovery, errors

    settings = config.load(_read_options(config.load()))
    pid = discovery.find_lock_holder(settings)
    if pid:
        if (remedy := _find_service_command(pid)) is not None:
            raise errors.ClientError(f"a service manager holds the daemon (pid {pid})", hint=f"run `{remedy}`")
        active = asyncio.run(_count_active_runs(settings))
        if active and not force and not _confirm_restart(active):
            raise errors.ClientError(
                f"the daemon was not restarted: {_format_run_count(active)} would end", hint="wait for it, or use `--force`"
            )
        if not stop_process(pid, settings):
            console.print_error(f"the daemon (pid {pid}) is still busy ending", f"see its log at `{settings.log_path}`")
            return console.ExitStatus.FAILED
    asyncio.run(_start_daemon(settings))
    console.print_line(f"restarted the daemon (pid {discovery.find_lock_holder(settings)})" if pid else "started the daemon")
    return console.ExitStatus.OK


def _read_options(settings: "config.Settings") -> dict[str, str]:
    """Returns the command-line flags of the running daemon."""
    from switchtower.client import discovery

    endpoints = discovery.read_endpoints(settings)
    return {} if endpoints is None or endpoints.pid != discovery.find_lock_holder(settings) else endpoints.options


def _find_service_command(pid: int) -> str | None:
    """Returns the command that restarts a daemon under systemd. launchd needs none: it restarts a stopped daemon by itself."""
    from switchtower.cli import system_service

    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return None
    return f"systemctl --user restart {system_service.SERVICE_UNIT}" if f"/{system_service.SERVICE_UNIT}" in groups else None


async def _count_active_runs(settings: "config.Settings") -> int:
    """Counts the runs that a stop would interrupt. A run that waits for a decision continues to wait after the restart."""
    from switchtower.cli import session_lookup
    from switchtower.client import errors
    from switchtower.client.client import DaemonClient

    try:
        async with await DaemonClient.connect(settings, start=False) as client:
            return sum(session.state == "running" for session in await client.list_sessions(session_lookup.MAX_LISTED))
    except errors.DaemonUnreachable:
        return 0


async def _start_daemon(settings: "config.Settings") -> None:
    from switchtower.client.client import DaemonClient

    (await DaemonClient.connect(settings)).close()


def _confirm_restart(active: int) -> bool:
    if not (sys.stdin.isatty() and os.isatty(2)):
        return False
    console.print_piece(f"{_format_run_count(active)} will end. Restart the daemon? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _format_run_count(active: int) -> str:
    return "1 active run" if active == 1 else f"{active} active runs"
