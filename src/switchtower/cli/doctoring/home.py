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
from switchtower.client.client import DaemonClient
from switchtower.settings import values

_DAEMON_TIMEOUT = 10.0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def check_home(settings: config.Settings) -> Iterator[finding.Finding]:
    yield from _check_folders(settings)
    yield from _check_files(settings)
    pid = discover.find_lock_holder(settings)
    endpoints = discover.read_endpoints(settings)
    yield _check_daemon(settings, pid)
    yield _check_socket(settings, pid)
    # A daemon that runs was perhaps started with other flags than this command.
    flags = endpoints.options if pid and endpoints else {}
    http, pi = (flags.get(name, wanted) for name, wanted in (("http", settings.http), ("pi", settings.pi)))
    serving = endpoints if pid else None
    yield _check_port("http", http, serving.http if serving else None, running=bool(pid), asked="http" in settings.asked)
    yield _check_port("pi", pi, serving.pi if serving else None, running=bool(pid), asked="pi" in settings.asked)
    yield from _check_reachability(settings, serving)


def _check_folders(settings: config.Settings) -> Iterator[finding.Finding]:
    for name, folder in zip(settings.folders._fields, settings.folders, strict=True):
        label = f"{name} folder"
        try:
            status = folder.stat()
        except FileNotFoundError:
            yield finding.report_ok(label, f"{folder} is not there yet; it is made when it is needed")
            continue
        except OSError as problem:
            yield finding.report_failure(label, f"{folder}: {problem.strerror}", "see who owns it and the folders above it")
            continue
        if not stat.S_ISDIR(status.st_mode):
            yield finding.report_failure(label, f"{folder} is not a folder", "move it away")
        elif status.st_uid != os.geteuid():
            yield finding.report_failure(
                label, f"{folder} belongs to uid {status.st_uid}", f"`chown -R $USER {folder}`, or choose another `TOWER_HOME`"
            )
        elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            yield finding.report_failure(label, f"{folder} cannot be written", f"`chmod u+rwx {folder}`")
        elif status.st_mode & _OTHERS_WRITE:
            yield finding.report_failure(
                label, f"{folder} can be written by others ({_format_mode(status)})", f"`chmod go-w {folder}`"
            )
        elif name != "config" and status.st_mode & _OTHERS:
            yield finding.report_warning(
                label, f"{folder} can be looked into by others ({_format_mode(status)})", f"`chmod 700 {folder}`"
            )
        else:
            yield finding.report_ok(label, f"{folder} ({_format_mode(status)})")


def _check_files(settings: config.Settings) -> Iterator[finding.Finding]:
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
    open_to_others = [file for file in private if _is_readable_by_others(file)]
    for file in open_to_others:
        yield finding.report_failure("private files", f"{file} can be read by others", f"`chmod 600 {file}`")
    if not open_to_others:
        yield finding.report_ok("private files", "only you can read them")


def _is_readable_by_others(file: Path) -> bool:
    try:
        return bool(file.stat().st_mode & _OTHERS)
    except OSError:
        return False


def _check_daemon(settings: config.Settings, pid: int | None) -> finding.Finding:
    if not pid:
        return finding.report_ok("daemon", "not running; a command that needs it starts it")
    try:
        version = asyncio.run(_fetch_version(settings))
    except (errors.ClientError, TimeoutError) as problem:
        said = str(problem) or f"no answer within {_DAEMON_TIMEOUT:g} s"
        return finding.report_failure(
            "daemon", f"pid {pid} holds the home and does not answer: {said}", "`tower stop`; see `tower logs`"
        )
    detail = f"pid {pid}, version {version}"
    if version != __version__:
        return finding.report_warning(
            "daemon", f"{detail}; this command is {__version__}", "`tower stop`, and the next command starts the new one"
        )
    return finding.report_ok("daemon", detail)


async def _fetch_version(settings: config.Settings) -> str:
    async with asyncio.timeout(_DAEMON_TIMEOUT):
        async with await DaemonClient.connect(settings, start=False) as client:
            return client.runtime_version


