"""How a browser comes in, stays in and goes; and what a stolen or forged request gets."""

import asyncio
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.daemon.conftest import Connect, StartDaemon
from tests.web_server.site import TIMEOUT, HttpPortClient, parse_cookie_attributes

from switchtower.accounts import authenticators
from switchtower.testing.relay_client import RelayApp, open_websocket

PASSWORD = "correct horse battery"
Tower = Callable[..., "subprocess.CompletedProcess[str]"]


async def visit_token(tower: Tower) -> str:
    printed = await asyncio.to_thread(tower, "token", "url")
    assert printed.returncode == 0, printed.stderr
    return printed.stdout.strip().partition("/?token=")[2]


async def test_the_first_visit_s_address_becomes_a_cookie_and_is_good_once(http_port: HttpPortClient, run_tower: Tower) -> None:
    token = await visit_token(run_tower)
    answer = await http_port.get(f"/?token={token}", Sec_Fetch_Mode="navigate", Sec_Fetch_Site="none")
    assert (answer.status, answer["location"], answer["cache-control"]) == (303, "/", "no-store")
    attributes = parse_cookie_attributes(answer["set-cookie"])
    assert attributes == {"path": "/", "max-age": "86400", "httponly": True, "samesite": "Strict"}
    me = await http_port.get("/auth/me", Cookie=answer.cookie, Sec_Fetch_Site="same-origin")
    assert (me.status, me.json["name"], me.json["admin"]) == (200, "owner", True)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", me.json["expires_at"])

    again = await http_port.get(f"/?token={token}")
    assert (again.status, again["set-cookie"]) == (200, ""), "the page is shown, and can say that the address was used"
    assert (await http_port.post("/auth/token", {"token": token}, Origin=http_port.url)).status == 401


async def test_a_page_may_exchange_the_token_itself(http_port: HttpPortClient, run_tower: Tower) -> None:
    token = await visit_token(run_tower)
    answer = await http_port.post("/auth/token", {"token": token}, Origin=http_port.url)
    assert (answer.status, list(answer.json)) == (200, ["access_token"])
    assert (await http_port.get("/auth/me", Cookie=answer.cookie)).status == 200
    assert (await http_port.post("/auth/token", {"token": token}, Origin=http_port.url)).status == 401


async def test_two_at_once_with_one_token_and_one_comes_in(http_port: HttpPortClient, run_tower: Tower) -> None:
    token = await visit_token(run_tower)
    answers = await asyncio.gather(*(http_port.get(f"/?token={token}") for _ in range(8)))
    assert sorted(answer.status for answer in answers) == [200] * 7 + [303]


@pytest.mark.parametrize(
    "query", ["token=", "token=wrong", "token=a&token=b", f"token={'x' * 20_000}", "token=%ff%00", "TOKEN=a"]
)
async def test_a_token_that_is_none_shows_the_page_and_gives_nothing(http_port: HttpPortClient, query: str) -> None:
    answer = await http_port.get(f"/?{query}")
    assert (answer.status, answer["set-cookie"]) == (200, "")


async def test_a_script_of_a_page_does_not_use_the_address_up(http_port: HttpPortClient, run_tower: Tower) -> None:
    token = await visit_token(run_tower)
    assert (await http_port.get(f"/?token={token}", Sec_Fetch_Mode="no-cors")).status == 200
    assert (await http_port.get(f"/?token={token}", Sec_Fetch_Mode="navigate")).status == 303


async def test_no_token_is_in_the_log(http_port: HttpPortClient, run_tower: Tower) -> None:
    token = await visit_token(run_tower)
    answer = await http_port.get(f"/?token={token}")
    await http_port.get(f"/?token={token}")
    await http_port.get("/auth/me", Cookie=answer.cookie)
    assert await http_port.upgrade("/ws/app", Cookie=answer.cookie, Origin=http_port.url) == 101
    await http_port.daemon.stop()
    log = http_port.daemon.log()
    assert token not in log
    assert answer.cookie.partition("=")[2] not in log


async def test_a_password_gives_our_page_a_cookie_and_a_script_none(http_port: HttpPortClient) -> None:
    await http_port.request_as_owner("POST", "/users", {"name": "ada", "password": PASSWORD})
    asked = {"username": "ada", "password": PASSWORD}
    page = await http_port.post("/auth/login", asked, Origin=http_port.url)
    script = await http_port.post("/auth/login", asked)
    neighbour = await http_port.post("/auth/login", asked, Origin="http://127.0.0.1:1")
    assert [answer.status for answer in (page, script, neighbour)] == [200, 200, 403], "a page of another port needs a token"
    assert (script["set-cookie"], neighbour["set-cookie"]) == ("", "")
    assert (await http_port.get("/auth/me", Cookie=page.cookie)).json["name"] == "ada"
    assert (await http_port.get("/auth/me", Authorization=f"Bearer {script.json['access_token']}")).json["name"] == "ada"


