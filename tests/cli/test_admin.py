"""`tower user`, `tower hosts`, `tower token`: what they ask of the daemon over its owner-only socket, and what they print."""

import json
import os
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.scripted import ScriptedDaemon
from tests.cli.terminal import TerminalDriver

from switchtower.accounts import passwords
from switchtower.cli import arguments, table
from switchtower.client import admin
from switchtower.core.roles import Role

PASSWORD = "correct horse"


class AdminRequest(NamedTuple):
    method: str
    path: str
    body: Any


class FakeAdminServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """The daemon's end of the socket: answers as told, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.asked: list[AdminRequest] = []
        self.answers: dict[tuple[str, str], tuple[int, bytes]] = {}
        self.raw: bytes | None = None
        """Sent instead of any answer."""
        super().__init__(str(path), _Handler)

    def answer(self, method: str, path: str, status: int, said: object = None) -> None:
        self.answers[method, path] = (status, b"" if said is None else json.dumps(said).encode())


class _Handler(BaseHTTPRequestHandler):
    server: FakeAdminServer
    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(AdminRequest(self.command, self.path, json.loads(content) if content else None))
        if self.server.raw is not None:
            self.wfile.write(self.server.raw)
            self.close_connection = True
            return
        status, answer = self.server.answers.get((self.command, self.path), (404, b'{"error":"no such route","hint":""}'))
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve


@pytest.fixture
def admin_server(tower_command: TowerCommand) -> Iterator[FakeAdminServer]:
    """In place of the daemon's socket. To have the real daemon instead, start one on `tower.home` and ask it."""
    run = tower_command.home / "run"
    run.mkdir()
    write_endpoints(tower_command, hostd_socket=str(run / "hostd.sock"))
    with FakeAdminServer(run / "hostd.sock") as office:
        thread = threading.Thread(target=office.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield office
        office.shutdown()
        thread.join()


def write_endpoints(tower: TowerCommand, **more: object) -> None:
    endpoints = {"pid": 1, "socket": str(tower.home / "run/pushd.sock"), "http": None, "token": "s3cret", **more}
    (tower.home / "run/endpoints.json").write_text(json.dumps(endpoints))


# Users


def test_a_user_is_added_with_the_password_from_stdin(tower_command: TowerCommand, admin_server: FakeAdminServer) -> None:
    admin_server.answer("POST", "/users", 201, {"name": "ann"})

    ended = tower_command("user", "add", "ann", "--password-stdin", stdin=f"{PASSWORD}\n".encode())

    assert (ended.code, ended.stdout, ended.stderr) == (0, b"", "`ann` may log in, with the role operator\n")
    assert admin_server.asked == [AdminRequest("POST", "/users", {"name": "ann", "password": PASSWORD, "role": "operator"})]


def test_only_the_line_s_end_is_taken_from_a_password(tower_command: TowerCommand, admin_server: FakeAdminServer) -> None:
    admin_server.answer("PUT", "/users/ann/password", 204)

    ended = tower_command("user", "passwd", "ann", "--password-stdin", stdin="  pässword \U0001f511\n \r\n".encode())

    assert ended.code == 0
    assert ended.stderr == "`ann` has a new password, and is logged out everywhere\n"
    assert admin_server.asked[0].body == {"password": "  pässword \U0001f511\n "}


def test_at_a_terminal_the_password_is_asked_for_twice_and_never_shown(
    tower_command: TowerCommand, admin_server: FakeAdminServer
) -> None:
    admin_server.answer("POST", "/users", 201)
    terminal = TerminalDriver(tower_command, "user", "add", "ann")
    terminal.wait_for("Password: ")
    terminal.type(PASSWORD)
    terminal.wait_for("The same again: ")
    terminal.type(PASSWORD)

    assert terminal.end() == 0
    assert PASSWORD not in terminal.shown
    assert "`ann` may log in" in terminal.shown
    assert admin_server.asked == [AdminRequest("POST", "/users", {"name": "ann", "password": PASSWORD, "role": "operator"})]


def test_two_passwords_that_differ_change_nothing(tower_command: TowerCommand, admin_server: FakeAdminServer) -> None:
    terminal = TerminalDriver(tower_command, "user", "passwd", "ann")
    terminal.wait_for("Password: ")
    terminal.type(PASSWORD)
    terminal.wait_for("The same again: ")
    terminal.type("another horse")

    assert terminal.end() == 1
    assert "the two passwords differ; hint: " in terminal.shown
    assert "horse" not in terminal.shown
    assert admin_server.asked == []


def test_leaving_the_question_for_a_password_changes_nothing(tower_command: TowerCommand, admin_server: FakeAdminServer) -> None:
    terminal = TerminalDriver(tower_command, "user", "add", "ann")
    terminal.wait_for("Password: ")
    terminal.press(b"\x04")

    assert terminal.end() == 2
    assert admin_server.asked == []


@pytest.mark.parametrize(
    ("stdin", "problem"),
    [(b"", "is empty"), (b"\n", "is empty"), (b"s3cret\xff\xfe", "is not UTF-8"), (b"s3cret" * 2_000, "is longer than")],
    ids=["nothing", "an empty line", "no UTF-8", "too long"],
)
@pytest.mark.parametrize("command", [("add", "ann"), ("passwd", "ann"), ("hash",)], ids=lambda command: command[0])
def test_an_impossible_password_is_refused_before_anybody_is_asked(
    tower_command: TowerCommand, admin_server: FakeAdminServer, command: tuple[str, ...], stdin: bytes, problem: str
) -> None:
    ended = tower_command("user", *command, "--password-stdin", stdin=stdin)

    assert (ended.code, ended.stdout) == (64, b"")
    assert f"the password {problem}" in ended.stderr
    assert "hint: " in ended.stderr
    assert "s3cret" not in ended.stderr
    assert admin_server.asked == []


def test_without_a_terminal_the_way_to_give_a_password_is_told(
    tower_command: TowerCommand, admin_server: FakeAdminServer
) -> None:
    ended = tower_command("user", "add", "ann")

    assert (ended.code, admin_server.asked) == (64, [])
    assert "hint: give it with `--password-stdin`" in ended.stderr


def test_users_are_listed_for_people_and_for_programs(tower_command: TowerCommand, admin_server: FakeAdminServer) -> None:
    users = [
        {"name": "ann", "role": "admin", "created_at": "2020-01-01T00:00:00Z", "last_login_at": None},
        {"name": "zoë\x1b[31m", "created_at": int(time.time() * 1_000) - 120_500, "last_login_at": "2020-01-01T00:00:00+00:00"},
    ]
    admin_server.answer("GET", "/users", 200, users)

    assert tower_command("user", "list", "--json").json == users
    first, second = tower_command("user", "list").stdout.decode().splitlines()
    assert first.split()[:2] == ["ann", "admin"]
    assert first.endswith("last login never")
    assert second.startswith(r"zoë\x1b[31m  -      added 2 min ago")
    assert " d ago" in first


@pytest.mark.parametrize("command", [("user", "list"), ("hosts",), ("token", "list")], ids=" ".join)
def test_an_empty_listing_is_no_failure(
    tower_command: TowerCommand, admin_server: FakeAdminServer, command: tuple[str, ...]
) -> None:
    for path in ("/users", "/hosts", "/tokens"):
        admin_server.answer("GET", path, 200, [])

    readable, as_json = tower_command(*command), tower_command(*command, "--json")

    assert (readable.code, readable.stdout, as_json.code, as_json.json) == (0, b"", 0, [])
    assert readable.stderr.count("\n") == 1


def test_a_user_is_removed(tower_command: TowerCommand, admin_server: FakeAdminServer) -> None:
    admin_server.answer("DELETE", "/users/ann%40example.org", 204)

    ended = tower_command("user", "remove", "ann@example.org")

    assert (ended.code, ended.stderr) == (0, "`ann@example.org` is removed, and logged out everywhere\n")


def test_a_name_is_one_part_of_the_route_whatever_is_in_it(tower_command: TowerCommand, admin_server: FakeAdminServer) -> None:
    tower_command("user", "remove", "../hosts/x?y#z é%2f")
    tower_command("hosts", "approve", os.fsdecode(b"caf\xe9\n"))

    assert [asked.path for asked in admin_server.asked] == [
        "/users/..%2Fhosts%2Fx%3Fy%23z%20%C3%A9%252f",
        "/hosts/caf%EF%BF%BD%0A/approve",
    ]


def test_a_hash_is_printed_without_a_daemon_and_is_the_password_s(tower_command: TowerCommand) -> None:
    ended = tower_command("user", "hash", "--password-stdin", stdin=PASSWORD.encode())

    assert (ended.code, ended.stderr) == (0, "")
    printed = ended.stdout.decode().removesuffix("\n")
    assert passwords.is_hash(printed)
    assert printed.startswith("$argon2id$")
    assert not (tower_command.home / "run").exists()


@pytest.mark.requirement("relay:auth:short-passwords")
def test_a_hash_of_a_short_password_comes_with_a_warning(tower_command: TowerCommand) -> None:
    ended = tower_command("user", "hash", "--password-stdin", stdin=b"s3cret")

    assert ended.code == 0
    assert passwords.is_hash(ended.stdout.decode().removesuffix("\n"))
    assert ended.stderr == (
        "Warning: the password is shorter than 8 characters; it is easy to guess. "
        "Choose a longer one where others can reach the port.\n"
    )


def test_no_hash_is_made_of_a_password_that_is_too_long(tower_command: TowerCommand) -> None:
    ended = tower_command("user", "hash", "--password-stdin", stdin=b"s3cret" * 200)

    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr == "tower: the password is longer than 1024 bytes; hint: choose another one\n"


@pytest.mark.requirement("relay:auth:environment-checked")
@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        (
            {"JWT_SECRET": "dev"},
            "`JWT_SECRET` from the environment: is shorter than 16 bytes; "
            "hint: set a longer one, or none: then one is made and kept",
        ),
        (
            {"ADMIN_USERNAME": "ann", "ADMIN_PASSWORD_HASH": "plain"},
            "`ADMIN_PASSWORD_HASH` from the environment: is not an argon2 hash; hint: make one with `tower user hash`",
        ),
    ],
    ids=["secret", "hash"],
)
def test_a_daemon_with_an_unusable_secret_or_hash_does_not_start_and_the_doctor_names_it(
    tower_command: TowerCommand, variables: dict[str, str], problem: str
) -> None:
    ended = tower_command("serve", **variables)
    assert (ended.code, ended.stderr) == (1, f"tower: {problem}\n")
    (found,) = [
        check
        for check in json.loads(tower_command("doctor", "--json", **variables).stdout)["checks"]
        if check["name"] == "logins"
    ]
    detail, _, remedy = problem.partition("; hint: ")
    assert found == {"name": "logins", "status": "fail", "detail": detail, "remedy": remedy}


