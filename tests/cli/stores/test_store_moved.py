"""A home that moved into a database and back: its sessions, logins and decisions are as before, on a real node."""

import json
import urllib.request
from pathlib import Path

from tests.cli.conftest import TowerCommand


def test_a_tower_moves_to_a_database_and_back_and_nobody_notices(
    tower_command: TowerCommand, fresh_dsn: str, tmp_path: Path
) -> None:
    session_id = tower_command("run", "--headless", "--json", "write notes.txt: hello", "--approve", "always").json["sessionId"]
    tower_command("user", "add", "ann", "--password-stdin", stdin=b"correct horse")
    lasting = tower_command("attach", session_id, "--jsonl", "--no-follow").stdout
    audit = tower_command("audit", "--json").json
    token = tower_command.endpoints["token"]
    tower_command("stop")
    copied = tower_command("store", "copy", "sqlite", fresh_dsn)
    assert copied.code == 0, copied.stderr

    tower_command.environment["TOWER_STORE"] = fresh_dsn
    assert [one["sessionId"] for one in tower_command("sessions", "--json").json] == [session_id]
    assert tower_command.endpoints["token"] == token
    assert tower_command("attach", session_id, "--jsonl", "--no-follow").stdout == lasting
    assert [user["name"] for user in tower_command("user", "list", "--json").json] == ["ann"]
    assert _log_in(tower_command.endpoints["http"]) == 200
    assert len(audit) == 1
    assert tower_command("audit", "--json").json == audit
    again = tower_command("run", "--headless", "--json", "say: on a node")
    assert again.code == 0, again.stderr
    checks = {check["name"]: check for check in tower_command("doctor", "--json").json["checks"]}
    assert checks["store"]["status"] == "ok"
    assert " at " in checks["store"]["detail"]
    backup = tmp_path / "live.tar.gz"
    assert tower_command("backup", str(backup)).code == 0
    verified = tower_command("journal", "verify")
    assert verified.code == 0, verified.stdout
    assert "a daemon is already running" in tower_command("restore", "--force", str(backup)).stderr
    tower_command("stop")

    del tower_command.environment["TOWER_STORE"]
    other = tmp_path / "back"
    returned = tower_command("store", "copy", fresh_dsn, str(other))
    assert returned.code == 0, returned.stderr
    tower_command.environment["TOWER_HOME"] = str(other)
    try:
        assert {one["sessionId"] for one in tower_command("sessions", "--json").json} == {session_id, again.json["sessionId"]}
        assert tower_command("attach", session_id, "--jsonl", "--no-follow").stdout == lasting
        assert json.loads((other / "run/endpoints.json").read_text())["token"] == token
    finally:
        tower_command("stop")
        tower_command.environment["TOWER_HOME"] = str(tower_command.home)


def _log_in(http: str) -> int:
    login = json.dumps({"username": "ann", "password": "correct horse"}).encode()
    request = urllib.request.Request(f"{http}/auth/login", login, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        status: int = answer.status
        return status
