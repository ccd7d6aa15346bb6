"""The hub's HTTP as its clients use it: every route, every status, every field."""

import json
import time
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import argon2
import jwt
import pytest
from tests.conformance import shared_store
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.relay.conftest import Dial, RelayDaemon
from tests.conformance.relay.peers import CheckedApp, CheckedHost, CheckedHttp
from tests.conftest import StartDaemon

ROW = {"id", "host_id", "tool", "cwd", "status", "started_at", "last_active_at"}
OPTIONAL = {
    *("pending_request_id", "pending_reason", "pending_prompt", "pending_op_tool", "pending_op_args_summary"),
    *("ended_at", "exit_code", "title", "engine", "provider", "model", "preset", "policy", "sandbox", "usage"),
    *("acceptance", "child_of"),
}
MESSAGE = {"id", "seq", "ts", "role", "kind", "actor", "request_id", "text", "data"}
HOST = {"id", "name", "last_seen_at", "online"}
PASSWORD = "correct horse battery"


def is_a_time(text: object) -> bool:
    return isinstance(text, str) and text.endswith("Z") and datetime.fromisoformat(text).year >= 2025


@pytest.mark.requirement("relay:http:health")
def test_health_is_told_to_anybody(hub: ManagedDaemon) -> None:
    assert {"name", "version"} <= set(CheckedHttp(hub.http).get("/health"))


@pytest.mark.requirement("relay:http:login", "relay:auth:jwt")
def test_login_gives_a_jwt_that_is_good_for_a_day(hub: ManagedDaemon, hub_http: CheckedHttp) -> None:
    hub_http.post("/users", {"name": "ada", "password": PASSWORD}, 201)
    stranger = CheckedHttp(hub.http)
    answer = stranger.post("/auth/login", {"username": "ada", "password": PASSWORD})
    assert list(answer) == ["access_token"]
    token = answer["access_token"]
    assert jwt.get_unverified_header(token)["alg"] == "HS256"
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == 24 * 3600
    assert abs(claims["iat"] - time.time()) < 3600
    assert isinstance(CheckedHttp(hub.http, token).get("/runs"), list)


@pytest.mark.requirement("relay:http:login-refused")
def test_a_wrong_login_is_401_invalid_credentials(hub: ManagedDaemon, hub_http: CheckedHttp) -> None:
    hub_http.post("/users", {"name": "grace", "password": PASSWORD}, 201)
    for name, password in (("grace", "wrong horse"), ("nobody-here", PASSWORD)):
        reply = CheckedHttp(hub.http).ask("POST", "/auth/login", {"username": name, "password": password})
        assert (reply.status, reply.json["error"]) == (401, "invalid credentials")


@pytest.mark.requirement("relay:http:malformed")
def test_a_body_that_cannot_be_read_is_400(hub: ManagedDaemon, hub_http: CheckedHttp) -> None:
    for body in (b"", b"{", b"[]", b'{"username":1,"password":2}', b"\xff\xfe"):
        assert CheckedHttp(hub.http).ask("POST", "/auth/login", body).status == 400
    for body in (b"{", b"{}", b'{"input_id":"","text":"x"}', b'{"input_id":"i"}', b'{"input_id":"i","text":7}'):
        assert hub_http.ask("POST", "/runs/some/input", body).status == 400
    assert hub_http.ask("GET", "/sessions/recent?limit=many").status == 400


@pytest.mark.requirement("relay:auth:bearer")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/runs"),
        ("GET", "/sessions"),
        ("GET", "/sessions/recent"),
        ("GET", "/sessions/some"),
        ("GET", "/runs/some/messages"),
        ("GET", "/sessions/some/messages"),
        ("POST", "/runs/some/input"),
        ("GET", "/hosts"),
    ],
)
def test_everything_else_wants_a_bearer_token(hub: ManagedDaemon, method: str, path: str) -> None:
    for token in (None, "wrong", jwt.encode({"sub": "ada", "exp": 4e9}, "a guessed secret of 32 characters", algorithm="HS256")):
        assert CheckedHttp(hub.http, token).ask(method, path, {} if method == "POST" else None).status == 401
    assert CheckedHttp(hub.http).ask(method, path, None, Authorization=f"Basic {hub.token}").status == 401