# Hosts


def test_hosts_are_listed_with_what_waits_for_a_decision(tower_command: TowerCommand, admin_server: FakeAdminServer) -> None:
    seen = int(time.time() * 1_000) - 3_700_000
    known = [
        {"id": "host_a", "name": "work\nshop", "state": "approved", "online": True, "last_seen_at": seen},
        {"id": "host_bb", "name": "", "state": "pending", "online": False, "last_seen_at": None, "extra": [1]},
    ]
    admin_server.answer("GET", "/hosts", 200, known)

    listed, same, as_json = tower_command("hosts"), tower_command("hosts", "list"), tower_command("hosts", "--json")

    assert listed.stdout.decode().splitlines() == [
        "host_a   approved  online   seen 1 h ago  work shop",
        "host_bb  pending   offline  seen never    -",
    ]
    assert "hint: a pending host waits for `tower hosts approve ID`" in listed.stderr
    assert same.stdout == listed.stdout
    assert as_json.json == tower_command("hosts", "list", "--json").json == known


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["approve", "host_a"], AdminRequest("POST", "/hosts/host_a/approve", None)),
        (["refuse", "host_a"], AdminRequest("POST", "/hosts/host_a/refuse", None)),
        (["rotate", "host_a"], AdminRequest("POST", "/hosts/host_a/rotate", None)),
        (["remove", "host_a"], AdminRequest("DELETE", "/hosts/host_a", None)),
        (["rename", "host_a", "my workshop"], AdminRequest("PATCH", "/hosts/host_a", {"name": "my workshop"})),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_host_is_changed(
    tower_command: TowerCommand, admin_server: FakeAdminServer, arguments: list[str], asked: AdminRequest
) -> None:
    admin_server.answer(asked.method, asked.path, 204)

    ended = tower_command("hosts", *arguments)

    assert (ended.code, ended.stdout, admin_server.asked) == (0, b"", [asked])
    assert ended.stderr.startswith("`host_a` ")


