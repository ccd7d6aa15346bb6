"""Every request of every protocol with every role, over a real daemon: refused below the least role, not refused from it on."""

import ast
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.relay.stage import RestartableDaemon

import switchtower
from switchtower.core import errors, roles
from switchtower.core.roles import Role
from switchtower.protocols.minicodex import inbound as minicodex
from switchtower.protocols.minicodex import messages as minicodex_messages
from switchtower.protocols.pi import inbound as pi
from switchtower.protocols.pi import messages as pi_messages
from switchtower.protocols.push import extension_messages
from switchtower.protocols.push import inbound as push
from switchtower.protocols.push import messages as push_messages
from switchtower.protocols.relay import inbound as relay
from switchtower.protocols.relay import messages as relay_messages
from switchtower.testing.minicodex_client import MiniCodexClient
from switchtower.testing.pi_client import PiClient
from switchtower.testing.push_client import PushClient
from switchtower.testing.relay_client import RelayApp, RelayHttp
from switchtower.testing.wire import WebSocketWire
from switchtower.web_api import auth
from switchtower.web_api.endpoints import health, sessions, users
from switchtower.web_api.routes import EndpointRoute, RouteAccess

CORPUS: dict[str, Any] = tomllib.loads((Path(__file__).parent / "corpus" / "roles.toml").read_text())
PASSWORD = "correct horse battery"
RUN = "00000000-0000-4000-8000-000000000000"
SAID = "Your role does not allow this"


def list_names(section: str) -> dict[str, Role]:
    return {name: Role(case if isinstance(case, str) else case["role"]) for name, case in CORPUS[section].items()}


# The tables


def test_each_role_has_what_the_one_before_it_has() -> None:
    assert [role for role in Role if role.covers(Role.OPERATOR)] == [Role.OPERATOR, Role.ADMIN]
    assert set(roles.LEAST_ROLES) == set(roles.Action)


def test_what_has_no_row_needs_an_admin() -> None:
    assert roles.find_least_role(None) is Role.ADMIN
    roles.check_role(Role.ADMIN, None)
    with pytest.raises(errors.RoleForbidden):
        roles.check_role(Role.OPERATOR, None)


def test_a_role_that_this_version_does_not_know_allows_the_least() -> None:
    assert roles.parse_role("root") is Role.VIEWER
    assert roles.parse_role("admin") is Role.ADMIN


def test_every_push_request_has_a_row_and_is_in_the_corpus() -> None:
    known = {**push_messages.REQUESTS, **extension_messages.REQUESTS}
    assert set(push.REQUEST_ACTIONS) == set(known) == set(CORPUS["push"])
    assert {name: roles.find_least_role(action) for name, action in push.REQUEST_ACTIONS.items()} == list_names("push")


def test_every_relay_message_has_a_row_and_is_in_the_corpus() -> None:
    known = {*relay_messages.COMMAND_DATA, *relay_messages.RPC_DATA, "run.subscribe", "run.unsubscribe"}
    assert set(relay.MESSAGE_ACTIONS) == known == set(CORPUS["relay"])
    assert {name: roles.find_least_role(action) for name, action in relay.MESSAGE_ACTIONS.items()} == list_names("relay")


def test_every_minicodex_command_has_a_row_and_is_in_the_corpus() -> None:
    assert set(minicodex.MESSAGE_ACTIONS) == set(get_args(minicodex_messages.ClientMessage))
    by_name = {kind.__struct_config__.tag: roles.find_least_role(action) for kind, action in minicodex.MESSAGE_ACTIONS.items()}
    assert by_name == list_names("minicodex")


def test_every_pi_command_has_a_row_and_is_in_the_corpus() -> None:
    assert set(pi.COMMAND_ACTIONS) == set(pi_messages.COMMANDS) == set(CORPUS["pi"])
    assert {name: roles.find_least_role(action) for name, action in pi.COMMAND_ACTIONS.items()} == list_names("pi")