async def test_behind_tls_the_cookie_is_secure(start_daemon_process: StartDaemon, home: Path) -> None:
    site = HttpPortClient(
        home, await start_daemon_process(http="127.0.0.1:0", public_url="https://tower.example", origins="tower.example")
    )
    answer = await site.post("/auth/token", {"token": site.token}, Host="tower.example", Origin="https://tower.example")
    assert parse_cookie_attributes(answer["set-cookie"])["secure"] is True
    assert answer.cookie.startswith("tower="), "without a port there is none in its name"
    page = site.url.replace("http", "https", 1)
    said_so = await site.post("/auth/token", {"token": site.token}, Origin=page, X_Forwarded_Proto="https")
    assert parse_cookie_attributes(said_so["set-cookie"])["secure"] is True
    by_proxy = await site.post("/auth/token", {"token": site.token}, Origin="https://tower.example")
    assert "Secure" in by_proxy["set-cookie"], "a proxy that does not pass the name on"


# Whose requests the cookie is good for


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "{site}"}, 204),
        ({"Sec_Fetch_Site": "same-origin"}, 204),
        ({}, 403),
        ({"Sec_Fetch_Site": "none"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "http://localhost:3000", "Sec_Fetch_Site": "same-site"}, 403),
        ({"Origin": "http://127.0.0.1"}, 403),
        ({"Origin": "{site}", "Host": "localhost"}, 401),
        ({"Origin": "{site}.evil.example"}, 403),
        ({"Origin": "file://"}, 403),
    ],
)
async def test_only_our_own_page_changes_something_with_the_cookie(
    http_port: HttpPortClient, headers: dict[str, str], status: int
) -> None:
    cookie = await http_port.log_in()
    given = {name: value.format(site=http_port.url) for name, value in headers.items()}
    answer = await http_port.ask("POST", "/auth/logout", b"", Cookie=cookie, **given)
    assert answer.status == status
    still = await http_port.get("/auth/me", Cookie=cookie)
    assert still.status == (401 if status == 204 else 200)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
        ({"Sec_Fetch_Site": "none"}, 200),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "https://evil.example"}, 403),
    ],
)
async def test_other_pages_read_nothing_with_the_cookie(http_port: HttpPortClient, headers: dict[str, str], status: int) -> None:
    cookie = await http_port.log_in()
    answer = await http_port.get("/runs", Cookie=cookie, **headers)
    assert answer.status == status
    assert answer["access-control-allow-credentials"] == ""


@pytest.mark.parametrize("path", ["/ws/app", "/ws/minicodex"])
async def test_a_websocket_of_our_own_page_comes_in_with_the_cookie(http_port: HttpPortClient, path: str) -> None:
    cookie = await http_port.log_in()
    assert await http_port.upgrade(path, Cookie=cookie, Origin=http_port.url) == 101
    assert await http_port.upgrade(path, Cookie=cookie) == 401, "a program that stole it, and says of no page that it asks"
    assert await http_port.upgrade(path, Cookie=cookie, Origin="http://127.0.0.1:1") == 401
    assert await http_port.upgrade(path, Cookie=cookie, Origin="https://evil.example") == 403
    assert await http_port.upgrade(path, Cookie=cookie, Origin="null") == 403
    assert await http_port.upgrade(path, Cookie="tower=x", Origin=http_port.url) == 401
    assert await http_port.upgrade(path, Origin=http_port.url) == 401


async def test_the_other_protocols_take_no_cookie(http_port: HttpPortClient) -> None:
    cookie = await http_port.log_in()
    for path in ("/ws/push", "/ws/pi"):
        assert await http_port.upgrade(path, Cookie=cookie, Origin=http_port.url) == 401


async def test_bearer_tokens_need_no_page(http_port: HttpPortClient) -> None:
    token = (await http_port.post("/auth/token", {"token": http_port.token})).json["access_token"]
    assert (await http_port.get("/runs", Authorization=f"Bearer {token}")).status == 200
    assert await http_port.upgrade(f"/ws/app?token={token}") == 101
    assert await http_port.upgrade("/ws/app", Authorization=f"Bearer {token}") == 101
    assert (await http_port.ask("POST", "/auth/logout", b"", Authorization=f"Bearer {token}")).status == 204


async def test_a_wrong_header_is_not_mended_by_a_good_cookie(http_port: HttpPortClient) -> None:
    cookie = await http_port.log_in()
    for wrong in ("Bearer wrong", "Basic abc", "Bearer"):
        assert (await http_port.get("/runs", Cookie=cookie, Authorization=wrong)).status == 401


