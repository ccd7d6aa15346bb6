"""`tower doctor`: what is well, what is not, what to do about it, and the exit code that says which."""

import json
import os
import platform
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.inside import InProcessCommand

from switchtower import __version__
from switchtower.stores.sqlite import database
from switchtower.tools.sandboxes import sandbox, seccomp

NAMES = ("python", "libraries", "sqlite", "git", "rg", "node", "clock", "configuration", "disk", "daemon", "socket")


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> InProcessCommand:
    inside = InProcessCommand(tmp_path / "home", monkeypatch, capfdbinary, dict(os.environ))
    inside.home.mkdir(mode=0o700)
    monkeypatch.setenv("TOWER_HTTP", "127.0.0.1:0")
    monkeypatch.setenv("TOWER_PI", "off")
    return inside


def run_checks(inside: InProcessCommand, *arguments: str) -> dict[str, dict[str, Any]]:
    ended = inside("doctor", "--json", *arguments)
    found = ended.json
    assert ended.code == (0 if found["ok"] else 1)
    assert found["ok"] == all(check["status"] != "fail" for check in found["checks"])
    for check in found["checks"]:
        assert (check["remedy"] is None) == (check["status"] == "ok"), check
    worst = {"ok": 0, "warn": 1, "fail": 2}
    by_name: dict[str, dict[str, Any]] = {}
    for check in found["checks"]:
        known = by_name.setdefault(check["name"], check)
        if worst[check["status"]] > worst[known["status"]]:
            by_name[check["name"]] = check
    return by_name


def make_journal(inside: InProcessCommand) -> Path:
    path = inside.home / "data/journal.db"
    path.parent.mkdir(mode=0o700)
    path.touch(mode=0o600)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        database.migrate(connection)
    return path


def test_a_fresh_home_is_well_and_nothing_is_made_or_started(in_process: InProcessCommand) -> None:
    found = run_checks(in_process)

    assert {found[name]["status"] for name in NAMES} <= {"ok", "warn"}
    assert found["daemon"]["detail"].startswith("not running")
    assert found["http"]["detail"] == "a free port of 127.0.0.1"
    assert found["pi"]["detail"] == "off"
    assert found["hub"]["detail"] == "none is dialled"
    assert list(in_process.home.iterdir()) == []


def test_the_plain_report_has_a_line_a_check(in_process: InProcessCommand) -> None:
    make_journal(in_process).chmod(0o644)

    ended = in_process("doctor")

    assert ended.code == 1
    lines = ended.text.splitlines()
    assert all(line.startswith(("ok    ", "warn  ", "fail  ")) for line in lines)
    path = in_process.home / "data/journal.db"
    assert f"fail  private files   {path} can be read by others; hint: `chmod 600 {path}`" in lines
    assert ended.stderr.splitlines()[-1].startswith(f"{len(lines)} checks: 1 failed, ")


def test_a_running_daemon_is_asked_for_its_version(shared_command: TowerCommand) -> None:
    shared_command("sessions")

    ended = shared_command("doctor", "--json")

    found = {check["name"]: check for check in ended.json["checks"]}
    assert ended.code == 0, found
    assert found["daemon"]["detail"] == f"pid {shared_command.endpoints['pid']}, version {__version__}"
    assert found["http"]["detail"] == f"{shared_command.endpoints['http']}, which is ours"
    assert found["socket"]["detail"] == f"{shared_command.endpoints['socket']} (0600)"
    assert found["journal"]["status"] == "ok"


def test_settings_that_cannot_be_read_fail_and_the_machine_is_still_looked_at(in_process: InProcessCommand) -> None:
    (in_process.home / "config.toml").write_text('log_level = "loud"\n')

    found = run_checks(in_process)

    assert found["configuration"]["status"] == "fail"
    assert found["configuration"]["remedy"].startswith("use one of debug, ")
    assert found["python"]["status"] == "ok"


@pytest.mark.parametrize(
    ("mode", "status", "remedy"), [(0o777, "fail", "chmod go-w"), (0o755, "warn", "chmod 700"), (0o700, "ok", None)]
)
def test_folders_are_the_owner_s(in_process: InProcessCommand, mode: int, status: str, remedy: str | None) -> None:
    folder = in_process.home / "data"
    folder.mkdir()
    folder.chmod(mode)

    found = run_checks(in_process)["data folder"]

    assert found["status"] == status
    assert remedy is None or f"{remedy} {folder}" in found["remedy"]


def test_a_file_in_a_folder_s_place_fails(in_process: InProcessCommand) -> None:
    (in_process.home / "run").write_text("")

    assert run_checks(in_process)["run folder"]["status"] == "fail"


def test_a_damaged_journal_fails_and_a_newer_one_too(in_process: InProcessCommand) -> None:
    path = make_journal(in_process)
    assert run_checks(in_process)["journal"]["status"] == "ok"

    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 999")
    assert run_checks(in_process)["journal"]["remedy"] == "use the newer program that wrote it"

    path.write_bytes(path.read_bytes()[:4096] + b"\xa5" * 20_000)
    assert run_checks(in_process)["journal"]["status"] == "fail"


