"""The endpoints that apps use, on a real port."""

from collections.abc import AsyncIterator

import pytest
from tests.protocols.relay.http_parts import OWNER_TOKEN, PASSWORD, WebApiHarness, make_success, open_stage, put_out

from switchtower.core import events
from switchtower.core.ports import engine, registry


@pytest.fixture
async def web_api_harness() -> AsyncIterator[WebApiHarness]:
    async with open_stage() as opened:
        yield opened


async def connect_host(web_api_harness: WebApiHarness, host_id: str = "host_2") -> None:
    visit = registry.HostContact(host_id=host_id, token_sha256="0" * 64, address="192.0.2.1", at_ms=1_000, name="far")
    await web_api_harness.registry.record_contact(visit, first_state=registry.HostState.PENDING, most=10)


async def test_health_is_told_to_whoever_asks(web_api_harness: WebApiHarness) -> None:
    answer = await web_api_harness.stranger.get("/health")
    assert (answer.status, answer.json) == (200, {"name": "switchtower", "version": "1.2.3"})
    assert answer.headers["content-type"] == "application/json"
    assert (await web_api_harness.stranger.get("/healthz")).json == {"ok": True}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/runs"),
        ("GET", "/sessions"),
        ("GET", "/sessions/recent"),
        ("GET", "/sessions/x"),
        ("GET", "/runs/x"),
        ("GET", "/runs/x/messages"),
        ("GET", "/sessions/x/messages"),
        ("GET", "/runs/x/screen"),
        ("POST", "/runs/x/input"),
        ("GET", "/hosts"),
        ("PATCH", "/hosts/x"),
        ("DELETE", "/hosts/x"),
        ("POST", "/hosts/x/approve"),
        ("POST", "/hosts/x/refuse"),
        ("POST", "/hosts/x/rotate"),
        ("GET", "/users"),
        ("POST", "/users"),
        ("PUT", "/users/x/password"),
        ("DELETE", "/users/x"),
        ("GET", "/tokens"),
        ("DELETE", "/tokens/x"),
        ("GET", "/auth/me"),
        ("POST", "/auth/logout"),
    ],
)
async def test_everything_else_needs_a_token(web_api_harness: WebApiHarness, method: str, path: str) -> None:
    answer = await web_api_harness.stranger.ask(method, path)
    assert answer.status == 401
    assert answer.json["error"] == "unauthorized"
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_user_logs_in_and_out(web_api_harness: WebApiHarness) -> None:
    assert (await web_api_harness.app.post("/users", {"name": "ann", "password": PASSWORD})).status == 201
    granted = await web_api_harness.stranger.post("/auth/login", {"username": "ann", "password": PASSWORD}, User_Agent="phone")
    assert granted.status == 200
    assert list(granted.json) == ["access_token"]
    web_api_harness.stranger.token = granted.json["access_token"]
    me = (await web_api_harness.stranger.get("/auth/me")).json
    assert me["name"] == "ann"
    (token,) = (await web_api_harness.app.get("/tokens?user=ann")).json
    assert token["id"] == me["token_id"]
    assert (token["user"], token["client"]) == ("ann", "phone")
    assert token["created_at"] < token["expires_at"]
    assert (await web_api_harness.stranger.post("/auth/logout")).status == 204
    assert (await web_api_harness.stranger.get("/auth/me")).status == 401


async def test_a_wrong_login_is_told_in_relays_words(web_api_harness: WebApiHarness) -> None:
    answer = await web_api_harness.stranger.post("/auth/login", {"username": "ann", "password": "wrong"})
    assert (answer.status, answer.body) == (401, b'{"error":"invalid credentials"}')


async def test_many_wrong_logins_have_to_wait(web_api_harness: WebApiHarness) -> None:
    wrong = {"username": "ann", "password": "wrong"}
    answers = [await web_api_harness.stranger.post("/auth/login", wrong) for _ in range(6)]
    assert [answer.status for answer in answers] == [401] * 5 + [429]
    assert int(answers[-1].headers["retry-after"]) > 1
    assert answers[-1].json["error"] == "too many attempts"


async def test_the_first_run_token_is_exchanged_for_one_that_can_be_revoked(web_api_harness: WebApiHarness) -> None:
    assert (await web_api_harness.stranger.post("/auth/token", {"token": "guess"})).status == 401
    granted = await web_api_harness.stranger.post("/auth/token", {"token": OWNER_TOKEN})
    web_api_harness.stranger.token = granted.json["access_token"]
    assert (await web_api_harness.stranger.get("/auth/me")).json["name"] == "owner"
    (token,) = (await web_api_harness.app.get("/tokens")).json
    assert (await web_api_harness.app.ask("DELETE", f"/tokens/{token['id']}")).status == 204
    assert (await web_api_harness.app.ask("DELETE", f"/tokens/{token['id']}")).status == 404
    assert (await web_api_harness.stranger.get("/auth/me")).status == 401


