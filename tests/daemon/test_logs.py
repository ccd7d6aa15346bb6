"""The daemon's log tells what happened and no secrets."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.daemon.conftest import Connect, StartDaemon, read_endpoints

from switchtower.core import redact
from switchtower.daemon import app

SECRET = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"


async def _ask(url: str, request: str) -> bytes:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(f"{request}\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n".encode())
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    return answer


async def test_the_owner_s_token_is_not_in_the_log(
    start_daemon_process: StartDaemon, connect: Connect, home: Path, workspace: Path
) -> None:
    daemon = await start_daemon_process(http="127.0.0.1:0", log_level="debug")
    endpoints = read_endpoints(home)
    token = endpoints["token"]
    await _ask(endpoints["http"], f"GET /healthz?token={token} HTTP/1.1")
    await _ask(endpoints["http"], f"GET /ws/push?token={token} HTTP/1.1\r\nUpgrade: websocket")
    client = await connect(daemon)
    session_id = await client.start_session(workspace)
    await client.send(session_id, f"say: {token} and {SECRET}")
    await client.wait_for_event("run_complete")
    await daemon.stop()
    log = daemon.log()
    assert "listening on" in log
    assert token not in log
    assert SECRET not in log


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield root
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_secrets_are_redacted_whoever_logs_them(tmp_path: Path, root_logger: logging.Logger) -> None:
    path = tmp_path / "tower.log"
    app.configure_logging(path, "info", redact.Redactor(known=["the-configured-value"]))
    stranger = logging.getLogger("some.library")
    stranger.info("with %s", SECRET)
    stranger.debug("below the level")
    try:
        raise ValueError(f"in a traceback: {SECRET} the-configured-value")
    except ValueError:
        stranger.exception("it failed")
    log = path.read_text()
    assert SECRET not in log
    assert "the-configured-value" not in log
    assert log.count(redact.MARK) >= 3
    assert "Traceback" in log
    assert "below the level" not in log
    assert path.stat().st_mode & 0o777 == 0o600