def test_every_endpoint_for_users_names_its_action_and_is_in_the_corpus() -> None:
    nothing: Any = None
    something: Any = object()
    every: list[EndpointRoute] = [
        *health.HealthEndpoints("1", something).list_routes(),
        *auth.AuthEndpoints(nothing, nothing).list_routes(),
        *sessions.RunEndpoints(nothing).list_routes(),
        *sessions.HostEndpoints(nothing).list_routes(),
        *users.UserEndpoints(nothing).list_routes(),
        *sessions.SessionEndpoints(nothing).list_routes(),
        *users.AuditEndpoints(nothing).list_routes(),
        *users.AccountAuditEndpoints(nothing).list_routes(),
        *users.PushSubscriptionEndpoints(nothing).list_routes(),
    ]
    guarded = [row for row in every if row.entry not in (RouteAccess.ANYONE, RouteAccess.UNAUTHENTICATED)]
    assert [row.path for row in guarded if row.action is None] == []
    assert {f"{row.method} {row.path}": roles.find_least_role(row.action) for row in guarded} == list_names("http")


def test_every_access_that_the_daemon_makes_names_its_role() -> None:
    """The field has a default for a node of the version before, which no code of ours may lean on."""
    forgotten = []
    source = Path(switchtower.__file__).parent
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id="Access"), keywords=given) if "role" not in {one.arg for one in given}:
                    forgotten.append(f"{path.relative_to(source)}:{node.lineno}")
    assert forgotten == []


# Over a real daemon


@asynccontextmanager
async def open_daemon() -> AsyncIterator[tuple[RestartableDaemon, dict[Role, str]]]:
    """A daemon with a user of each role, and the token that each has logged in with."""
    tower = RestartableDaemon("roles", web_push="off")
    try:
        await tower.start()
        tokens: dict[Role, str] = {}
        for role in Role:
            added = await tower.http.request("POST", "/users", {"name": role.value, "password": PASSWORD, "role": role.value})
            assert added.status == 201, added.body
            tokens[role] = (await RelayHttp(tower.url, None).login(role.value, PASSWORD)).json["access_token"]
        yield tower, tokens
    finally:
        tower.discard()


@pytest.fixture
async def daemon() -> AsyncIterator[tuple[RestartableDaemon, dict[Role, str]]]:
    async with open_daemon() as made:
        yield made


def judge_request(role: Role, needed: str, text: str, about: str) -> None:
    refused = SAID in text
    assert refused is not role.covers(Role(needed)), f"{about} as {role}: {text}"


async def test_push_refuses_what_the_role_does_not_allow(daemon: tuple[RestartableDaemon, dict[Role, str]]) -> None:
    tower, tokens = daemon
    cases = [(name, case) for name, case in CORPUS["push"].items()]
    cases += [(case["type"], case) for case in CORPUS["push_content"].values()]
    for role, token in tokens.items():
        async with await PushClient.connect_websocket(tower.url, token) as client:
            for type_, case in cases:
                response = await client.request(type_, case.get("payload", {}))
                judge_request(role, case["role"], str(response.frame.get("error")), type_)
                if SAID in str(response.frame.get("error")):
                    assert response.code == "ATTACH_FORBIDDEN"


async def test_relay_refuses_what_the_role_does_not_allow(daemon: tuple[RestartableDaemon, dict[Role, str]]) -> None:
    tower, tokens = daemon
    cases = [(name, case) for name, case in CORPUS["relay"].items()]
    cases += [(case["type"], case) for case in CORPUS["relay_content"].values()]
    for role, token in tokens.items():
        async with await RelayApp.open(tower.url, token) as app:
            for type_, case in cases:
                data = case.get("data", {})
                if type_.startswith("rpc."):
                    answer = await app.request(type_, RUN, **data)
                    judge_request(role, case["role"], str(answer.get("error")), type_)
                elif type_ != "run.unsubscribe":
                    await app.send_command(type_, RUN, **data)
                    told = await app.next(lambda frame: frame["type"] == "run.error" and frame["data"]["command"] == type_)  # noqa: B023
                    judge_request(role, case["role"], told["data"]["error"], type_)


async def test_http_refuses_what_the_role_does_not_allow(daemon: tuple[RestartableDaemon, dict[Role, str]]) -> None:
    tower, tokens = daemon
    for role, token in tokens.items():
        http = RelayHttp(tower.url, token)
        for spelled, needed in CORPUS["http"].items():
            method, _, path = spelled.partition(" ")
            # Names that no one has, and bodies that no endpoint takes: the role is judged before both.
            for part in ("run_id", "host_id", "name", "token_id"):
                path = path.replace(f"{{{part}}}", RUN)
            answer = await http.request(method, path, {} if method in ("POST", "PUT", "PATCH") else None)
            judge_request(role, needed, answer.body.decode(), spelled)
            assert (answer.status == 403) is not role.covers(Role(needed)), (spelled, role, answer)


