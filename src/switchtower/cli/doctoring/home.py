"""The home on disk and its daemon: folders and their modes, the socket, who listens, and whether it is our version."""

import asyncio
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from switchtower import __version__, config
from switchtower.cli import reachability
from switchtower.cli.doctoring import finding
from switchtower.client import discover, errors
from switchtower.client.client import Client
from switchtower.settings import values

_PATIENCE = 10.0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def look(settings: config.Settings) -> Iterator[finding.Finding]:
    yield from _folders(settings)
    yield from _files(settings)
    pid = discover.holder(settings)
    endpoints = discover.read_endpoints(settings)
    yield _daemon(settings, pid)
    yield _socket(settings, pid)
    # A daemon that runs was perhaps started with other flags than this command.
    flags = endpoints.options if pid and endpoints else {}
    http, pi = (flags.get(name, wanted) for name, wanted in (("http", settings.http), ("pi", settings.pi)))
    serving = endpoints if pid else None
    yield _port("http", http, serving.http if serving else None, running=bool(pid), asked="http" in settings.asked)
    yield _port("pi", pi, serving.pi if serving else None, running=bool(pid), asked="pi" in settings.asked)
    yield from _reachability(settings, serving)


def _folders(settings: config.Settings) -> Iterator[finding.Finding]:
    for name, folder in zip(settings.folders._fields, settings.folders, strict=True):
        label = f"{name} folder"
        try:
            status = folder.stat()
        except FileNotFoundError:
            yield finding.ok(label, f"{folder} is not there yet; it is made when it is needed")
            continue
        except OSError as problem:
            yield finding.fail(label, f"{folder}: {problem.strerror}", "see who owns it and the folders above it")
            continue
        if not stat.S_ISDIR(status.st_mode):
            yield finding.fail(label, f"{folder} is not a folder", "move it away")
        elif status.st_uid != os.geteuid():
            yield finding.fail(
                label, f"{folder} belongs to uid {status.st_uid}", f"`chown -R $USER {folder}`, or choose another `TOWER_HOME`"
            )
        elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            yield finding.fail(label, f"{folder} cannot be written", f"`chmod u+rwx {folder}`")
        elif status.st_mode & _OTHERS_WRITE:
            yield finding.fail(label, f"{folder} can be written by others ({_mode(status)})", f"`chmod go-w {folder}`")
        elif name != "config" and status.st_mode & _OTHERS:
            yield finding.warn(label, f"{folder} can be looked into by others ({_mode(status)})", f"`chmod 700 {folder}`")
        else:
            yield finding.ok(label, f"{folder} ({_mode(status)})")


def _files(settings: config.Settings) -> Iterator[finding.Finding]:
    """What holds secrets, or what was said and done."""
    private = (
        settings.config_file,
        settings.journal_path,
        settings.registry_path,
        settings.host_file,
        settings.endpoints_path,
        settings.data_dir / "owner.token",
        settings.data_dir / "jwt.secret",
        settings.data_dir / "webpush.key",
        settings.data_dir / "webpush.json",
        settings.log_path,
    )
    open_to_others = [file for file in private if _is_open(file)]
    for file in open_to_others:
        yield finding.fail("private files", f"{file} can be read by others", f"`chmod 600 {file}`")
    if not open_to_others:
        yield finding.ok("private files", "only you can read them")


def _is_open(file: Path) -> bool:
    try:
        return bool(file.stat().st_mode & _OTHERS)
    except OSError:
        return False


def _daemon(settings: config.Settings, pid: int | None) -> finding.Finding:
    if not pid:
        return finding.ok("daemon", "not running; a command that needs it starts it")
    try:
        version = asyncio.run(_greeting(settings))
    except (errors.ClientError, TimeoutError) as problem:
        said = str(problem) or f"no answer within {_PATIENCE:g} s"
        return finding.fail("daemon", f"pid {pid} holds the home and does not answer: {said}", "`tower stop`; see `tower logs`")
    detail = f"pid {pid}, version {version}"
    if version != __version__:
        return finding.warn(
            "daemon", f"{detail}; this command is {__version__}", "`tower stop`, and the next command starts the new one"
        )
    return finding.ok("daemon", detail)


