"""A page of another port of this machine, in a real browser whose user is logged in at the daemon's own page, tries to reach
every listener. It gets nothing, and nothing happens."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from tests.daemon.conftest import StartDaemon, read_endpoints
from tests.daemon.conftest import home as home
from tests.daemon.conftest import start_daemon_process as start_daemon_process
from tests.daemon.conftest import workspace as workspace
from tests.web.conftest import _find_browser

if TYPE_CHECKING:
    from playwright.async_api import Page

ATTACK = """
async ({sockets, requests, frames}) => {
  const connect = (url) => new Promise((settle) => {
    const told = {opened: false, messages: [], code: null};
    const socket = new WebSocket(url);
    socket.onopen = () => { told.opened = true; for (const frame of frames) socket.send(JSON.stringify(frame)); };
    socket.onmessage = (message) => { told.messages.push(String(message.data).slice(0, 200)); };
    socket.onclose = (event) => { told.code = event.code; settle(told); };
    setTimeout(() => { socket.close(); settle(told); }, 3000);
  });
  const ask = async ({url, options}) => {
    try {
      const answer = await fetch(url, options);
      return answer.type === "opaque" ? "opaque" : `${answer.status} ${(await answer.text()).slice(0, 200)}`;
    } catch (problem) { return problem.name; }
  };
  return {
    sockets: Object.fromEntries(await Promise.all(sockets.map(async (url) => [url, await connect(url)]))),
    requests: await Promise.all(requests.map(async (request) => [JSON.stringify(request), await ask(request)])),
  };
}
"""
PATHS = ("/ws/push", "/ws/app", "/ws/minicodex", "/ws/pi", "/ws/host?host_id=host_forged&host_token=0123456789")


@asynccontextmanager
async def serve_foreign_page() -> AsyncIterator[int]:
    """A web server that has nothing to do with the daemon, at a port of its own."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"<!doctype html><title>elsewhere</title>"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n")
        writer.write(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def open_browser() -> AsyncIterator[Any]:
    api = pytest.importorskip("playwright.async_api", reason="Playwright is not installed")
    if (program := _find_browser()) is None:
        pytest.skip("there is no Chromium")
    async with api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


def make_requests(http: str, pi: str, session_id: str) -> list[dict[str, Any]]:
    """Everything that fetch can do, with the cookie and without."""
    asked: list[tuple[str, str, str | None]] = [
        ("GET", f"{http}/runs", None),
        ("GET", f"{http}/approvals", None),
        ("GET", f"{http}/auth/me", None),
        ("GET", f"{http}/metrics", None),
        ("GET", f"{http}/hosts", None),
        ("GET", f"{http}/", None),
        ("GET", f"{pi}/healthz", None),
        ("POST", f"{http}/auth/logout", ""),
        ("POST", f"{http}/auth/login", '{"username":"owner","password":"x"}'),
        ("POST", f"{http}/runs/{session_id}/input", '{"text":"y"}'),
        ("POST", f"{http}/users", '{"name":"mallory","password":"a long password"}'),
        ("POST", f"{pi}/", '{"type":"create_session"}'),
        ("DELETE", f"{http}/runs/{session_id}", None),
        ("PATCH", f"{http}/runs/{session_id}", '{"title":"renamed by a page"}'),
    ]
    made = []
    for method, url, body in asked:
        for mode in ("cors", "no-cors") if method in ("GET", "POST") else ("cors",):
            for credentials in ("include", "omit"):
                options = {"method": method, "mode": mode, "credentials": credentials, "body": body}
                made.append({"url": url, "options": {name: value for name, value in options.items() if value is not None}})
                if mode == "cors":
                    with_header = {**options, "headers": {"Content-Type": "application/json", "Authorization": "Bearer x"}}
                    chosen = {name: value for name, value in with_header.items() if value is not None}
                    made.append({"url": url, "options": chosen})
    return made


async def attack(page: "Page", http: str, pi: str, session_id: str, target: Path, workspace: Path) -> dict[str, Any]:
    address, pi_address = urlsplit(http), urlsplit(pi)
    names = ("127.0.0.1", "localhost")
    sockets = [f"ws://{name}:{address.port}{path}" for name in names for path in PATHS]
    sockets += [f"ws://{name}:{pi_address.port}{path}" for name in names for path in ("/", "/?lifecycle=off")]
    base = {"commandId": "c1", "id": "c1"}
    frames = [
        {"type": "create_session", "cwd": str(workspace), **base, "sessionId": "evil"},
        {"type": "bash", "command": f"id > {target}", **base, "id": "c2", "commandId": "c2", "sessionId": "evil"},
    ]
    requests = [
        request
        for name in names
        for request in make_requests(f"http://{name}:{address.port}", f"http://{name}:{pi_address.port}", session_id)
    ]
    return dict(await page.evaluate(ATTACK, {"sockets": sockets, "requests": requests, "frames": frames}))


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
async def test_a_page_of_another_port_gets_nothing(
    home: Path, workspace: Path, start_daemon_process: StartDaemon, name: str
) -> None:
    (home / "page").mkdir()
    (home / "page" / "index.html").write_text("<!doctype html><title>our own page</title>")
    await start_daemon_process(http="127.0.0.1:0", pi="127.0.0.1:0", web_dir=home / "page")
    told = read_endpoints(home)
    http, pi = told["http"], told["pi"].replace("ws://", "http://")
    target = home / "written-by-a-page"
    async with open_browser() as browser, serve_foreign_page() as port:
        context = await browser.new_context()
        own = await context.new_page()
        await own.goto(f"{http}/")
        logged_in = await own.evaluate(
            """async (token) => (await fetch("/auth/token", {method: "POST", body: JSON.stringify({token}),
               headers: {"Content-Type": "application/json"}})).status""",
            told["token"],
        )
        assert logged_in == 200
        session_id = "sess_unknown"

        page = await context.new_page()
        await page.goto(f"http://{name}:{port}/")
        seen = await attack(page, http, pi, session_id, target, workspace)

        assert not target.exists(), "what the page wanted written"
        assert {url: result["messages"] for url, result in seen["sockets"].items() if result["messages"]} == {}
        assert {url for url, result in seen["sockets"].items() if result["opened"] and result["code"] != 1008} == set()
        assert len(seen["requests"]) > 100
        assert {answer for _, answer in seen["requests"]} <= {"TypeError", "opaque"}

        # The cookie is there, and good for our own page: the other one could not use it, nor end it.
        me = await own.evaluate("""async () => (await fetch("/auth/me")).status""")
        assert me == 200
        opened = await own.evaluate(
            """() => new Promise((settle) => {
                 const socket = new WebSocket(`ws://${location.host}/ws/app`);
                 socket.onopen = () => settle("open"); socket.onclose = (event) => settle(event.code);
               })"""
        )
        assert opened == "open"
        rows = await own.evaluate(
            """async () => JSON.stringify(await Promise.all(
                 ["/users", "/hosts", "/runs"].map(async (path) => (await fetch(path)).json())))"""
        )
    for trace in ("mallory", "host_forged", "renamed by a page"):
        assert trace not in rows
    assert [row for row in json.loads(rows)[2] if row.get("cwd") == str(workspace)] == []