def _check_socket(settings: config.Settings, pid: int | None) -> finding.Finding:
    path = discover.locate_socket(settings) if pid else settings.socket
    try:
        status = path.lstat()
    except FileNotFoundError:
        if pid:
            return finding.report_failure("socket", f"{path} is gone while the daemon runs", "`tower stop`, and start it anew")
        return finding.report_ok("socket", f"{path}, when a daemon runs")
    except OSError as problem:
        return finding.report_failure(
            "socket", f"{path}: {problem.strerror}", "choose another with `tower config set socket PATH`"
        )
    if not stat.S_ISSOCK(status.st_mode):
        return finding.report_failure("socket", f"{path} is no socket", "move it away, or `tower config set socket PATH`")
    if status.st_mode & _OTHERS:
        return finding.report_failure(
            "socket", f"{path} can be reached by others ({_format_mode(status)})", f"`chmod 600 {path}`"
        )
    if not pid and _is_answering(path):
        return finding.report_warning(
            "socket", f"somebody else listens at {path}", "see who: `lsof` or `ss -xlp`; systemd does, for a service"
        )
    return finding.report_ok("socket", f"{path} ({_format_mode(status)})" + ("" if pid else ", left by a daemon that is gone"))


def _is_answering(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(os.fsencode(path)) == 0


def _check_reachability(settings: config.Settings, endpoints: discover.EndpointsFile | None) -> Iterator[finding.Finding]:
    """Of the daemon that runs, and otherwise of the one that these settings start."""
    wanted = {name: text for name, text in (("http", settings.http), ("pi", settings.pi)) if text != "off"}
    if endpoints is not None:
        http, pi, listening = endpoints.http, endpoints.pi, endpoints.listening or wanted
    else:
        secure = "s" if settings.tls_cert is not None else ""
        http, pi = (_format_url(f"{scheme}{secure}", wanted.get(name)) for scheme, name in (("http", "http"), ("ws", "pi")))
        listening = wanted
    public_url = (endpoints.options.get("public_url") if endpoints else None) or settings.public_url
    reached = reachability.describe_reachability(http=http, pi=pi, listening=listening, public_url=public_url)
    if reached.warning:
        yield finding.report_warning("other machines", reached.warning, reachability.TLS_REMEDY)
    elif any(reached):
        yield finding.report_ok("other machines", ", ".join(url for url in reached if url))


def _format_url(scheme: str, bound: str | None) -> str | None:
    address = None if bound is None else values.parse_address(bound)
    return None if address is None else f"{scheme}://127.0.0.1:{address.port}"


def _check_port(name: str, wanted: str, serving: str | None, *, running: bool, asked: bool) -> finding.Finding:
    address = values.parse_address(wanted)
    if running:
        if serving is None:
            return (
                finding.report_ok(name, "off")
                if address is None
                else finding.report_warning(
                    name,
                    f"{wanted} is not served by the daemon that runs",
                    "`tower stop`, free the port or choose another, and start it anew",
                )
            )
        if address is not None and address.port and not serving.partition("/ws")[0].endswith(f":{address.port}"):
            return finding.report_warning(
                name, f"{serving}, because {wanted} was in use when the daemon started", f"`tower config set {name} HOST:PORT`"
            )
        return finding.report_ok(name, f"{serving}, which is ours")
    if address is None:
        return finding.report_ok(name, "off")
    if not address.port:
        return finding.report_ok(name, f"a free port of {address.host}")
    problem = _find_bind_problem(address)
    if problem is None:
        return finding.report_ok(name, f"{wanted} is free")
    remedy = f"see who has it with `ss -ltnp`, or choose another: `tower config set {name} HOST:PORT`"
    return (
        finding.report_failure(name, f"{wanted}: {problem}", remedy)
        if asked
        else finding.report_warning(name, f"{wanted}: {problem}", remedy)
    )


def _find_bind_problem(address: values.ListenAddress) -> str | None:
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as problem:
        return problem.strerror or str(problem)
    return None


def _format_mode(status: os.stat_result) -> str:
    return f"{stat.S_IMODE(status.st_mode):04o}"
