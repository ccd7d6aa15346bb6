"""What strangers, foreign pages and broken clients send to the port, and what it says to them."""

import asyncio
import base64
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from http.client import HTTPConnection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocols.relay.http_parts import ORIGIN, OWNER_TOKEN, PASSWORD, TIMEOUT, HttpExchange, WebApiHarness, open_stage

from switchtower.core.ports import registry
from switchtower.testing.memory.registry import MemoryRegistry
from switchtower.web_api import requests, responses

ALWAYS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}


@pytest.fixture
async def web_api_harness() -> AsyncIterator[WebApiHarness]:
    async with open_stage() as opened:
        yield opened


def forge_token(header: dict[str, str], claims: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.mark.parametrize(("method", "path"), [("GET", "/health"), ("GET", "/runs"), ("GET", "/nowhere"), ("PUT", "/runs")])
async def test_every_answer_says_how_browsers_must_treat_it(web_api_harness: WebApiHarness, method: str, path: str) -> None:
    answer = await web_api_harness.stranger.ask(method, path)
    assert {name: answer.headers[name] for name in ALWAYS} == ALWAYS
    assert "access-control-allow-origin" not in answer.headers
    assert "server" not in answer.headers


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "a b", "127.0.0.1, evil.example"])
async def test_a_name_that_is_not_ours_is_refused(web_api_harness: WebApiHarness, host: str) -> None:
    answer = await web_api_harness.app.get("/runs", Host=host)
    assert (answer.status, answer.json["error"]) == (403, "this host name is not served here")


@pytest.mark.parametrize("host", ["127.0.0.1:8787", "localhost", "LOCALHOST:1", "[::1]:8787", ORIGIN])
async def test_our_own_names_are_served(web_api_harness: WebApiHarness, host: str) -> None:
    assert (await web_api_harness.app.get("/runs", Host=host)).status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1.evil.example", "https://hub.example.evil"])
async def test_pages_of_another_site_may_not_ask(web_api_harness: WebApiHarness, origin: str) -> None:
    for answer in (
        await web_api_harness.app.get("/health", Origin=origin),
        await web_api_harness.app.post("/auth/login", b"{}", Origin=origin),
    ):
        assert (answer.status, answer.json["error"]) == (403, "pages of another site may not connect")
        assert "access-control-allow-origin" not in answer.headers


async def test_pages_of_this_machine_may_ask_but_another_port_reads_nothing(web_api_harness: WebApiHarness) -> None:
    answer = await web_api_harness.app.get("/runs", Origin="http://localhost:3000")
    assert answer.status == 200
    assert "access-control-allow-origin" not in answer.headers


async def test_a_page_of_a_configured_site_may_read_answers(web_api_harness: WebApiHarness) -> None:
    answer = await web_api_harness.app.get("/runs", Origin=f"https://{ORIGIN}")
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, f"https://{ORIGIN}")
    assert answer.headers["vary"] == "Origin"
    asked = {"Origin": f"https://{ORIGIN}", "Access_Control_Request_Method": "POST"}
    preflight = await web_api_harness.stranger.ask("OPTIONS", "/runs/x/input", **asked)
    assert preflight.status == 204
    assert "Authorization" in preflight.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in preflight.headers


async def test_a_preflight_of_another_site_is_granted_nothing(web_api_harness: WebApiHarness) -> None:
    asked = {"Access_Control_Request_Method": "POST"}
    for origin, status in (("https://evil.example", 403), ("http://localhost:3000", 405)):
        answer = await web_api_harness.stranger.ask("OPTIONS", "/runs", Origin=origin, **asked)
        assert answer.status == status
        assert not any(name.startswith("access-control") for name in answer.headers)