async def test_minicodex_refuses_what_the_role_does_not_allow(daemon: tuple[RestartableDaemon, dict[Role, str]]) -> None:
    tower, tokens = daemon
    async with await MiniCodexClient.open(tower.url, tokens[Role.OPERATOR], cwd=str(tower.workspace)) as starter:
        await starter.send_hello()
        for role, token in tokens.items():
            async with await MiniCodexClient.open(tower.url, token, session_id=starter.session_id) as client:
                await client.send_hello()
                for type_, case in CORPUS["minicodex"].items():
                    answer = await client.request(type_, **case.get("fields", {}))
                    text = answer.get("message", "") if answer["type"] == "error" else ""
                    judge_request(role, case["role"], text, type_)
                    if SAID in text:
                        assert answer["code"] == "FORBIDDEN"


async def test_minicodex_starts_no_session_and_loosens_none_for_a_role_that_may_not(
    daemon: tuple[RestartableDaemon, dict[Role, str]],
) -> None:
    tower, tokens = daemon
    for policy, needed in ((None, Role.OPERATOR), ("yolo", Role.ADMIN), ("read-only", Role.OPERATOR)):
        for role, token in tokens.items():
            before = len(await tower.http.get("/runs"))
            async with await MiniCodexClient.open(tower.url, token, cwd=str(tower.workspace), policy=policy) as client:
                answer = await client.request("hello", v="1.0.0")
                assert (answer.get("code") == "FORBIDDEN") is not role.covers(needed), (role, policy, answer)
            assert len(await tower.http.get("/runs")) - before == role.covers(needed)


async def test_pi_refuses_what_the_role_does_not_allow(daemon: tuple[RestartableDaemon, dict[Role, str]]) -> None:
    tower, tokens = daemon
    cases = [(name, case) for name, case in CORPUS["pi"].items()]
    cases += [(case["type"], case) for case in CORPUS["pi_content"].values()]
    for role, token in tokens.items():
        wire = await WebSocketWire.open(tower.url, token, path="/ws/pi")
        async with PiClient(wire, timeout=30) as client:
            for type_, case in cases:
                named = {"sessionId": "none"} if case.get("session") else {}
                answer = await client.request(type_, **named, **case.get("fields", {}))
                judge_request(role, case["role"], str(answer.get("error")), type_)


async def test_the_owner_is_an_admin_with_the_token_and_on_the_socket(daemon: tuple[RestartableDaemon, dict[Role, str]]) -> None:
    tower, _ = daemon
    assert (await tower.http.get("/auth/me"))["role"] == "admin"
    async with await PushClient.connect_socket(tower.home / "run" / "pushd.sock") as client:
        for type_, case in CORPUS["push"].items():
            response = await client.request(type_, case.get("payload", {}))
            assert SAID not in str(response.frame.get("error")), type_


# A change while a connection is open


async def test_a_demotion_ends_what_the_user_has_open_and_holds_at_once(
    daemon: tuple[RestartableDaemon, dict[Role, str]],
) -> None:
    tower, tokens = daemon
    token = tokens[Role.OPERATOR]
    clients = [await PushClient.connect_websocket(tower.url, token) for _ in range(3)]
    app = await RelayApp.open(tower.url, token)
    other = await PushClient.connect_websocket(tower.url, tokens[Role.VIEWER])
    changed = await tower.http.request("PUT", "/users/operator/role", {"role": "viewer"})
    assert changed.status == 204
    # Sent after the change was answered: none of it may be obeyed on a connection that was opened before.
    for client in clients:
        await client.send_frames(client.make_frame("start_session", CORPUS["push"]["start_session"]["payload"]))
    for client in clients:
        await client.wait_closed()
        assert not client.responses
    assert await app.wait_closed() == 1008
    await other.send_hello()
    async with await PushClient.connect_websocket(tower.url, token) as again:
        refused = await again.request("start_session", CORPUS["push"]["start_session"]["payload"])
        assert SAID in str(refused.frame.get("error"))
        await again.request_payload("list_cards", {})