@pytest.mark.requirement("relay:http:runs", "relay:rows:fields")
async def test_runs_and_sessions_list_the_same_rows_newest_activity_first(hub_http: CheckedHttp, host: CheckedHost) -> None:
    first, second = await host.begin(), await host.begin(tool="claude", cwd="/elsewhere")
    rows = hub_http.get("/runs")
    assert [row["id"] for row in rows[:2]] == [second, first]
    assert [row["id"] for row in hub_http.get("/sessions")[:2]] == [second, first]
    await host.send_frames(host.make_output(first, 2))
    await host.wait_for_ack(first, 2)
    rows = hub_http.get("/runs")
    assert [row["id"] for row in rows[:2]] == [first, second]
    for row in rows:
        assert set(row) >= ROW, row
        assert set(row) - ROW <= OPTIONAL
        assert is_a_time(row["started_at"])
        assert is_a_time(row["last_active_at"])
    row = rows[1]
    assert (row["host_id"], row["tool"], row["cwd"], row["status"]) == (host.host_id, "claude", "/elsewhere", "running")


@pytest.mark.requirement("relay:http:recent", "relay:http:at-most-200")
async def test_recent_is_clamped_to_200_and_lists_never_have_more(hub_http: CheckedHttp, host: CheckedHost) -> None:
    frames = [host.make_started(f"run_{uuid4().hex}") for _ in range(205)]
    await host.send_frames(*frames)
    for frame in frames:
        await host.wait_for_ack(frame["run_id"], 1)
    lengths = {
        query: len(hub_http.get(f"/sessions/recent{query}")) for query in ("", "?limit=1", "?limit=0", "?limit=-7", "?limit=9999")
    }
    assert lengths == {"": 50, "?limit=1": 1, "?limit=0": 1, "?limit=-7": 1, "?limit=9999": 200}
    assert len(hub_http.get("/runs")) == len(hub_http.get("/sessions")) == 200


@pytest.mark.requirement("relay:http:session")
async def test_one_session_is_its_row_or_404(hub_http: CheckedHttp, host: CheckedHost) -> None:
    run_id = await host.begin()
    row = hub_http.get(f"/sessions/{run_id}")
    assert row == next(one for one in hub_http.get("/runs") if one["id"] == run_id)
    assert hub_http.get("/sessions/run_that_is_none", 404)["error"] == "unknown run_id"


@pytest.mark.requirement("relay:http:messages", "relay:messages:fields", "relay:messages:roles")
async def test_messages_are_the_runs_events_in_order(hub_http: CheckedHttp, host: CheckedHost) -> None:
    run_id = await host.begin(command="codex --loud")
    told: list[tuple[str, dict[str, Any]]] = [
        ("run.output", {"stream": "stdout", "text": "hello"}),
        ("run.input", {"actor": "cli", "input_id": "in-1", "text_redacted": "yes\n", "text_sha256": "0" * 64}),
        ("tool.call", {"request_id": "t-1", "tool": "rpc.fs.read", "actor": "web", "args": {"path": "x"}}),
        ("run.exited", {"exit_code": 3}),
    ]
    for seq, (type_, data) in enumerate(told, 2):
        await host.send_message(type_, run_id, seq, data)
    await host.wait_for_ack(run_id, 5)
    messages = hub_http.get(f"/runs/{run_id}/messages")
    assert messages == hub_http.get(f"/sessions/{run_id}/messages")
    assert [(message["kind"], message["role"], message["seq"]) for message in messages] == [
        ("run.started", "system", 1),
        ("run.output", "assistant", 2),
        ("run.input", "user", 3),
        ("tool.call", "system", 4),
        ("run.exited", "system", 5),
    ]
    assert [message["text"] for message in messages[:3]] == ["codex --loud", "hello", "yes\n"]
    assert (messages[2]["actor"], messages[3]["request_id"]) == ("cli", "t-1")
    for message, (_, data) in zip(messages[1:], told, strict=True):
        assert set(message) == MESSAGE
        assert message["data"] == data
        assert is_a_time(message["ts"])
    ids = [message["id"] for message in messages]
    assert ids == sorted(set(ids))