async def test_the_owners_token_cannot_be_logged_out(web_api_harness: WebApiHarness) -> None:
    assert (await web_api_harness.app.post("/auth/logout")).status == 409
    assert (await web_api_harness.app.get("/auth/me")).json == {
        "name": "owner",
        "token_id": None,
        "expires_at": None,
        "role": "admin",
        "admin": True,
    }


async def test_users_are_listed_changed_and_removed(web_api_harness: WebApiHarness) -> None:
    await web_api_harness.app.post("/users", {"name": "ann", "password": PASSWORD})
    again = await web_api_harness.app.post("/users", {"name": "ann", "password": PASSWORD})
    assert again.status == 409
    assert "already" in again.json["error"]
    assert again.json["hint"]
    assert (await web_api_harness.app.post("/users", {"name": "a b", "password": PASSWORD})).status == 400
    assert (await web_api_harness.app.post("/users", {"name": "bob", "password": "short"})).status == 400
    (ann,) = (await web_api_harness.app.get("/users")).json
    assert ann == {"name": "ann", "role": "operator", "created_at": "2023-11-14T22:13:20.000Z", "last_login_at": None}
    assert (await web_api_harness.app.ask("PUT", "/users/ann/password", {"password": "another one"})).status == 204
    assert (await web_api_harness.app.ask("PUT", "/users/bob/password", {"password": "another one"})).status == 404
    assert (await web_api_harness.stranger.post("/auth/login", {"username": "ann", "password": "another one"})).status == 200
    assert (await web_api_harness.app.get("/users")).json[0]["last_login_at"] == "2023-11-14T22:13:20.000Z"
    assert (await web_api_harness.app.ask("DELETE", "/users/ann")).status == 204
    assert (await web_api_harness.app.ask("DELETE", "/users/ann")).status == 404
    assert (await web_api_harness.app.get("/users")).json == []


async def test_hosts_are_listed_approved_named_and_removed(web_api_harness: WebApiHarness) -> None:
    await connect_host(web_api_harness)
    own, far = (await web_api_harness.app.get("/hosts")).json
    assert (own["id"], own["name"], own["online"], own["is_this_daemon"]) == ("host_1", "here", True, True)
    assert (far["id"], far["name"], far["online"], far["state"]) == ("host_2", "far", False, "pending")
    for verb, state in (("approve", "approved"), ("refuse", "refused")):
        assert (await web_api_harness.app.post(f"/hosts/host_2/{verb}")).status == 204
        assert (await web_api_harness.app.get("/hosts")).json[1]["state"] == state
    assert (await web_api_harness.app.ask("PATCH", "/hosts/host_2", {"name": "attic"})).status == 204
    assert (await web_api_harness.app.get("/hosts")).json[1]["name"] == "attic"
    assert (await web_api_harness.app.post("/hosts/host_2/rotate")).status == 204
    host = await web_api_harness.registry.find_host("host_2")
    assert host is not None
    assert host.token_sha256 is None
    assert (await web_api_harness.app.ask("DELETE", "/hosts/host_2")).status == 204
    assert len((await web_api_harness.app.get("/hosts")).json) == 1
    gone = await web_api_harness.app.post("/hosts/host_2/approve")
    assert (gone.status, gone.json["error"]) == (404, "unknown host_id")


async def test_a_hosts_id_may_hold_a_slash(web_api_harness: WebApiHarness) -> None:
    await connect_host(web_api_harness, "a/b c")
    assert (await web_api_harness.app.post("/hosts/a%2Fb%20c/approve")).status == 204
    assert (await web_api_harness.app.get("/hosts")).json[1]["state"] == "approved"


async def test_a_run_is_listed_and_found_under_both_names(web_api_harness: WebApiHarness) -> None:
    run_id = await web_api_harness.start_run()
    rows = [(await web_api_harness.app.get(path)).json for path in ("/runs", "/sessions", "/sessions/recent?limit=1")]
    assert rows[0] == rows[1] == rows[2]
    (row,) = rows[0]
    assert (row["id"], row["host_id"], row["tool"], row["cwd"]) == (run_id, "host_1", "codex", str(web_api_harness.folder))
    assert row["status"] == "running"
    assert (await web_api_harness.app.get(f"/sessions/{run_id}")).json == row
    assert (await web_api_harness.app.get(f"/runs/{run_id}")).json == row
    unknown = await web_api_harness.app.get("/runs/nothing")
    assert (unknown.status, unknown.body) == (404, b'{"error":"unknown run_id"}')


async def test_recent_runs_are_limited_to_what_is_asked_within_bounds(web_api_harness: WebApiHarness) -> None:
    runs = [await web_api_harness.start_run() for _ in range(3)]
    assert len((await web_api_harness.app.get("/sessions/recent?limit=2")).json) == 2
    assert len((await web_api_harness.app.get("/sessions/recent?limit=0")).json) == 1
    assert len((await web_api_harness.app.get("/sessions/recent?limit=-5")).json) == 1
    assert len((await web_api_harness.app.get("/sessions/recent?limit=99999")).json) == len(runs)
    assert (await web_api_harness.app.get("/sessions/recent?limit=many")).status == 400
    assert (await web_api_harness.app.get(f"/sessions/recent?limit={'9' * 5000}")).status == 400


