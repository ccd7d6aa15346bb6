"""`tower journal`: what it says about a journal's file, and with which exit code. What it finds is tested with the stores."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.inside import InProcessCommand


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> InProcessCommand:
    return InProcessCommand(tmp_path, monkeypatch, capfdbinary, dict(os.environ))


def test_a_running_daemon_s_journal_is_verified_and_counted(shared_command: TowerCommand) -> None:
    session_id = shared_command("run", "--headless", "--json", "write notes.txt: x", "--approve", "always").json["sessionId"]

    plain, verified = shared_command("journal", "verify"), shared_command("journal", "verify", "--json")
    counted = shared_command("journal", "stats", "--json").json

    assert plain.code == 0, plain.stdout
    assert plain.stdout.startswith(b"ok: ")
    assert plain.stdout.count(b"\n") == 1
    assert plain.stderr == f"checking {shared_command.home}/data/journal.db\n"
    assert (verified.code, verified.json["ok"], verified.json["troubles"]) == (0, True, [])
    assert verified.json["snapshots_compared"] >= 1
    assert session_id in {large["session_id"] for large in counted["largest"]} or counted["sessions"] > 10
    assert counted["entries"] == sum(kind["entries"] for kind in counted["kinds"])
    readable = shared_command("journal", "stats").stdout.decode()
    assert f"file:      {shared_command.home}/data/journal.db\n" in readable
    assert "\nsessions:  " in readable


def test_what_is_wrong_is_named_and_the_exit_code_says_so(tower_command: TowerCommand) -> None:
    session_id = tower_command("run", "--headless", "--json", "say: hello there").json["sessionId"]
    tower_command("stop")
    path = tower_command.home / "data/journal.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM events WHERE seq = 2")
        connection.commit()

    ended, as_json = tower_command("journal", "verify"), tower_command("journal", "verify", "--json", str(path))

    assert ended.code == as_json.code == 1
    first, last = ended.stdout.decode().splitlines()
    assert first == f"{session_id} seq 2: 2 is missing, and retention went only through 0"
    assert last.startswith("not ok: 1 sessions, ")
    assert "hint: keep the file as it is" in ended.stderr
    assert as_json.json["troubles"] == [
        {"place": f"{session_id} seq 2", "what": "2 is missing, and retention went only through 0"}
    ]


@pytest.mark.parametrize("command", ["verify", "stats"])
def test_no_journal_is_one_line_with_a_remedy(in_process: InProcessCommand, command: str) -> None:
    ended = in_process("journal", command)

    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr.splitlines()[-1].startswith(f"tower: there is no file `{in_process.home}/data/journal.db`; hint: ")


def test_rubbish_is_no_journal(in_process: InProcessCommand, tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(os.urandom(9_000))

    ended = in_process("journal", "verify", str(tmp_path / "x.db"))

    assert (ended.code, ended.stdout) == (1, b"")
    assert "hint: " in ended.stderr


def test_alone_it_explains_itself(in_process: InProcessCommand) -> None:
    ended = in_process("journal")

    assert ended.code == 0
    assert "verify" in ended.text