async def test_the_last_admin_stays_unless_the_owner_says_otherwise(daemon: tuple[RestartableDaemon, dict[Role, str]]) -> None:
    tower, tokens = daemon
    as_admin = RelayHttp(tower.url, tokens[Role.ADMIN])
    for method, path, body in (("PUT", "/users/admin/role", {"role": "viewer"}), ("DELETE", "/users/admin", None)):
        refused = await as_admin.request(method, path, body)
        assert (refused.status, "last admin" in refused.body.decode()) == (409, True)
    assert (await as_admin.request("PUT", "/users/viewer/role", {"role": "admin"})).status == 204
    assert (await as_admin.request("PUT", "/users/admin/role", {"role": "operator"})).status == 204
    assert (await as_admin.get("/auth/me"))["role"] == "operator"
    assert (await tower.http.request("DELETE", "/users/viewer")).status == 204, "the owner is an admin of its own"


# Tokens for programs


async def create(tower: RestartableDaemon, **asked: object) -> dict[str, Any]:
    answer = await tower.http.request("POST", "/tokens", asked)
    assert answer.status == 201, answer.body
    made: dict[str, Any] = answer.json
    return made


async def test_a_token_allows_no_more_than_its_scope_and_its_user(daemon: tuple[RestartableDaemon, dict[Role, str]]) -> None:
    tower, _ = daemon
    for user, scope, allowed in (
        ("owner", "approver", "approver"),
        ("admin", "viewer", "viewer"),
        ("operator", None, "operator"),
    ):
        made = await create(tower, name="ci", user=user, scope=scope)
        assert (await RelayHttp(tower.url, made["token"]).get("/auth/me"))["role"] == allowed
    too_much = await tower.http.request("POST", "/tokens", {"name": "ci", "user": "viewer", "scope": "operator"})
    assert too_much.status == 400

    # A promotion does not widen it, a demotion narrows it.
    made = await create(tower, name="ci", user="operator")
    token = RelayHttp(tower.url, made["token"])
    await tower.http.request("PUT", "/users/operator/role", {"role": "admin"})
    assert (await token.get("/auth/me"))["role"] == "operator"
    await tower.http.request("PUT", "/users/operator/role", {"role": "viewer"})
    assert (await token.get("/auth/me"))["role"] == "viewer"


async def test_a_token_is_kept_as_a_digest_listed_and_revoked(daemon: tuple[RestartableDaemon, dict[Role, str]]) -> None:
    tower, _ = daemon
    made = await create(tower, name="ci", user="operator", expires_in_s=3_600)
    client = await PushClient.connect_websocket(tower.url, made["token"])
    await client.send_hello()
    secret = made["token"].partition(".")[2]
    stored = b"".join(path.read_bytes() for path in (tower.home / "data").glob("registry.db*"))
    assert secret.encode() not in stored
    assert made["id"].encode() in stored
    (listed,) = [one for one in await tower.http.get("/tokens") if one["id"] == made["id"]]
    assert (listed["name"], listed["scope"], listed["user"]) == ("ci", "operator", "operator")
    assert listed["last_used_at"] is not None
    assert "token" not in listed
    assert (await tower.http.request("DELETE", f"/tokens/{made['id']}")).status == 204
    await client.wait_closed()
    assert (await RelayHttp(tower.url, made["token"]).request("GET", "/runs")).status == 401


async def test_what_only_looks_like_a_token_is_nobody_s(daemon: tuple[RestartableDaemon, dict[Role, str]]) -> None:
    tower, tokens = daemon
    made = await create(tower, name="ci", user="operator")
    (login,) = [one for one in await tower.http.get("/tokens") if one["user"] == "admin"]
    whole, secret = made["token"], made["token"].partition(".")[2]
    for forged in (
        whole[:-1],
        whole + "x",
        f"tower_{made['id']}.",
        f"tower_{made['id']}",
        f"tower_{login['id']}.{secret}",
        f"tower_{login['id']}.",
        f"tower_.{secret}",
        f"tower_{made['id'].lower()}.{secret}",
        tokens[Role.ADMIN][:-2],
    ):
        assert (await RelayHttp(tower.url, forged).request("GET", "/runs")).status == 401, forged


async def test_no_token_without_an_end(daemon: tuple[RestartableDaemon, dict[Role, str]]) -> None:
    tower, _ = daemon
    for lifetime in (0, 59, 400 * 86_400):
        assert (await tower.http.request("POST", "/tokens", {"name": "ci", "expires_in_s": lifetime})).status == 400
    for name in ("", "a" * 65, "a\nb", "a\x1bb"):
        assert (await tower.http.request("POST", "/tokens", {"name": name})).status == 400