async def test_a_process_of_a_run_is_let_in_nowhere_but_at_health(web_api_harness: WebApiHarness) -> None:
    web_api_harness.of_a_run.add("http")
    assert (await web_api_harness.stranger.get("/health")).status == 200
    for method, path in (("GET", "/runs"), ("POST", "/auth/login"), ("POST", "/auth/token"), ("GET", "/users")):
        answer = await web_api_harness.app.ask(method, path)
        assert (answer.status, answer.json["error"]) == (403, "a process of a run may not do this")


async def test_whether_a_process_is_of_a_run_is_looked_up_once_a_connection(web_api_harness: WebApiHarness) -> None:
    exchange = await web_api_harness.app.open("GET", "/runs")
    assert (await exchange.answer()).status == 200
    web_api_harness.of_a_run.add("http")
    exchange.begin("GET", "/runs", {"Host": "localhost", "Authorization": f"Bearer {OWNER_TOKEN}"})
    assert (await exchange.answer()).status == 200
    assert (await web_api_harness.app.get("/runs")).status == 403


@pytest.mark.parametrize(
    "authorization",
    [
        "Bearer ",
        "Bearer",
        "bearer x",
        f"Basic {OWNER_TOKEN}",
        OWNER_TOKEN,
        f"Bearer {OWNER_TOKEN}x",
        f"Bearer {OWNER_TOKEN} {OWNER_TOKEN}",
        "Bearer \x7f\xff",
        f"Bearer {'x' * 10_000}",
        f"Bearer {forge_token({'alg': 'none', 'typ': 'JWT'}, {'sub': 'owner', 'jti': 'tok_1', 'iat': 1, 'exp': 2**40})}",
        f"Bearer {forge_token({'alg': 'HS256'}, {'sub': 'owner', 'jti': 'tok_1', 'iat': 1, 'exp': 2**40}, b'x' * 32)}",
        "Bearer ..",
        "Bearer a.b.c",
    ],
)
async def test_what_is_no_token_of_ours_opens_nothing(web_api_harness: WebApiHarness, authorization: str) -> None:
    assert (await web_api_harness.stranger.get("/runs", Authorization=authorization)).status == 401


async def test_the_word_bearer_may_be_spelled_in_any_case(web_api_harness: WebApiHarness) -> None:
    assert (await web_api_harness.stranger.get("/runs", Authorization=f"bEARER {OWNER_TOKEN}")).status == 200


async def test_a_token_in_the_query_opens_nothing(web_api_harness: WebApiHarness) -> None:
    assert (await web_api_harness.stranger.get(f"/runs?token={OWNER_TOKEN}")).status == 401


async def test_two_authorizations_are_none(web_api_harness: WebApiHarness) -> None:
    exchange = await web_api_harness.app.open("GET", "/runs", authorization=f"Bearer {OWNER_TOKEN}")
    assert (await exchange.answer()).status == 401


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b"\xff\xfe",
        b'{"username":1,"password":"x"}',
        b'{"username":"ann"}',
        b'{"username":["ann"],"password":{}}',
        b"[" * 100_000,
        b'{"username":' + b"[" * 100_000,
        b'{"username":"\xff","password":"x"}',
    ],
)
async def test_a_body_that_cannot_be_understood_is_told_as_such(web_api_harness: WebApiHarness, body: bytes) -> None:
    answer = await web_api_harness.stranger.post("/auth/login", body)
    assert answer.status == 400
    assert answer.json["error"].startswith("malformed request")