# Tokens


def test_tokens_are_listed_and_narrowed_to_a_user(tower_command: TowerCommand, admin_server: FakeAdminServer) -> None:
    now = int(time.time() * 1_000)
    tokens = [{"id": "tok_1", "user": "a&b", "created_at": now - 61_000, "expires_at": now + 7_300_000, "client": "phone"}]
    admin_server.answer("GET", "/tokens", 200, tokens)
    admin_server.answer("GET", "/tokens?user=a%26b", 200, tokens)

    assert tower_command("token", "list").stdout.decode() == "tok_1  a&b  login  given 1 min ago  ends in 2 h  phone\n"
    assert tower_command("token", "list", "--user", "a&b", "--json").json == tokens


def test_a_user_is_given_a_role(tower_command: TowerCommand, admin_server: FakeAdminServer) -> None:
    admin_server.answer("PUT", "/users/ann/role", 204)
    admin_server.answer("POST", "/users", 201, {"name": "bob"})

    assert tower_command("user", "role", "ann", "viewer").stderr == "`ann` has the role viewer\n"
    assert tower_command("user", "add", "bob", "--role", "approver", "--password-stdin", stdin=PASSWORD.encode()).code == 0

    assert [asked.body["role"] for asked in admin_server.asked] == ["viewer", "approver"]
    assert tuple(Role) == arguments.ROLES