def test_entries_from_the_future_are_a_matter_of_the_clock(in_process: InProcessCommand) -> None:
    path = make_journal(in_process)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "INSERT INTO sessions (session_id, epoch, state, created_at_ms, updated_at_ms, card)"
            " VALUES ('s', 1, 'idle', 1, ?, '')",
            (10**14,),
        )
        connection.commit()

    assert run_checks(in_process)["journal's clock"]["status"] == "warn"


def test_a_port_that_was_asked_for_and_is_taken_fails(in_process: InProcessCommand) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        in_process.monkeypatch.setenv("TOWER_HTTP", address)

        found = run_checks(in_process)["http"]

    assert (found["status"], found["detail"]) == ("fail", f"{address}: Address already in use")
    assert "tower config set http HOST:PORT" in found["remedy"]


def test_something_else_in_the_socket_s_place_fails(in_process: InProcessCommand) -> None:
    (in_process.home / "run").mkdir(mode=0o700)
    (in_process.home / "run/pushd.sock").write_text("")

    assert run_checks(in_process)["socket"]["status"] == "fail"


def test_a_stranger_at_the_socket_is_told_of(in_process: InProcessCommand, tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    in_process.monkeypatch.setenv("TOWER_SOCKET", str(path))
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(path))
        path.chmod(0o600)
        stranger.listen()

        assert run_checks(in_process)["socket"]["status"] == "warn"


def test_keys_are_named_and_never_shown(in_process: InProcessCommand) -> None:
    in_process.monkeypatch.setenv("OPENAI_API_KEY", "sk-very-s3cret-key-0123456789")

    ended = in_process("doctor", "--json")

    found = {check["name"]: check for check in ended.json["checks"]}
    assert found["model keys"]["detail"] == "openai from `OPENAI_API_KEY` of your shell"
    assert b"s3cret" not in ended.stdout


def test_a_model_of_the_file_that_cannot_be_used_is_a_warning_and_a_bad_table_fails(in_process: InProcessCommand) -> None:
    (in_process.home / "config.toml").write_text('[models.work]\nprovider = "openai"\nkey_env = "NO_SUCH_KEY"\n')
    (in_process.home / "config.toml").chmod(0o600)
    assert run_checks(in_process)["models"]["status"] == "warn"

    (in_process.home / "config.toml").write_text('[models.work]\nprovider = "nobody"\n')
    assert run_checks(in_process)["models"]["status"] == "fail"


def test_mcp_servers_are_started_only_when_asked(in_process: InProcessCommand, tmp_path: Path) -> None:
    mark = tmp_path / "was-started"
    servers = {"one": {"command": "sh", "args": ["-c", f"touch {mark}; exit 3"]}, "bad": {}}
    (in_process.home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))

    assert run_checks(in_process)["mcp"]["status"] == "warn", "of the bad entry"
    assert not mark.exists()

    found = run_checks(in_process, "--deep")["mcp"]
    assert mark.exists()
    assert found["status"] == "fail"
    assert "`one` ended with exit code 3" in found["detail"]


def test_a_hub_that_cannot_be_reached_fails_when_looked_for(in_process: InProcessCommand) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        in_process.monkeypatch.setenv("TOWER_HUB", f"http://127.0.0.1:{nobody.getsockname()[1]}")

        assert run_checks(in_process)["hub"]["status"] == "ok"
        assert run_checks(in_process, "--deep")["hub"]["status"] == "fail"


def test_a_sandbox_that_was_asked_for_and_is_not_there_fails(in_process: InProcessCommand, tmp_path: Path) -> None:
    in_process.monkeypatch.setenv("PATH", str(tmp_path))
    in_process.monkeypatch.setenv("TOWER_SANDBOX", "bubblewrap")

    found = run_checks(in_process)

    assert found["sandbox"]["status"] == "fail"
    assert found["git"]["status"] == found["rg"]["status"] == "warn"
    assert found["node"]["status"] == "ok"


@pytest.mark.skipif(sandbox.probe_sandbox("bubblewrap") is not None, reason="no bubblewrap here")
def test_a_machine_whose_system_calls_cannot_be_filtered_is_named(in_process: InProcessCommand) -> None:
    assert run_checks(in_process)["sandbox"]["status"] == "ok"
    in_process.monkeypatch.setattr(seccomp, "ARCHITECTURES", ())
    seccomp.find_architecture.cache_clear()
    try:
        found = run_checks(in_process)["sandbox"]
    finally:
        seccomp.find_architecture.cache_clear()

    assert found["status"] == "warn"
    assert f"system calls are not filtered on {platform.machine()}" in found["detail"]


def test_the_daemon_says_how_its_link_to_the_hub_stands(tower_command: TowerCommand) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        hub = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        tower_command.environment["TOWER_HUB"] = hub
        tower_command("user", "list")  # the page about it is there once this was answered

        found = {check["name"]: check for check in tower_command("doctor", "--json").json["checks"]}

    assert found["hub"]["status"] == "warn"
    assert found["hub"]["detail"].startswith(f"{hub}, ")
    assert found["hub"]["remedy"].startswith("the daemon keeps dialling")
