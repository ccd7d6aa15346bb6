"""One daemon's HTTP port, asked byte by byte."""

import asyncio
import base64
import json
import os
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from tests.crash.tower_process import DaemonProcess
from tests.daemon.conftest import StartDaemon, read_endpoints

TIMEOUT = 60.0
INDEX = b"<!doctype html><title>the page</title>"
SCRIPT = b"console.log('the script')"


class RawHttpReply(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def __getitem__(self, name: Any) -> Any:
        """A header's value; several are joined."""
        return ", ".join(value for key, value in self.headers if key == name)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def cookie(self) -> str:
        """`name=value` of the one that is set."""
        return self["set-cookie"].split(";")[0]


class HttpPortClient:
    def __init__(self, home: Path, daemon: DaemonProcess) -> None:
        self.home = home
        self.daemon = daemon

    @property
    def url(self) -> str:
        return str(read_endpoints(self.home)["http"])

    @property
    def token(self) -> str:
        return str(read_endpoints(self.home)["token"])

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    async def send_raw(self, request: bytes) -> RawHttpReply:
        address = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            writer.write(request)
            async with asyncio.timeout(TIMEOUT):
                return _read(await reader.read())
        finally:
            writer.close()

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> RawHttpReply:
        """Underscores in the names of headers stand for hyphens."""
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        said = {"Host": self.host, "Connection": "close", **{name.replace("_", "-"): value for name, value in headers.items()}}
        if body is not None:
            said["Content-Length"] = str(len(content))
        head = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        return await self.send_raw(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + content)

    async def get(self, path: str, **headers: str) -> RawHttpReply:
        return await self.ask("GET", path, **headers)

    async def post(self, path: str, body: Any = None, **headers: str) -> RawHttpReply:
        return await self.ask("POST", path, {} if body is None else body, **headers)

    async def request_as_owner(self, method: str, path: str, body: Any = None) -> RawHttpReply:
        return await self.ask(method, path, body, Authorization=f"Bearer {self.token}")

    async def log_in(self) -> str:
        """The cookie that our own page gets."""
        answer = await self.post("/auth/token", {"token": self.token}, Origin=self.url)
        assert answer.status == 200
        return answer.cookie

    async def upgrade(self, path: str, **headers: str) -> int:
        """The status of the answer to a WebSocket's request."""
        address = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        said = {
            "Host": self.host,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            **headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        writer.write(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
        async with asyncio.timeout(TIMEOUT):
            line = await reader.readline()
        writer.close()
        return int(line.split()[1])


def _read(answer: bytes) -> RawHttpReply:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    if dict(headers).get("transfer-encoding") == "chunked":
        body = _join_body(body)
    return RawHttpReply(int(first.split()[1]), headers, body)


def _join_body(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole, body = whole + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return whole


@pytest.fixture
def built_page(home: Path) -> Path:
    """A page as the build leaves it."""
    folder = home / "dist"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_bytes(INDEX)
    (folder / "sw.js").write_bytes(b"// worker")
    (folder / "manifest.webmanifest").write_bytes(b"{}")
    (folder / "icon.svg").write_bytes(b"<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / "assets" / "app-1a2b3c.js").write_bytes(SCRIPT)
    (folder / "assets" / "app-1a2b3c.js.br").write_bytes(b"as brotli")
    (folder / "assets" / "app-1a2b3c.js.gz").write_bytes(b"as gzip")
    (folder / "assets" / "app-1a2b3c.css").write_bytes(b"p{}")
    return folder


@pytest.fixture
async def http_port(start_daemon_process: StartDaemon, home: Path, built_page: Path) -> HttpPortClient:
    return HttpPortClient(home, await start_daemon_process(http="127.0.0.1:0", web_dir=built_page))


def parse_cookie_attributes(set_cookie: str) -> dict[str, Any]:
    (morsel,) = SimpleCookie(set_cookie).values()
    return {name: value for name, value in morsel.items() if value}