def test_a_token_is_created_and_printed_alone(tower_command: TowerCommand, admin_server: FakeAdminServer) -> None:
    made = {"id": "tok_1", "name": "ci", "user": "ann", "scope": "viewer", "expires_at": "2026-01-01T00:00:00.000Z"}
    admin_server.answer("POST", "/tokens", 201, {**made, "token": "tower_tok_1.secret"})

    ended = tower_command("token", "create", "--name", "ci", "--user", "ann", "--scope", "viewer", "--expires", "12h")
    assert (ended.code, ended.stdout) == (0, b"tower_tok_1.secret\n")
    assert tower_command("token", "create", "--name", "ci", "--json").json["token"] == "tower_tok_1.secret"

    assert [asked.body for asked in admin_server.asked] == [
        {"name": "ci", "user": "ann", "scope": "viewer", "expires_in_s": 43_200},
        {"name": "ci", "expires_in_s": 30 * 86_400},
    ]


def test_a_token_for_a_program_is_listed_with_its_scope_and_its_last_use(
    tower_command: TowerCommand, admin_server: FakeAdminServer
) -> None:
    now = int(time.time() * 1_000)
    token = {"id": "tok_1", "user": "ann", "name": "ci", "scope": "viewer", "created_at": now - 61_000}
    admin_server.answer("GET", "/tokens", 200, [{**token, "expires_at": now + 7_300_000, "last_used_at": now - 61_000}])

    listed = tower_command("token", "list").stdout.decode()
    assert listed == "tok_1  ann  ci (viewer)  given 1 min ago  ends in 2 h  used 1 min ago\n"


def test_a_token_is_revoked(tower_command: TowerCommand, admin_server: FakeAdminServer) -> None:
    admin_server.answer("DELETE", "/tokens/tok_1", 204)

    ended = tower_command("token", "revoke", "tok_1")

    assert (ended.code, ended.stderr) == (0, "`tok_1` is revoked\n")


