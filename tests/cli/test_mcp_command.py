"""`tower mcp`: the servers that a session would have, tried out with real ones."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.inside import InProcessCommand
from tests.cli.terminal import TerminalDriver

SERVERS = Path(__file__).parents[1] / "tools/mcp/servers"
FRIENDLY = {"command": sys.executable, "args": [str(SERVERS / "friendly.py"), "stdio"]}


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> InProcessCommand:
    inside = InProcessCommand(tmp_path / "home", monkeypatch, capfdbinary, dict(os.environ))
    (tmp_path / "work").mkdir()
    inside.home.mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return inside


def configure(file: Path, **servers: Any) -> None:
    file.write_text(json.dumps({"mcpServers": servers}))


def test_the_path_of_the_user_s_file_is_printed(in_process: InProcessCommand) -> None:
    assert in_process("mcp", "path").text == f"{in_process.home}/mcp.json\n"
    assert in_process("mcp", "path", "--json").json == {
        "own": f"{in_process.home}/mcp.json",
        "workspace": f"{Path.cwd()}/.mcp.json",
    }


def test_without_servers_it_says_where_to_name_them(in_process: InProcessCommand) -> None:
    ended = in_process("mcp", "list")

    assert (ended.code, ended.stdout) == (0, b"")
    assert ended.stderr == f"no servers; hint: name them in {in_process.home}/mcp.json, see docs/mcp.md\n"
    assert in_process("mcp", "list", "--json").json == {"servers": [], "problems": []}


def test_servers_are_listed_as_they_are_spelled_and_secrets_are_hidden(in_process: InProcessCommand) -> None:
    configure(
        in_process.home / "mcp.json",
        mine={"command": "serve-it", "args": ["--token", "s3cret"], "env": {"API_KEY": "sk-s3cret-0123456789abcdef"}},
        off={"command": "x", "disabled": True},
    )
    configure(Path(".mcp.json"), theirs={"url": "https://mcp.example/x"}, mine={"command": "impostor"})

    ended, as_json = in_process("mcp", "list"), in_process("mcp", "list", "--json")

    assert ended.code == as_json.code == 1, "one of the folder's cannot be used"
    assert ended.text.splitlines() == [
        "mine    yours          serve-it --token [redacted, 6 characters]",
        "theirs  of the folder  https://mcp.example/x",
    ]
    assert "the server `mine` in `.mcp.json` was left out: your own file has one of that name" in ended.stderr
    assert [(server["name"], server["own"]) for server in as_json.json["servers"]] == [("mine", True), ("theirs", False)]
    assert b"s3cret" not in ended.stdout + as_json.stdout


def test_a_server_is_started_for_a_moment_and_its_tools_are_listed(in_process: InProcessCommand, processes_with: Any) -> None:
    configure(in_process.home / "mcp.json", friendly=FRIENDLY)

    ended = in_process("mcp", "test", "friendly", "--timeout", "60")

    assert ended.code == 0, ended.stderr
    assert ended.text.splitlines()[0].split() == ["add", "Adds", "two", "numbers"]
    assert "`friendly` has " in ended.stderr
    assert processes_with(str(SERVERS / "friendly.py")) == []


def test_the_list_can_have_the_tools_of_those_that_work(in_process: InProcessCommand) -> None:
    configure(in_process.home / "mcp.json", friendly=FRIENDLY, gone={"command": "no-such-program"})

    ended = in_process("mcp", "list", "--tools", "--json", "--timeout", "60")

    assert ended.code == 1
    friendly, gone = ended.json["servers"]
    assert {"name": "add", "description": "Adds two numbers", "readsOnly": True} in friendly["tools"]
    assert (friendly["ok"], gone["ok"], gone["tools"]) == (True, False, [])
    assert "hint: install it, or correct its `command`" in ended.stderr


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"command": "no-such-program"}, "`no-such-program` was not found; hint: install it, or correct its `command`"),
        ({"command": "sh", "args": ["-c", "echo broken >&2; exit 3"]}, "it wrote: broken"),
        ({"command": "sh", "args": ["-c", "exec sleep 61.7"]}, "hint: "),
        ({"command": "sh", "args": ["-c", "while :; do echo rubbish; sleep 0.1; done"]}, "hint: "),
        ({"url": "http://127.0.0.1:9/mcp"}, "hint: "),
    ],
    ids=["not installed", "ends at once", "says nothing", "says rubbish", "nobody there"],
)
def test_a_server_that_does_not_work_says_why(
    in_process: InProcessCommand, entry: dict[str, Any], told: str, processes_with: Any
) -> None:
    configure(in_process.home / "mcp.json", bad=entry)

    ended = in_process("mcp", "test", "bad", "--timeout", "2", "--json")

    assert ended.code == 1
    assert (ended.json["ok"], ended.json["tools"]) == (False, [])
    assert "the MCP server `bad` " in ended.stderr
    assert told in ended.stderr
    assert processes_with("sleep 61.7") == []


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("frendly", "there is no MCP server `frendly`; hint: did you mean `friendly`?"),
        ("xyz", "there is no MCP server `xyz`; hint: see `tower mcp list`"),
        ("twofold", "it has both a `command` and a `url`; hint: keep one"),
        ("unset", "`${NO_SUCH_VARIABLE}` is not set; hint: set it"),
    ],
)
def test_a_name_that_cannot_be_tried_says_why(in_process: InProcessCommand, name: str, told: str) -> None:
    configure(
        in_process.home / "mcp.json",
        friendly=FRIENDLY,
        twofold={"command": "x", "url": "http://x"},
        unset={"command": "${NO_SUCH_VARIABLE}"},
    )

    ended = in_process("mcp", "test", name)

    assert (ended.code, ended.stdout) == (1, b"")
    assert told in ended.stderr


def test_a_file_that_is_no_json_is_a_problem_and_not_a_crash(in_process: InProcessCommand) -> None:
    (in_process.home / "mcp.json").write_bytes(b"\xff{" * 100)

    ended = in_process("mcp", "list")

    assert ended.code == 1
    assert "cannot be used" in ended.stderr


# Of the folder's file


def test_a_server_of_the_folder_is_not_started_where_nobody_can_be_asked(in_process: InProcessCommand, tmp_path: Path) -> None:
    mark = tmp_path / "started"
    configure(Path(".mcp.json"), theirs={"command": "sh", "args": ["-c", f"touch {mark}"]})

    refused, listed = in_process("mcp", "test", "theirs"), in_process("mcp", "list", "--tools")

    assert (refused.code, refused.stdout) == (1, b"")
    assert f"touch {mark}" in refused.stderr, "what would be started is shown"
    assert "hint: --yes starts it" in refused.stderr
    assert listed.code == 0
    assert not mark.exists()

    in_process.monkeypatch.setenv("TOWER_SANDBOX", "local")  # in a sandbox the mark would not be seen
    in_process("mcp", "test", "theirs", "--yes", "--timeout", "2")
    assert mark.exists()


def test_at_a_terminal_the_person_is_asked(tower_command: TowerCommand, tmp_path: Path) -> None:
    mark = tmp_path / "started"
    configure(tower_command.folder / ".mcp.json", theirs={"command": "sh", "args": ["-c", f"touch {mark}"]})

    terminal = TerminalDriver(tower_command, "mcp", "test", "theirs")
    terminal.wait_for("Start it? [y/N]")
    terminal.type("n")

    assert terminal.end() == 2
    assert not mark.exists()