async def _greeting(settings: config.Settings) -> str:
    async with asyncio.timeout(_PATIENCE):
        async with await Client.connect(settings, start=False) as client:
            return client.runtime_version


def _socket(settings: config.Settings, pid: int | None) -> finding.Finding:
    path = discover.socket_path(settings) if pid else settings.socket
    try:
        status = path.lstat()
    except FileNotFoundError:
        if pid:
            return finding.fail("socket", f"{path} is gone while the daemon runs", "`tower stop`, and start it anew")
        return finding.ok("socket", f"{path}, when a daemon runs")
    except OSError as problem:
        return finding.fail("socket", f"{path}: {problem.strerror}", "choose another with `tower config set socket PATH`")
    if not stat.S_ISSOCK(status.st_mode):
        return finding.fail("socket", f"{path} is no socket", "move it away, or `tower config set socket PATH`")
    if status.st_mode & _OTHERS:
        return finding.fail("socket", f"{path} can be reached by others ({_mode(status)})", f"`chmod 600 {path}`")
    if not pid and _answers(path):
        return finding.warn(
            "socket", f"somebody else listens at {path}", "see who: `lsof` or `ss -xlp`; systemd does, for a service"
        )
    return finding.ok("socket", f"{path} ({_mode(status)})" + ("" if pid else ", left by a daemon that is gone"))


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(os.fsencode(path)) == 0


def _reachability(settings: config.Settings, endpoints: discover.Endpoints | None) -> Iterator[finding.Finding]:
    """Of the daemon that runs, and otherwise of the one that these settings start."""
    wanted = {name: text for name, text in (("http", settings.http), ("pi", settings.pi)) if text != "off"}
    if endpoints is not None:
        http, pi, listening = endpoints.http, endpoints.pi, endpoints.listening or wanted
    else:
        secure = "s" if settings.tls_cert is not None else ""
        http, pi = (_url(f"{scheme}{secure}", wanted.get(name)) for scheme, name in (("http", "http"), ("ws", "pi")))
        listening = wanted
    public_url = (endpoints.options.get("public_url") if endpoints else None) or settings.public_url
    reached = reachability.describe(http=http, pi=pi, listening=listening, public_url=public_url)
    if reached.warning:
        yield finding.warn("other machines", reached.warning, reachability.REMEDY)
    elif any(reached):
        yield finding.ok("other machines", ", ".join(url for url in reached if url))


def _url(scheme: str, bound: str | None) -> str | None:
    address = None if bound is None else values.address(bound)
    return None if address is None else f"{scheme}://127.0.0.1:{address.port}"


def _port(name: str, wanted: str, serving: str | None, *, running: bool, asked: bool) -> finding.Finding:
    address = values.address(wanted)
    if running:
        if serving is None:
            return (
                finding.ok(name, "off")
                if address is None
                else finding.warn(
                    name,
                    f"{wanted} is not served by the daemon that runs",
                    "`tower stop`, free the port or choose another, and start it anew",
                )
            )
        if address is not None and address.port and not serving.partition("/ws")[0].endswith(f":{address.port}"):
            return finding.warn(
                name, f"{serving}, because {wanted} was in use when the daemon started", f"`tower config set {name} HOST:PORT`"
            )
        return finding.ok(name, f"{serving}, which is ours")
    if address is None:
        return finding.ok(name, "off")
    if not address.port:
        return finding.ok(name, f"a free port of {address.host}")
    problem = _why_not_free(address)
    if problem is None:
        return finding.ok(name, f"{wanted} is free")
    remedy = f"see who has it with `ss -ltnp`, or choose another: `tower config set {name} HOST:PORT`"
    return finding.fail(name, f"{wanted}: {problem}", remedy) if asked else finding.warn(name, f"{wanted}: {problem}", remedy)


def _why_not_free(address: values.Address) -> str | None:
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as problem:
        return problem.strerror or str(problem)
    return None


def _mode(status: os.stat_result) -> str:
    return f"{stat.S_IMODE(status.st_mode):04o}"