@given(content=st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(content: bytes) -> None:
    with contextlib.suppress(responses.HttpError):
        assert isinstance(requests.decode_body(content, requests.NewUserBody), requests.NewUserBody)


async def test_what_is_typed_into_the_wrong_field_is_not_said_back(web_api_harness: WebApiHarness) -> None:
    answer = await web_api_harness.stranger.post("/auth/login", {"username": "ann", "password": [PASSWORD]})
    assert PASSWORD.encode() not in answer.body


async def test_a_body_that_is_announced_too_long_is_refused_before_it_comes(web_api_harness: WebApiHarness) -> None:
    exchange = await web_api_harness.app.open(
        "POST", "/users", Content_Length=str(requests.MAX_BODY_BYTES + 1), Expect="100-continue"
    )
    answer = await exchange.answer()
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert await exchange.reader.read() == b""


async def test_a_body_that_grows_too_long_is_refused_on_the_way(web_api_harness: WebApiHarness) -> None:
    exchange = await web_api_harness.app.open("POST", "/users", Transfer_Encoding="chunked")
    sending = asyncio.create_task(_send_for_ever(exchange))
    assert (await exchange.answer()).status == 413
    sending.cancel()


async def test_a_client_that_sends_all_before_it_reads_hears_why_it_was_refused(web_api_harness: WebApiHarness) -> None:
    def send_all(path: str, **headers: str) -> tuple[int, str | None]:
        connection = HTTPConnection("127.0.0.1", web_api_harness.listener.port, timeout=TIMEOUT)
        try:
            connection.request("POST", path, b" " * (4 * requests.MAX_BODY_BYTES), headers)
            response = connection.getresponse()
            response.read()
            return response.status, response.headers["Connection"]
        finally:
            connection.close()

    assert await asyncio.to_thread(send_all, "/users", Authorization=f"Bearer {OWNER_TOKEN}") == (413, "close")
    assert await asyncio.to_thread(send_all, "/users") == (401, "close")
    assert await asyncio.to_thread(send_all, "/nowhere", Origin="https://evil.example") == (403, "close")


async def test_a_body_that_nobody_wants_is_not_read_without_end(web_api_harness: WebApiHarness) -> None:
    exchange = await web_api_harness.stranger.open("POST", "/users", Transfer_Encoding="chunked")
    sending = asyncio.create_task(_send_for_ever(exchange))
    assert (await exchange.answer()).status == 401
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(ConnectionError):
            await sending


async def test_a_body_of_exactly_the_limit_is_read(web_api_harness: WebApiHarness) -> None:
    said = json.dumps({"name": "ann", "password": PASSWORD}).encode()
    assert (await web_api_harness.app.post("/users", said.ljust(requests.MAX_BODY_BYTES))).status == 201


async def test_a_body_that_does_not_come_is_given_up(web_api_harness: WebApiHarness) -> None:
    exchange = await web_api_harness.app.open("POST", "/users", Content_Length="100")
    exchange.writer.write(b"{")
    answer = await exchange.answer()
    assert (answer.status, answer.json["error"]) == (408, "the body did not come in time")


async def test_a_client_that_leaves_in_the_middle_of_a_body_disturbs_nobody(
    web_api_harness: WebApiHarness, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        exchange = await web_api_harness.app.open("POST", "/users", Content_Length="100")
        exchange.writer.write(b'{"name":')
        await exchange.writer.drain()
        await exchange.leave()
    assert (await web_api_harness.app.get("/users")).json == []
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "spelled",
    [
        "..%2f",
        "..%2F..%2Fetc%2Fpasswd",
        "%00",
        "a%00b",
        "%2e%2e",
        "%ff%fe",
        "%",
        "%zz",
        "x" * 129,
        "%F0%9F%9A%82" * 128,
        "sess_" + "x" * 120,
        "%ED%A0%80",
    ],
)
async def test_an_id_that_nobody_has_is_not_found_whatever_it_is(web_api_harness: WebApiHarness, spelled: str) -> None:
    for path in (f"/runs/{spelled}", f"/runs/{spelled}/messages", f"/sessions/{spelled}", f"/runs/{spelled}/screen"):
        answer = await web_api_harness.app.get(path)
        assert (answer.status, answer.headers["content-type"]) == (404, "application/json")
    asked = {"input_id": "i", "text": "x"}
    assert (await web_api_harness.app.post(f"/runs/{spelled}/input", asked)).status == 404
    assert (await web_api_harness.app.post(f"/hosts/{spelled}/approve")).status == 404
    assert (await web_api_harness.app.ask("DELETE", f"/users/{spelled}")).status == 404
    assert (await web_api_harness.app.ask("DELETE", f"/tokens/{spelled}")).status == 404


async def test_a_method_that_a_path_does_not_have_is_named_as_such(web_api_harness: WebApiHarness) -> None:
    answer = await web_api_harness.app.ask("PUT", "/users")
    assert (answer.status, answer.json, answer.headers["allow"]) == (405, {"error": "method not allowed"}, "GET, POST")
    assert (await web_api_harness.app.ask("OPTIONS", "/users")).status == 405
    assert (await web_api_harness.app.get("/auth/login")).headers["allow"] == "POST"
    assert (await web_api_harness.app.ask("BREW", "/runs")).status == 405


async def test_head_is_answered_like_get_without_the_body(web_api_harness: WebApiHarness) -> None:
    got, head = await web_api_harness.app.get("/runs"), await web_api_harness.app.ask("HEAD", "/runs")
    assert (head.status, head.headers["content-length"]) == (200, got.headers["content-length"])
    assert (await web_api_harness.stranger.ask("HEAD", "/runs")).status == 401


async def test_ten_thousand_bytes_of_headers_are_read(web_api_harness: WebApiHarness) -> None:
    assert (await web_api_harness.app.get("/runs", X_Much="x" * 10_000)).status == 200


async def test_headers_without_end_are_refused(web_api_harness: WebApiHarness) -> None:
    exchange = await web_api_harness.app.open("GET", "/runs", X_Too_Much="x" * 200_000)
    status, _ = await exchange.read_head()
    assert status == 400


async def test_names_of_users_and_hosts_have_bounds(web_api_harness: WebApiHarness) -> None:
    assert (await web_api_harness.app.ask("PATCH", "/hosts/host_2", {"name": ""})).status == 400
    assert (await web_api_harness.app.ask("PATCH", "/hosts/host_2", {"name": "x" * 129})).status == 400
    assert (await web_api_harness.app.post("/users", {"name": "x" * 65, "password": PASSWORD})).status == 400


async def test_secrets_reach_no_log(web_api_harness: WebApiHarness, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
    await web_api_harness.app.post("/users", {"name": "ann", "password": PASSWORD})
    granted = await web_api_harness.stranger.post("/auth/login", {"username": "ann", "password": PASSWORD})
    token = granted.json["access_token"]
    await web_api_harness.stranger.get(f"/runs?token={token}", Authorization=f"Bearer {token}")
    await web_api_harness.stranger.post("/auth/token", {"token": OWNER_TOKEN})
    await web_api_harness.stranger.post("/auth/login", {"username": "ann", "password": f"{PASSWORD}x"})
    for secret in (PASSWORD, token, OWNER_TOKEN):
        assert secret not in caplog.text


class FailingRegistry(MemoryRegistry):
    """One whose list of users cannot be read, for the reason given."""

    def __init__(self, failure: Exception) -> None:
        super().__init__()
        self._failure = failure

    async def list_users(self) -> list[registry.User]:
        raise self._failure


async def test_a_bug_of_ours_is_told_without_detail_and_logged_without_the_request(caplog: pytest.LogCaptureFixture) -> None:
    async with open_stage(registry=FailingRegistry(RuntimeError("the detail"))) as stage:
        answer = await stage.app.get("/users?token=hush-hush")
    assert (answer.status, answer.json) == (500, {"error": "internal error"})
    assert "the detail" in caplog.text
    assert "hush" not in caplog.text


async def test_a_registry_that_cannot_be_used_is_named_as_such() -> None:
    failure = registry.RegistryUnavailable("the disk is full", hint="make room")
    async with open_stage(registry=FailingRegistry(failure)) as stage:
        answer = await stage.app.get("/users")
    assert (answer.status, answer.json["hint"]) == (503, "make room")


async def _send_for_ever(exchange: HttpExchange) -> None:
    while True:
        exchange.send_chunk(b" " * 65_536)
        await exchange.writer.drain()
