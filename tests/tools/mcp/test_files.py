"""Which servers the two files name, what people are shown of them, and what an approval is bound to."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.core import redact
from switchtower.tools.mcp import config

VARIABLES = {"HOME": "/home/me", "GITHUB_TOKEN": "ghp_abcdefghijklmnopqrst", "EMPTY": ""}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def find(workspace: Path, servers: Any, user_file: Path | None = None) -> config.FoundServers:
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    return config.find_servers(str(workspace), user_file, VARIABLES)


def get_only(found: config.FoundServers) -> config.ServerConfig:
    assert found.problems == ()
    (server,) = found.servers
    return server


def test_a_program_with_its_arguments_variables_and_folder(workspace: Path) -> None:
    entry = {"command": "npx", "args": ["-y", "it"], "env": {"A": "b"}, "cwd": "sub", "timeout": 5}
    server = get_only(find(workspace, {"it": entry}))
    assert server.target == config.ServerProgram(("npx", "-y", "it"), {"A": "b"}, f"{workspace}/sub")
    assert not server.trusted
    assert get_only(find(workspace, {"it": {"type": "stdio", "command": "x"}})).target == config.ServerProgram(
        ("x",), {}, f"{workspace}/"
    )


@pytest.mark.parametrize("kind", [{"type": "http"}, {"type": "streamable-http"}, {"type": "streamableHttp"}, {}])
def test_an_endpoint_with_its_headers(workspace: Path, kind: dict[str, str]) -> None:
    entry = {**kind, "url": "https://h.example/mcp", "headers": {"X-Key": "v"}}
    assert get_only(find(workspace, {"it": entry})).target == config.ServerEndpoint("https://h.example/mcp", {"X-Key": "v"})


def test_what_a_session_brings_along_joins_the_files_and_says_where_it_is_from(workspace: Path, tmp_path: Path) -> None:
    own = tmp_path / "mcp.json"
    own.write_text(json.dumps({"mcpServers": {"mine": {"command": "mine"}, "both": {"command": "mine"}}}))
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": {"command": "t"}, "same": {"command": "t"}}}))

    def found(*, trusted: bool) -> tuple[dict[str, tuple[str, bool]], tuple[str, ...]]:
        handed = config.SessionServers(
            {"new": {"command": "p"}, "both": {"command": "p"}, "same": {"command": "p"}}, "p.toml", trusted=trusted
        )
        found = config.find_servers(str(workspace), own, VARIABLES, handed)
        assert all(isinstance(server.target, config.ServerProgram) for server in found.servers)
        assert {server.shown["file"] for server in found.servers if server.name == "new"} == {"p.toml"}
        return {server.name: (server.shown["command"], server.trusted) for server in found.servers}, found.problems

    servers, problems = found(trusted=True)
    assert servers == {
        "new": ("p", True),
        "both": ("p", True),
        "same": ("p", True),
        "mine": ("mine", True),
        "theirs": ("t", False),
    }
    assert problems == ("the server `same` in `.mcp.json` was left out: your own file has one of that name",)
    servers, problems = found(trusted=False)
    assert servers == {
        "new": ("p", False),
        "both": ("mine", True),
        "same": ("p", False),
        "mine": ("mine", True),
        "theirs": ("t", False),
    }
    assert problems == ("the server `both` in `p.toml` was left out: your own file has one of that name",)


def test_a_bad_server_that_a_session_brings_along_is_left_out_with_the_reason(workspace: Path) -> None:
    handed = config.SessionServers(
        {"good": {"command": "x"}, "bad": {"command": "${NOT_SET}"}, "odd": {"args": 5}}, "p.toml", trusted=True
    )
    found = config.find_servers(str(workspace), None, VARIABLES, handed)
    assert [server.name for server in found.servers] == ["good"]
    assert len(found.problems) == 2
    assert all("in `p.toml` was left out" in problem for problem in found.problems)


SECRET = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.parametrize(
    ("part", "entry"),
    [
        ("env.GITHUB_TOKEN", {"env": {"GITHUB_TOKEN": SECRET}}),
        ("env.PASSWORD", {"env": {"PASSWORD": "swordfish"}}),
        ("env.X", {"env": {"X": SECRET}}),
        ("headers.Authorization", {"headers": {"Authorization": f"Bearer {SECRET}"}}),
        ("headers.X-Team", {"headers": {"X-Team": "core"}}),
        ("args", {"args": ("--token", "abc")}),
        ("args", {"args": (f"--token={SECRET}",)}),
        ("url", {"url": "https://me:secret@h.example/mcp"}),
        ("url", {"url": f"https://h.example/mcp?api_key={SECRET}"}),
        (
            None,
            {
                "command": "npx",
                "args": ("-y", "server", "--token", "${TOKEN}", "--api-key=${KEY}"),
                "env": {"PASSWORD": "${PASSWORD}", "TOKEN": "${TOKEN:-}", "LEVEL": "debug"},
                "headers": {"Authorization": "Bearer ${TOKEN}"},
                "url": "https://h.example/mcp",
            },
        ),
    ],
)
def test_a_secret_that_an_entry_spells_out_is_found_and_a_reference_is_none(part: str | None, entry: dict[str, Any]) -> None:
    assert config.find_literal_secret(config.ServerEntry(**entry), redact.Redactor()) == part


def test_variables_are_filled_in_everywhere(workspace: Path) -> None:
    program = {
        "command": "${HOME}/bin/x",
        "args": ["--dir=${HOME}", "${NOT_SET:-other}", "${EMPTY:-full}", "$HOME", "${input:x}", "${EMPTY}"],
        "env": {"T": "${GITHUB_TOKEN}"},
        "cwd": "${HOME}",
    }
    endpoint = {"url": "https://${HOST:-h.example}/mcp", "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"}}
    first, second = find(workspace, {"program": program, "endpoint": endpoint}).servers
    args = ("--dir=/home/me", "other", "full", "$HOME", "${input:x}", "")
    token = VARIABLES["GITHUB_TOKEN"]
    assert first.target == config.ServerProgram(("/home/me/bin/x", *args), {"T": token}, "/home/me")
    assert second.target == config.ServerEndpoint("https://h.example/mcp", {"Authorization": f"Bearer {token}"})


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"type": "sse", "url": "http://h/"}, "hint: use the server's streamable HTTP address"),
        ({"type": "carrier pigeon", "command": "x"}, "its `type` is not known"),
        ({}, "it has no `command`"),
        ({"command": ""}, "it has no `command`"),
        ({"command": "x", "url": "http://h/"}, "both a `command` and a `url`"),
        ({"command": 5}, "Expected `str | null`, got `int` - at `$.command`"),
        ({"command": "x", "args": "y"}, "Expected `array`"),
        ({"command": "x", "env": {"A": 1}}, "Expected `str`"),
        ({"command": "x\0y"}, "a null character"),
        ({"command": "x", "env": {"A=B": "c"}}, "cannot be empty or have `=`"),
        ({"command": "${NOT_SET}"}, "`${NOT_SET}` is not set; hint: set it"),
        ({"command": "x", "args": ["a"] * 300}, "more than 256"),
        ({"type": "http"}, "is not an `http://`"),
        ({"url": "file:///etc/passwd"}, "is not an `http://`"),
        ({"url": "http://"}, "is not an `http://`"),
        ({"url": "http://h:port/"}, "is not an `http://`"),
        ({"url": "http://h/ x"}, "is not an `http://`"),
        ({"url": "http://h/", "headers": {"A": "b\r\nC: d"}}, "characters that a header cannot have"),
        ({"url": "http://h/", "headers": {"A b": "c"}}, "the name of a header"),
        ("words", "Expected `object`"),
        (None, "Expected `object`"),
    ],
)
def test_a_bad_entry_is_reported_and_the_others_are_used(workspace: Path, entry: Any, words: str) -> None:
    found = find(workspace, {"bad": entry, "good": {"command": "x"}})
    assert [server.name for server in found.servers] == ["good"]
    (problem,) = found.problems
    assert problem.startswith("the server `bad` in `.mcp.json` was left out: ")
    assert words in problem


@pytest.mark.parametrize("name", ["", "x" * 65, "line\nbreak", "\ud800"])
def test_a_name_that_cannot_be_printed_is_reported(workspace: Path, name: str) -> None:
    found = find(workspace, {name: {"command": "x"}})
    assert found.servers == ()
    (problem,) = found.problems
    assert problem.isprintable()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"7", b'{"mcpServers": []}', b"\xff\xfe", b"[" * 100_000, b"{}" + b" " * 300_000, b'"\\ud800"'],
)
def test_a_file_that_cannot_be_used_is_reported_once(workspace: Path, content: bytes) -> None:
    (workspace / ".mcp.json").write_bytes(content)
    found = config.find_servers(str(workspace), None, {})
    assert found.servers == ()
    (problem,) = found.problems
    assert problem.startswith("`.mcp.json` cannot be used: ")


@pytest.mark.parametrize("content", [b"{}", b"\xef\xbb\xbf{}", b'{"mcpServers": {}, "other": 1}'])
def test_a_file_without_servers_is_no_problem(workspace: Path, content: bytes) -> None:
    (workspace / ".mcp.json").write_bytes(content)
    assert config.find_servers(str(workspace), None, {}) == config.FoundServers()


def test_missing_files_are_no_problem(workspace: Path) -> None:
    assert config.find_servers(str(workspace), workspace / "none.json", {}) == config.FoundServers()


def test_a_link_out_of_the_workspace_is_not_followed(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_text('{"mcpServers": {"it": {"command": "x"}}}')
    (workspace / ".mcp.json").symlink_to(tmp_path / "outside.json")
    found = config.find_servers(str(workspace), None, {})
    assert found.servers == ()
    assert "link out of the workspace" in found.problems[0]


@pytest.mark.parametrize("own", [True, False])
def test_a_pipe_in_place_of_a_file_does_not_hang(workspace: Path, own: bool) -> None:
    pipe = workspace / ("mcp.json" if own else ".mcp.json")
    os.mkfifo(pipe)
    found = config.find_servers(str(workspace), pipe if own else None, {})
    assert "not a regular file" in found.problems[0]


def test_the_users_own_servers_are_trusted_and_win(workspace: Path, tmp_path: Path) -> None:
    own = tmp_path / "mcp.json"
    own.write_text('{"mcpServers": {"both": {"command": "mine"}, "mine": {"command": "x"}}}')
    found = find(workspace, {"both": {"command": "theirs"}, "theirs": {"command": "x"}}, own)
    assert [(server.name, server.trusted) for server in found.servers] == [("both", True), ("mine", True), ("theirs", False)]
    assert found.servers[0].target == config.ServerProgram(("mine",), {}, f"{workspace}/")
    assert found.problems == ("the server `both` in `.mcp.json` was left out: your own file has one of that name",)


def test_a_disabled_server_is_not_there(workspace: Path) -> None:
    assert find(workspace, {"off": {"command": "${NOT_SET}", "disabled": True}}) == config.FoundServers()


def test_there_can_be_so_many_servers_and_no_more(workspace: Path) -> None:
    found = find(workspace, {f"s{number}": {"command": "x"} for number in range(40)})
    assert len(found.servers) == 32
    assert len(found.problems) == 8


def test_a_short_file_cannot_grow_without_bound(workspace: Path) -> None:
    long = {"LONG": "x" * 10_000}
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"it": {"command": "x", "args": ["${LONG}" * 30_000]}}}))
    found = config.find_servers(str(workspace), None, long)
    assert "longer than 65536 characters" in found.problems[0]


def test_people_see_what_the_file_says_without_its_secrets(workspace: Path) -> None:
    program = {
        "command": "npx",
        "args": ["it", "--api-key", "abcd1234efgh5678", "--token=${GITHUB_TOKEN}", "a b"],
        "env": {"API_KEY": "sk-abcdefghijklmnop1234", "LD_PRELOAD": "evil.so", "T": "${GITHUB_TOKEN}"},
    }
    endpoint = {
        "url": "https://me:pa55word@h.example/mcp?token=abcdef1234567890",
        "headers": {"X-Plain": "abcdefgh", "Authorization": "Bearer ${GITHUB_TOKEN}"},
    }
    first, second = find(workspace, {"program": program, "endpoint": endpoint}).servers
    assert first.shown == {
        "server": "program",
        "file": ".mcp.json",
        "command": "npx it --api-key [redacted, 16 characters] '--token=${GITHUB_TOKEN}' 'a b'",
        "folder": str(workspace),
        "env": {"API_KEY": "[redacted, 23 characters]", "LD_PRELOAD": "evil.so", "T": "${GITHUB_TOKEN}"},
    }
    assert second.shown == {
        "server": "endpoint",
        "file": ".mcp.json",
        "url": "https://[redacted]@h.example/mcp?token=[redacted]",
        "headers": {"X-Plain": "[redacted]", "Authorization": "Bearer ${GITHUB_TOKEN}"},
    }
    assert {"abcd1234efgh5678", "sk-abcdefghijklmnop1234", VARIABLES["GITHUB_TOKEN"]} == set(first.secrets)
    assert {"pa55word", "abcdefgh", "abcdef1234567890", VARIABLES["GITHUB_TOKEN"]} < set(second.secrets)
    for server in (first, second):
        for secret in server.secrets:
            assert secret not in server.subject
            assert secret not in f"{server!r} {server.target!r} {server}"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"command": "x"}, {"command": "y"}),
        ({"command": "x", "args": ["a b"]}, {"command": "x", "args": ["a", "b"]}),
        ({"command": "x", "env": {"API_KEY": "abcd12345"}}, {"command": "x", "env": {"API_KEY": "abcd12346"}}),
        ({"command": "x"}, {"command": "x", "cwd": "sub"}),
        ({"url": "http://h/"}, {"url": "http://g/"}),
        ({"url": "http://h/", "headers": {"A": "b"}}, {"url": "http://h/", "headers": {"A": "c"}}),
    ],
)
def test_an_approval_holds_for_nothing_else(workspace: Path, one: dict[str, Any], other: dict[str, Any]) -> None:
    assert get_only(find(workspace, {"it": one})).subject != get_only(find(workspace, {"it": other})).subject
    assert get_only(find(workspace, {"it": one})).subject == get_only(find(workspace, {"it": one})).subject
    assert get_only(find(workspace, {"it": one})).subject != get_only(find(workspace, {"another": one})).subject


def test_an_approval_does_not_hold_when_a_variable_has_another_value(workspace: Path) -> None:
    (workspace / ".mcp.json").write_text('{"mcpServers": {"it": {"command": "x", "args": ["${A}"]}}}')
    one, other = (get_only(config.find_servers(str(workspace), None, {"A": value})) for value in ("1", "2"))
    assert one.shown == other.shown
    assert one.subject != other.subject


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(["type", "command", "args", "env", "cwd", "url", "headers", "disabled"])
ENTRIES = st.dictionaries(FIELDS, JSON | st.sampled_from(["http", "x"]))


@given(servers=st.dictionaries(st.text(max_size=5), ENTRIES | JSON, max_size=4) | JSON)
def test_no_content_of_a_file_is_fatal(tmp_path_factory: pytest.TempPathFactory, servers: Any) -> None:
    workspace = tmp_path_factory.mktemp("any")
    found = find(workspace, servers)
    for server in found.servers:
        server.subject.encode()
    for problem in found.problems:
        problem.encode()
