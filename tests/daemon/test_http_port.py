"""The HTTP port: off when it is switched off, somewhere when nobody cares, and exactly there when somebody does."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.daemon.conftest import StartDaemon, read_endpoints

from switchtower import config
from switchtower.settings import parsers
from switchtower.settings.sources import ConfigError
from switchtower.web_api import early_pages

DEFAULT = config.Settings.http


async def _get(url: str, path: str) -> bytes:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


async def test_without_http_there_is_no_port(start_daemon_process: StartDaemon, home: Path) -> None:
    daemon = await start_daemon_process(http="off", pi="off")
    assert read_endpoints(home)["http"] is None
    if os.geteuid() == 0 and Path("/proc/net/tcp").exists():  # only root may list a daemon's files
        sockets = {str(descriptor.readlink()) for descriptor in Path(f"/proc/{daemon.pid}/fd").iterdir()}
        of_tcp = {f"socket:[{line.split()[9]}]" for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}
        assert not sockets & of_tcp


async def test_a_used_default_port_is_replaced_by_a_free_one(start_daemon_process: StartDaemon, home: Path) -> None:
    address = parsers.parse_address(DEFAULT)
    assert address is not None
    with contextlib.ExitStack() as stack:
        holder = stack.enter_context(socket.socket())
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # somebody else on this machine may hold it: it is in use all the same
            holder.bind(address)
            holder.listen()
        daemon = await start_daemon_process(http=DEFAULT)
        url = read_endpoints(home)["http"]
        assert urlsplit(url).port not in (None, 0, address.port)
        assert b"200 OK" in await _get(url, "/healthz")
        assert f"{DEFAULT} is in use" in daemon.log()


async def test_a_used_port_that_was_asked_for_is_refused_with_a_remedy(
    home: Path, run_tower: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        refused = await asyncio.to_thread(run_tower, "serve", "--http", f"127.0.0.1:{port}")
    assert refused.returncode != 0
    assert str(port) in refused.stderr
    assert "hint:" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert list((home / "run").glob("*.sock")) == []
    assert not (home / "run" / "endpoints.json").exists()


@pytest.mark.requirement("relay:auth:environment-checked")
async def test_pages_that_cannot_be_made_are_answered_503_in_the_form_of_readyz() -> None:
    async def make() -> Any:
        raise ConfigError("jwt.secret", "`/home/x`", "is shorter than 16 bytes", hint="remove the file: a new one is made")

    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await early_pages.LazyApp(make)({"type": "http", "path": "/readyz"}, None, send)
    reasons = ["a setting cannot be used: `jwt.secret`; the log has the remedy"]
    assert sent[0]["status"] == 503
    assert json.loads(sent[1]["body"]) == {"ready": False, "reasons": reasons}