def test_the_page_s_address_has_a_token_for_one_visit_and_the_daemon_is_started_for_it(tower_command: TowerCommand) -> None:
    ended = tower_command("token", "url")

    site, _, token = ended.stdout.decode().strip().partition("/?token=")
    assert (ended.code, site, ended.stderr) == (0, tower_command.endpoints["http"], "")
    assert len(token) >= 40
    another = tower_command("token", "url", "--json").json
    assert set(another) == {"url", "expires_at"}
    assert tower_command.endpoints["token"] not in (token, another["url"].partition("=")[2])
    assert another["url"] != ended.stdout.decode().strip(), "each is good once"


def test_without_an_http_port_there_is_no_page(tower_command: TowerCommand) -> None:
    ended = tower_command("token", "url", TOWER_HTTP="off")

    assert (ended.code, ended.stdout) == (1, b"")
    assert "the daemon has no HTTP port; hint: " in ended.stderr


# What can go wrong


def test_a_refusal_is_told_with_its_remedy(tower_command: TowerCommand, admin_server: FakeAdminServer) -> None:
    admin_server.answer("POST", "/users", 409, {"error": "there is a user `ann` already", "hint": "choose another name"})
    admin_server.answer("DELETE", "/users/ann", 404, {"error": "there is no user `ann`"})

    added = tower_command("user", "add", "ann", "--password-stdin", stdin=b"long enough")
    removed = tower_command("user", "remove", "ann")

    assert (added.code, added.stderr) == (1, "tower: there is a user `ann` already; hint: choose another name\n")
    assert (removed.code, removed.stderr) == (1, "tower: there is no user `ann`\n")


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (500, b"Traceback: s3cret"),
        (400, b"not json"),
        (400, b'{"error": 7}'),
        (400, b"[]"),
        (302, b""),
        (200, b"{nonsense"),
        (200, b"[" * 100_000),
        (200, b'{"users": []}'),
        (200, b"[1, 2]"),
        (200, b""),
    ],
)
def test_an_answer_that_makes_no_sense_is_one_line_without_it(
    tower_command: TowerCommand, admin_server: FakeAdminServer, status: int, answer: bytes
) -> None:
    admin_server.answers["GET", "/users"] = (status, answer)

    ended = tower_command("user", "list")

    assert (ended.code, ended.stdout, ended.stderr.count("\n")) == (1, b"", 1)
    assert ended.stderr.startswith("tower: the daemon answered with ")
    assert "s3cret" not in ended.stderr


