"""A home that moved into a database and back: its sessions, logins and decisions are as before, on a real node."""

import json
import urllib.request
from pathlib import Path
from typing import Any


def test_a_tower_moves_to_a_database_and_back_and_nobody_notices(tower: Any, fresh_dsn: str, tmp_path: Path) -> None:
    session_id = tower("run", "--headless", "--json", "write notes.txt: hello", "--approve", "always").json["sessionId"]
    tower("user", "add", "ann", "--password-stdin", stdin=b"correct horse")
    lasting = tower("attach", session_id, "--jsonl", "--no-follow").stdout
    audit = tower("audit", "--json").json
    token = tower.endpoints["token"]
    tower("stop")
    copied = tower("store", "copy", "sqlite", fresh_dsn)
    assert copied.code == 0, copied.stderr

    tower.environment["TOWER_STORE"] = fresh_dsn
    assert [one["sessionId"] for one in tower("sessions", "--json").json] == [session_id]
    assert tower.endpoints["token"] == token
    assert tower("attach", session_id, "--jsonl", "--no-follow").stdout == lasting
    assert [user["name"] for user in tower("user", "list", "--json").json] == ["ann"]
    assert _logged_in(tower.endpoints["http"]) == 200
    assert len(audit) == 1
    assert tower("audit", "--json").json == audit
    again = tower("run", "--headless", "--json", "say: on a node")
    assert again.code == 0, again.stderr
    checks = {check["name"]: check for check in tower("doctor", "--json").json["checks"]}
    assert checks["store"]["status"] == "ok"
    assert " at " in checks["store"]["detail"]
    backup = tmp_path / "live.tar.gz"
    assert tower("backup", str(backup)).code == 0
    verified = tower("journal", "verify")
    assert verified.code == 0, verified.stdout
    assert "a daemon is already running" in tower("restore", "--force", str(backup)).stderr
    tower("stop")

    del tower.environment["TOWER_STORE"]
    other = tmp_path / "back"
    returned = tower("store", "copy", fresh_dsn, str(other))
    assert returned.code == 0, returned.stderr
    tower.environment["TOWER_HOME"] = str(other)
    try:
        assert {one["sessionId"] for one in tower("sessions", "--json").json} == {session_id, again.json["sessionId"]}
        assert tower("attach", session_id, "--jsonl", "--no-follow").stdout == lasting
        assert json.loads((other / "run/endpoints.json").read_text())["token"] == token
    finally:
        tower("stop")
        tower.environment["TOWER_HOME"] = str(tower.home)


def _logged_in(http: str) -> int:
    login = json.dumps({"username": "ann", "password": "correct horse"}).encode()
    request = urllib.request.Request(f"{http}/auth/login", login, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        status: int = answer.status
        return status
