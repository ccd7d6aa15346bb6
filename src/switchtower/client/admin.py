"""Sends administration requests (users, tokens, hosts) to the daemon as HTTP with JSON over its owner-only Unix socket.

This module prints nothing.
"""

import asyncio
import http.client
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from switchtower import config
from switchtower.client import discovery, errors

START_TIMEOUT = 5.0
"""Seconds to wait until the daemon's administration socket accepts connections."""
POLL_INTERVAL = 0.05
REQUEST_TIMEOUT = 30.0
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
_NOT_RUNNING_ERRORS = (FileNotFoundError, ConnectionRefusedError)


class AdminEndpoints(msgspec.Struct, frozen=True):
    """The fields of `endpoints.json` that the administration commands use."""

    socket: str
    hostd_socket: str | None = None
    http: str | None = None
    pi: str | None = None
    token: str | None = None
    version: str | None = None
    options: dict[str, str] = {}
    listening: dict[str, str] = {}

    def __repr__(self) -> str:
        """Leaves the token out, so that no log or traceback contains it."""
        return f"Endpoints(socket={self.socket!r}, hostd_socket={self.hostd_socket!r})"


def build_path(*names: str, **query: str | None) -> str:
    """Builds a URL path with a query; every part is percent-encoded, so it may contain any character."""
    asked = urlencode({name: value for name, value in query.items() if value is not None})
    path = "".join(f"/{quote(name, safe='')}" for name in names)
    return f"{path}?{asked}" if asked else path


def get(*names: str, **query: str | None) -> Any:
    return request("GET", build_path(*names, **query))


def get_rows(*names: str, **query: str | None) -> list[dict[str, Any]]:
    """Fetches a list of JSON objects."""
    try:
        return msgspec.convert(get(*names, **query), list[dict[str, Any]])
    except msgspec.ValidationError:
        raise errors.ProtocolViolation("the daemon answered with something that is no list") from None


def request(method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
    """Sends a request, starts the daemon if none is running, and returns the decoded answer; None when the body is empty."""
    settings = config.load()
    endpoints = _read_endpoints(settings)
    if (place := _locate_admin_socket(settings, endpoints)) is not None:
        if endpoints is not None:
            discovery.compare_version(endpoints.version)
        try:
            return _send_request(place, method, path, body)
        except _NOT_RUNNING_ERRORS:
            pass  # the socket file was left behind by a stopped daemon
    if (place := _locate_admin_socket(settings, ensure_running(settings))) is None:
        raise errors.DaemonTooOld("users, tokens and hosts")
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            return _send_request(place, method, path, body)
        except _NOT_RUNNING_ERRORS as problem:
            # A daemon that has just started opens this socket a moment after its push socket.
            if time.monotonic() > deadline:
                raise errors.DaemonUnreachable(
                    f"the daemon does not answer at `{place}` ({problem.strerror})", hint="stop it with `tower stop`"
                ) from None
            time.sleep(POLL_INTERVAL)


def get_if_running(settings: config.Settings, *names: str) -> Any:
    """Returns a running daemon's answer; None when no daemon runs or it is too old for the request. Never starts a daemon."""
    if (place := _locate_admin_socket(settings, _read_endpoints(settings))) is None:
        return None
    try:
        return _send_request(place, "GET", build_path(*names), None)
    except (*_NOT_RUNNING_ERRORS, errors.ClientError):
        return None


def _locate_admin_socket(settings: config.Settings, endpoints: AdminEndpoints | None) -> Path | None:
    """Returns the configured socket if it differs from the default, else the one that the running daemon announces."""
    if settings.host_socket != settings.default_host_socket:
        return settings.host_socket
    return Path(endpoints.hostd_socket) if endpoints is not None and endpoints.hostd_socket is not None else None


def ensure_running(settings: config.Settings) -> AdminEndpoints:
    """Starts the daemon if none is running, and returns its endpoints."""
    asyncio.run(_start(settings))
    endpoints = _read_endpoints(settings)
    if endpoints is None:
        raise errors.DaemonUnreachable(
            f"the daemon at `{settings.socket}` is another home's", hint="set `TOWER_HOME` to that daemon's home"
        )
    return endpoints


async def _start(settings: config.Settings) -> None:
    (await discovery.connect_or_start(settings)).close()


def _read_endpoints(settings: config.Settings) -> AdminEndpoints | None:
    """Returns None when the file does not exist, or when the configured socket belongs to another daemon."""
    try:
        endpoints = msgspec.json.decode(settings.endpoints_path.read_bytes(), type=AdminEndpoints)
    except (OSError, msgspec.MsgspecError):
        return None
    return endpoints if endpoints.socket == str(discovery.locate_socket(settings)) else None


class _UnixHttpConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=REQUEST_TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(REQUEST_TIMEOUT)
        try:
            self.sock.connect(str(self._path))
        except OSError:
            self.close()
            raise


def _send_request(socket_path: Path, method: str, path: str, body: Mapping[str, object] | None) -> Any:
    connection = _UnixHttpConnection(socket_path)
    try:
        content = None if body is None else msgspec.json.encode(body)
        connection.request(method, path, content, {"Accept": "application/json", "Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read(MAX_RESPONSE_BYTES + 1)
        if response.length and len(answer) <= MAX_RESPONSE_BYTES:
            raise http.client.IncompleteRead(b"")
    except _NOT_RUNNING_ERRORS:
        raise
    except TimeoutError:
        raise errors.ConnectionLost(
            f"the daemon did not answer within {REQUEST_TIMEOUT:g} s", hint="see whether it happened"
        ) from None
    except (OSError, http.client.HTTPException) as problem:
        raise errors.ConnectionLost(f"the connection to the daemon ended ({type(problem).__name__})", hint="try again") from None
    finally:
        connection.close()
    if len(answer) > MAX_RESPONSE_BYTES:
        raise errors.ProtocolViolation(f"the daemon answered with more than {MAX_RESPONSE_BYTES} bytes")
    return _decode_result(response.status, answer)


def _decode_result(status: int, answer: bytes) -> Any:
    try:
        said = msgspec.json.decode(answer) if answer else None
    except (msgspec.MsgspecError, RecursionError):
        said = ...
    if 200 <= status < 300 and said is not ...:
        return said
    if 400 <= status < 600 and isinstance(said, dict) and isinstance(said.get("error"), str):
        hint = said.get("hint")
        raise errors.ClientError(said["error"], hint=hint if isinstance(hint, str) and hint else None)
    raise errors.ProtocolViolation(f"the daemon answered with HTTP {status} and no reason", hint="see its log")