@pytest.mark.parametrize(
    "raw", [b"", b"\x00\xff" * 1_000, b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n[]", b"HTTP/9.9 yes\r\n\r\n"]
)
def test_a_connection_that_breaks_off_or_speaks_something_else_is_one_line(
    tower_command: TowerCommand, admin_server: FakeAdminServer, raw: bytes
) -> None:
    admin_server.raw = raw

    ended = tower_command("user", "list")

    assert (ended.code, ended.stdout, ended.stderr.count("\n")) == (1, b"", 1)
    assert ended.stderr.startswith("tower: the connection to the daemon ended")


def test_rows_that_lack_everything_are_still_listed(tower_command: TowerCommand, admin_server: FakeAdminServer) -> None:
    for path in ("/users", "/hosts", "/tokens"):
        admin_server.answer(
            "GET", path, 200, [{}, {"name": 7, "id": [], "online": "yes", "created_at": True, "expires_at": "soon"}]
        )

    for command in (["user", "list"], ["hosts"], ["token", "list"]):
        ended = tower_command(*command)
        assert (ended.code, ended.stdout.count(b"\n")) == (0, 2)


@pytest.mark.parametrize(
    "given",
    [
        ["user", "add"],
        ["user", "add", "", "--password-stdin"],
        ["user", "remove", " "],
        ["user", "nonsense"],
        ["hosts", "approve"],
        ["hosts", "approve", ""],
        ["hosts", "rename", "host_a"],
        ["hosts", "rename", "host_a", " "],
        ["token", "revoke", ""],
        ["token", "create"],
        ["token", "create", "--name", "ci", "--scope", "root"],
        ["token", "create", "--name", "ci", "--expires", "forever"],
        ["token", "create", "--name", "ci", "--expires", "0d"],
        ["user", "role", "ann"],
        ["user", "role", "ann", "root"],
        ["user", "add", "ann", "--role", "root", "--password-stdin"],
        ["token", "list", "--user", ""],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_64_and_asks_nobody(
    tower_command: TowerCommand, admin_server: FakeAdminServer, given: list[str]
) -> None:
    ended = tower_command(*given, stdin=b"long enough")

    assert (ended.code, ended.stdout, ended.stderr.count("\n"), admin_server.asked) == (64, b"", 1, [])
    assert "hint: " in ended.stderr


@pytest.mark.parametrize("command", ["user", "token"])
def test_a_family_of_commands_explains_itself(tower_command: TowerCommand, command: str) -> None:
    ended = tower_command(command)

    assert (ended.code, ended.stderr) == (0, "")
    assert b"list" in ended.stdout


def test_an_older_daemon_that_knows_nothing_of_this_is_told_of(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon
) -> None:
    write_endpoints(tower_command)

    ended = tower_command("user", "list")

    assert (ended.code, ended.stdout, ended.stderr.count("\n")) == (1, b"", 1)
    assert "the running daemon is older" in ended.stderr
    assert "hint: stop it with `tower stop`" in ended.stderr


def test_a_socket_that_a_dead_daemon_left_is_not_the_end(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    """The daemon is looked for again, as other commands do; here it is one without the socket."""
    write_endpoints(tower_command, hostd_socket=str(tower_command.home / "run/hostd.sock"))

    ended = tower_command("hosts")

    assert ended.code == 1
    assert f"the daemon does not answer at `{tower_command.home}/run/hostd.sock`" in ended.stderr


def test_a_daemon_elsewhere_is_not_asked_through_this_home_s_socket(
    tower_command: TowerCommand, admin_server: FakeAdminServer, other_socket: str
) -> None:
    ended = tower_command("user", "list", TOWER_SOCKET=other_socket)

    assert (ended.code, admin_server.asked) == (1, [])
    assert "another home's; hint: set `TOWER_HOME`" in ended.stderr


@pytest.fixture
def other_socket(tower_command: TowerCommand) -> Iterator[str]:
    from tests.cli.scripted import ScriptedDaemon

    other = tower_command.home / "other"
    other.mkdir()
    with ScriptedDaemon(other):
        yield str(other / "run/pushd.sock")


def test_a_socket_that_was_asked_for_goes_before_what_was_announced(
    tower_command: TowerCommand, admin_server: FakeAdminServer
) -> None:
    write_endpoints(tower_command, hostd_socket="/nowhere/hostd.sock")
    admin_server.answer("GET", "/users", 200, [])
    elsewhere = tower_command.home / "elsewhere.sock"
    elsewhere.symlink_to(tower_command.home / "run/hostd.sock")

    assert tower_command("user", "list", "--json", TOWER_HOST_SOCKET=str(elsewhere)).json == []


def test_the_owner_s_token_is_in_no_repr() -> None:
    assert "s3cret" not in repr(admin.AdminEndpoints(socket="/s", token="s3cret"))


@pytest.mark.parametrize("of", [table.format_since, table.format_until])
@pytest.mark.parametrize("value", [None, True, "", "yesterday", [], {}, "9" * 400])
def test_a_time_that_is_none_is_shown_as_none(of: Callable[..., str], value: object) -> None:
    assert of({"at": value}, "at", now=1.0) in ("never", "-")


@pytest.mark.parametrize("spelled", ["1970-01-01T00:01:40Z", "1970-01-01T00:01:40", "1970-01-01T02:01:40+02:00", 100_000, 1e5])
def test_a_time_is_read_as_relay_spells_it_or_from_milliseconds(spelled: object) -> None:
    assert table.format_since({"at": spelled}, "at", now=110.0) == "10 s ago"
    assert table.format_until({"at": spelled}, "at", now=95.0) == "in 5 s"