async def test_messages_are_paged_and_leave_output_out_on_request(web_api_harness: WebApiHarness) -> None:
    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        for number in range(5):
            await desk.emit(put_out(f"line {number}\n"))
        return make_success()

    run_id = await web_api_harness.start_run(work)
    await web_api_harness.wait_for_end(run_id)
    messages = (await web_api_harness.app.get(f"/runs/{run_id}/messages?limit=200&before_id=&include_output=true")).json
    assert [message["kind"] for message in messages] == ["run.started", *["run.output"] * 5, "run.exited"]
    assert messages == sorted(messages, key=lambda message: message["id"])
    assert (await web_api_harness.app.get(f"/sessions/{run_id}/messages")).json == messages
    before = messages[3]["id"]
    page = (await web_api_harness.app.get(f"/runs/{run_id}/messages?limit=2&before_id={before}")).json
    assert page == messages[1:3]
    silent = (await web_api_harness.app.get(f"/runs/{run_id}/messages?include_output=false")).json
    assert [message["kind"] for message in silent] == ["run.started", "run.exited"]
    assert (await web_api_harness.app.get(f"/runs/{run_id}/messages?include_output=perhaps")).status == 400
    assert (await web_api_harness.app.get("/runs/nothing/messages")).status == 404


async def test_the_screen_is_what_a_late_joiner_paints(web_api_harness: WebApiHarness) -> None:
    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        await desk.emit(put_out("old"))
        await desk.emit(events.ScreenCaptured(text="[screen]", cols=80, rows=24))
        await desk.emit(put_out("new"))
        return make_success()

    run_id = await web_api_harness.start_run(work)
    await web_api_harness.wait_for_end(run_id)
    assert (await web_api_harness.app.get(f"/runs/{run_id}/screen")).json["text"] == "[screen]new"
    assert (await web_api_harness.app.get(f"/runs/{await web_api_harness.start_agent()}/screen")).status == 404


async def test_input_is_typed_once_in_the_name_of_who_sent_it(web_api_harness: WebApiHarness) -> None:
    run_id = await web_api_harness.start_run()
    asked = {"input_id": "i-1", "text": "yes\n", "actor": "cli"}
    for _ in range(2):
        assert (await web_api_harness.app.post(f"/runs/{run_id}/input", asked)).status == 204
    (typed,) = [event for event in await web_api_harness.list_events(run_id) if isinstance(event, events.TerminalTyped)]
    assert (typed.input_id, typed.text, typed.by) == ("i-1", "yes\n", events.Actor(name="owner", via="cli", address="127.0.0.1"))
    other = await web_api_harness.app.post(f"/runs/{run_id}/input", {"input_id": "i-1", "text": "no\n"})
    assert (other.status, other.json["error"]) == (409, "request_id is already in use")


@pytest.mark.parametrize(("said", "kept"), [("cli", "cli"), ("system", "system"), ("daemon", "web"), (None, "web")])
async def test_an_app_may_call_itself_by_the_documents_words_alone(
    web_api_harness: WebApiHarness, said: str | None, kept: str
) -> None:
    run_id = await web_api_harness.start_run()
    await web_api_harness.app.post(f"/runs/{run_id}/input", {"input_id": "i-1", "text": "x", "actor": said})
    (typed,) = [event for event in await web_api_harness.list_events(run_id) if isinstance(event, events.TerminalTyped)]
    assert typed.by.via == kept


async def test_input_that_cannot_be_typed_is_refused_with_its_reason(web_api_harness: WebApiHarness) -> None:
    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        return make_success()

    asked = {"input_id": "i-1", "text": "x"}
    unknown = await web_api_harness.app.post("/runs/nothing/input", asked)
    assert (unknown.status, unknown.json["error"]) == (404, "unknown run_id")
    run_id = await web_api_harness.start_run(work)
    await web_api_harness.wait_for_end(run_id)
    refused = await web_api_harness.app.post(f"/runs/{run_id}/input", asked)
    assert (refused.status, refused.json["error"]) == (409, "run has exited")


async def test_a_run_of_another_host_is_listed_with_its_host_and_unreachable_without_it(web_api_harness: WebApiHarness) -> None:
    await web_api_harness.mirror_run("far/1")
    row = (await web_api_harness.app.get("/runs/far%2F1")).json
    assert (row["id"], row["host_id"], row["tool"], row["cwd"]) == ("far/1", "host_2", "vim", "/far")
    answer = await web_api_harness.app.post("/runs/far%2F1/input", {"input_id": "i-1", "text": "x"})
    assert (answer.status, answer.json["error"]) == (502, "host offline")


async def test_everything_else_is_the_pages(web_api_harness: WebApiHarness) -> None:
    for path in ("/", "/index.html", "/some/route/of/the/page"):
        answer = await web_api_harness.stranger.get(path)
        assert (answer.status, answer.headers["content-type"]) == (404, "text/plain; charset=utf-8")
    assert (await web_api_harness.stranger.post("/nowhere")).json == {"error": "not found"}