@pytest.mark.parametrize("extra", ["{name}=forged; {whole}", "{whole}; {name}=forged", "{whole}; {name}="])
async def test_a_cookie_that_somebody_else_put_beside_ours_makes_both_worthless(http_port: HttpPortClient, extra: str) -> None:
    cookie = await http_port.log_in()
    given = extra.format(name=cookie.partition("=")[0], whole=cookie)
    assert (await http_port.get("/runs", Cookie=given)).status == 401


async def test_cookies_of_other_daemons_are_left_alone(http_port: HttpPortClient) -> None:
    cookie = await http_port.log_in()
    assert (await http_port.get("/runs", Cookie=f"tower_1=other; theme=dark; {cookie}; x")).status == 200
    token = cookie.partition("=")[2]
    assert (await http_port.get("/runs", Cookie=f"tower_1={token}; tower={token}")).status == 401


_THIEF = """
import http.client, sys
host, cookie = sys.argv[1:]
told = []
asked = (("GET", "/runs"), ("POST", "/auth/logout"), ("GET", "/metrics"), ("POST", "/auth/token"), ("GET", "/?token=x"))
for method, path in asked:
    connection = http.client.HTTPConnection(host)
    headers = {"Cookie": cookie, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    connection.request(method, path, b"{}" if method == "POST" else None, headers)
    told.append(str(connection.getresponse().status))
open("told.txt", "w").write(" ".join(told))
"""


async def test_a_program_that_an_agent_runs_gets_nothing_for_a_stolen_cookie(
    http_port: HttpPortClient, connect: Connect, workspace: Path
) -> None:
    cookie = await http_port.log_in()
    (workspace / "thief.py").write_text(_THIEF)
    client = await connect(http_port.daemon)
    session_id = await client.start_session(workspace)
    await client.send(session_id, f"run: {shlex.quote(sys.executable)} thief.py {http_port.host} '{cookie}'")
    asked = await client.wait_for_event("approval_required", session_id=session_id)
    await client.decide(session_id, str(asked.runId), asked.content["approvalId"])
    await client.wait_for_event("run_complete", session_id=session_id)
    assert (workspace / "told.txt").read_text() == "403 403 403 403 200"
    assert (await http_port.get("/auth/me", Cookie=cookie)).status == 200


# Until when


async def test_logging_out_ends_the_cookie_everywhere(http_port: HttpPortClient) -> None:
    cookie = await http_port.log_in()
    other = await http_port.log_in()
    answer = await http_port.ask("POST", "/auth/logout", b"", Cookie=cookie, Origin=http_port.url)
    assert answer.status == 204
    assert parse_cookie_attributes(answer["set-cookie"])["max-age"] == "0"
    assert (await http_port.get("/auth/me", Cookie=cookie)).status == 401
    assert (await http_port.get("/auth/me", Cookie=other)).status == 200


async def test_a_login_is_listed_and_revoked_like_any_token_and_its_socket_is_closed(
    http_port: HttpPortClient, run_tower: Tower
) -> None:
    cookie = (
        await http_port.post("/auth/token", {"token": http_port.token}, Origin=http_port.url, User_Agent="a browser")
    ).cookie
    token_id = (await http_port.get("/auth/me", Cookie=cookie)).json["token_id"]
    listed = await asyncio.to_thread(run_tower, "token", "list")
    assert token_id in listed.stdout
    assert "a browser" in listed.stdout
    app = RelayApp(await open_websocket(http_port.url, "/ws/app", {}, {"Cookie": cookie, "Origin": http_port.url}))
    revoked = await asyncio.to_thread(run_tower, "token", "revoke", token_id)
    assert revoked.returncode == 0
    assert (await http_port.get("/auth/me", Cookie=cookie)).status == 401
    async with asyncio.timeout(authenticators.CHECK_INTERVAL + TIMEOUT):
        assert await app.wait_closed() == 1008


async def test_a_restart_keeps_logins_and_forgets_tokens_for_one_visit(
    http_port: HttpPortClient, run_tower: Tower, start_daemon_process: StartDaemon, home: Path
) -> None:
    cookie = await http_port.log_in()
    value = cookie.partition("=")[2]
    token = await visit_token(run_tower)
    await http_port.daemon.stop()
    again = HttpPortClient(home, await start_daemon_process(http="127.0.0.1:0"))
    new_name = f"tower_{again.host.rpartition(':')[2]}"
    assert (await again.get("/auth/me", Cookie=f"{new_name}={value}")).status == 200
    assert (await again.post("/auth/token", {"token": token})).status == 401