@pytest.mark.requirement("relay:http:paging")
async def test_messages_are_paged_backwards_with_a_clamped_limit(hub_http: CheckedHttp, host: CheckedHost) -> None:
    run_id = await host.begin()
    await host.send_frames(*[host.make_output(run_id, seq) for seq in range(2, 621)])
    await host.wait_for_ack(run_id, 620)
    path = f"/runs/{run_id}/messages"
    assert [len(hub_http.get(path + query)) for query in ("", "?limit=0", "?limit=9999")] == [200, 1, 500]
    pages: list[dict[str, Any]] = []
    page = hub_http.get(f"{path}?limit=500")
    while page:
        assert [message["id"] for message in page] == sorted(message["id"] for message in page)
        pages = page + pages
        page = hub_http.get(f"{path}?limit=500&before_id={page[0]['id']}")
    assert [message["seq"] for message in pages] == list(range(1, 621))


@pytest.mark.requirement("relay:http:include-output")
async def test_messages_without_output_have_everything_else(hub_http: CheckedHttp, host: CheckedHost) -> None:
    run_id = await host.begin()
    await host.send_frames(host.make_output(run_id, 2), host.make_event("run.exited", run_id, 3, {"exit_code": 0}))
    await host.wait_for_ack(run_id, 3)
    for spelled, kinds in (("false", ["run.started", "run.exited"]), ("true", ["run.started", "run.output", "run.exited"])):
        messages = hub_http.get(f"/runs/{run_id}/messages?include_output={spelled}")
        assert [message["kind"] for message in messages] == kinds
    assert hub_http.get("/runs/run_that_is_none/messages", 404)["error"] == "unknown run_id"


@pytest.mark.requirement("relay:http:input", "relay:http:input-actor")
async def test_input_over_http_is_forwarded_to_the_owning_host(hub_http: CheckedHttp, host: CheckedHost) -> None:
    run_id = await host.begin()
    reply = hub_http.ask("POST", f"/runs/{run_id}/input", {"input_id": "from-http", "text": "go\n", "actor": "cli"})
    assert (reply.status, reply.body) == (204, b"")
    order = await host.wait_for_command("run.send_input", run_id)
    assert order == {"input_id": "from-http", "text": "go\n", "actor": "cli", "by": "owner"}


@pytest.mark.requirement("relay:http:input-refused", "relay:faults:undeliverable")
async def test_input_to_nobody_is_404_and_to_a_host_that_is_away_502(hub_http: CheckedHttp, host: CheckedHost) -> None:
    asked = {"input_id": "i", "text": "x\n"}
    assert hub_http.ask("POST", "/runs/run_that_is_none/input", asked).status == 404
    run_id = await host.begin()
    await host.leave()
    hub_http.wait_for_host_row(host.host_id, lambda row: not row["online"])
    reply = hub_http.ask("POST", f"/runs/{run_id}/input", asked)
    assert (reply.status, reply.json["error"]) == (502, "host offline")


@pytest.mark.requirement("relay:http:hosts", "relay:hosts:heartbeat")
async def test_hosts_are_listed_with_whether_they_are_there(
    hub_http: CheckedHttp, hub: ManagedDaemon, connect_host: Dial
) -> None:
    host = await connect_host(hub, name="the-machine-under-the-desk")
    await host.begin()

    def row() -> dict[str, Any]:
        return next(row for row in hub_http.get("/hosts") if row["id"] == host.host_id)

    first = row()
    assert set(first) >= HOST
    assert set(first) - HOST <= {"state", "first_seen_at", "is_this_daemon", "is_node"}
    assert (first["name"], first["online"]) == ("the-machine-under-the-desk", True)
    assert is_a_time(first["last_seen_at"])
    # A heartbeat has no run and no answer.
    await host.send_frames(
        {"type": "host.heartbeat", "data": {}}, {"type": "host.heartbeat", "host_id": host.host_id, "data": {}}
    )
    await host.wait_until_read()
    assert [frame["type"] for frame in host.frames if frame["type"] != "run.ack"] == ["error"], (
        "only the mark is complained about"
    )
    await host.leave()
    gone = hub_http.wait_for_host_row(host.host_id, lambda row: not row["online"])
    assert gone["last_seen_at"] >= first["last_seen_at"]


@pytest.mark.requirement("relay:http:anything-else")
def test_any_other_path_is_for_the_page_and_asks_for_no_token(hub: ManagedDaemon) -> None:
    for path in ("/", "/some/where/in/the/app"):
        reply = CheckedHttp(hub.http).ask("GET", path)
        assert reply.status in (200, 404), "404 says that this version has no page"
        assert reply.headers["content-type"].startswith(("text/html", "text/plain"))


@pytest.mark.requirement("relay:ids:any-text")
@pytest.mark.parametrize("run_id", ["k3j9x0q2", "a/b c%", "Läufe-🚂", "x" * 128, "..", "sess_r.evil"])
async def test_run_ids_are_any_text(hub_http: CheckedHttp, host: CheckedHost, app: CheckedApp, run_id: str) -> None:
    run_id = run_id if len(run_id) == 128 else f"{run_id}{uuid4().hex[:6]}"
    await host.begin(run_id)
    assert (await app.wait_for_frame("run.started", run_id))["host_id"] == host.host_id
    assert hub_http.get(f"/sessions/{quote(run_id, safe='')}")["id"] == run_id
    for input_id in ("l8f2", "x" * 128, "é"):
        await app.send_command("run.send_input", run_id, input_id=input_id, text="x")
        assert (await host.next_of_type("run.send_input", run_id))["data"]["input_id"] == input_id


@pytest.mark.requirement("relay:auth:environment", "relay:auth:one-admin")
def test_the_environments_names_of_the_public_server_are_obeyed() -> None:
    secret = "the secret of the environment, long enough"
    variables = {
        "JWT_SECRET": secret,
        "ADMIN_USERNAME": "admin",
        "ADMIN_PASSWORD_HASH": argon2.PasswordHasher(time_cost=1, memory_cost=1024, parallelism=1).hash(PASSWORD),
    }
    daemon = RelayDaemon(variables).start()
    try:
        token = CheckedHttp(daemon.http).post("/auth/login", {"username": "admin", "password": PASSWORD})["access_token"]
        assert jwt.decode(token, secret, algorithms=["HS256"])["sub"] == "admin"
        assert CheckedHttp(daemon.http, token).get("/runs") == []
        assert PASSWORD not in daemon.log
        assert token not in daemon.log
    finally:
        daemon.discard()


@shared_store.only_with_sqlite
@pytest.mark.requirement("relay:auth:argon2")
def test_passwords_are_kept_as_argon2_hashes(hub: ManagedDaemon, hub_http: CheckedHttp) -> None:
    hub_http.post("/users", {"name": "alan", "password": "enigma enigma enigma"}, 201)
    kept = b"".join(path.read_bytes() for path in (hub.home / "data").glob("registry.db*"))
    assert b"$argon2" in kept
    assert b"enigma enigma" not in kept
    assert "enigma" not in json.dumps(hub_http.get("/users"))


@pytest.mark.requirement("relay:auth:attempts-limited")
def test_guessing_at_passwords_is_slowed_down(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(new_hosts="refuse")
    guesses = [
        CheckedHttp(daemon.http).ask("POST", "/auth/login", {"username": "eve", "password": f"guess {n}"}) for n in range(8)
    ]
    assert [guess.status for guess in guesses[:5]] == [401] * 5
    assert guesses[-1].status == 429
    assert int(guesses[-1].headers["retry-after"]) >= 1


@pytest.mark.requirement("relay:auth:revocable")
def test_a_token_that_was_given_out_can_be_taken_back(hub: ManagedDaemon, hub_http: CheckedHttp) -> None:
    hub_http.post("/users", {"name": "revoked", "password": PASSWORD}, 201)
    token = hub_http.post("/auth/login", {"username": "revoked", "password": PASSWORD})["access_token"]
    assert CheckedHttp(hub.http, token).ask("POST", "/auth/logout").status == 204
    assert CheckedHttp(hub.http, token).ask("GET", "/runs").status == 401
