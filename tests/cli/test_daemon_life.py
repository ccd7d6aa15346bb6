"""The daemon's life as commands see it: started when needed, found when there, stopped when asked, replaced after a crash."""

import json
import os
import re
import signal
import stat
import subprocess
from pathlib import Path
from sys import executable
from typing import Any

from tests.cli.conftest import TowerCommand


def is_alive(pid: int) -> bool:
    """An ended process that its new parent has not looked at yet is still listed, as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_status_and_stop_without_a_daemon_start_none(tower_command: TowerCommand) -> None:
    status, stop = tower_command("status", "--json"), tower_command("stop")

    assert status.code == 1
    assert status.json["running"] is False
    assert tower_command("status").stdout.startswith(b"daemon:             not running\n")
    assert (stop.code, stop.stderr) == (0, "no daemon is running\n")
    assert not (tower_command.home / "run").exists()


def test_a_command_starts_the_daemon_and_status_finds_it(tower_command: TowerCommand) -> None:
    assert tower_command("sessions", "--json").json == []

    endpoints = tower_command.endpoints
    status = tower_command("status", "--json")
    assert status.code == 0
    assert status.json["pid"] == endpoints["pid"]
    assert status.json["http"] == endpoints["http"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", endpoints["http"])
    assert (status.json["sessions"], status.json["pendingApprovals"]) == (0, 0)
    assert stat.S_IMODE((tower_command.home / "run/endpoints.json").stat().st_mode) == 0o600
    readable = tower_command("status").stdout.decode()
    assert f"running, version {endpoints['version']}, pid {endpoints['pid']}\n" in readable
    assert endpoints["socket"] in readable


def test_stop_waits_until_the_daemon_is_gone(tower_command: TowerCommand) -> None:
    tower_command("sessions")
    pid = tower_command.endpoints["pid"]

    assert tower_command("stop").stderr == f"stopped the daemon (pid {pid})\n"

    assert not is_alive(pid)
    assert tower_command("status").code == 1


def test_stop_never_signals_a_process_that_merely_has_the_number(tower_command: TowerCommand) -> None:
    (tower_command.home / "run").mkdir()
    stranger = subprocess.Popen(["sleep", "65.5"])
    try:
        (tower_command.home / "run/endpoints.json").write_text(json.dumps({"pid": stranger.pid, "socket": "/nowhere"}))
        (tower_command.home / "run/tower.lock").write_text(str(stranger.pid))

        assert tower_command("stop").code == 0
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_serve_says_where_it_listens_and_a_second_one_is_refused(tower_command: TowerCommand, line_with: Any) -> None:
    first = tower_command.start("serve")
    line_with(first, "try this in another terminal")

    second = tower_command("serve")

    assert second.code == 1
    assert "already running" in second.stderr
    assert f"pid {first.pid}" in second.stderr
    assert second.stderr.count("\n") == 1
    first.send_signal(signal.SIGTERM)
    assert first.communicate(timeout=60)[0] == b"", "stdout is data only"
    assert first.returncode == 0


def test_pushd_is_serve(tower_command: TowerCommand, line_with: Any) -> None:
    program = Path(executable).parent / "pushd"
    process = subprocess.Popen([program, "--http", "off"], env=tower_command.environment, stderr=subprocess.PIPE)
    line_with(process, "is listening")

    assert tower_command("run", "--headless", "say: hi").stdout == b"hi\n"
    assert tower_command.endpoints["http"] is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_socket_elsewhere_is_found_through_the_endpoints_or_the_variable(tower_command: TowerCommand, line_with: Any) -> None:
    elsewhere = tower_command.home / "else.sock"
    process = tower_command.start("serve", "--socket", str(elsewhere))
    line_with(process, "try this")

    assert tower_command("status", "--json").json["socket"] == str(elsewhere)
    assert tower_command("status", "--json", PUSHD_SOCKET=str(elsewhere)).code == 0
    assert tower_command("status", PUSHD_SOCKET=str(tower_command.home / "nobody.sock")).code == 1
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)


def test_many_commands_at_once_start_one_daemon_and_all_succeed(tower_command: TowerCommand) -> None:
    starters = [tower_command.start("run", "--headless", "--json", f"say: {number}") for number in range(6)]

    ended = [(process.communicate(timeout=60), process.returncode) for process in starters]

    assert [code for _, code in ended] == [0] * 6, ended
    assert tower_command("status", "--json").json["sessions"] == 6
    assert (tower_command.home / "logs/tower.log").read_text().count("is listening") == 1


def test_a_crashed_daemon_is_not_in_the_way(tower_command: TowerCommand) -> None:
    session_id = tower_command("run", "--headless", "--json", "say: before").json["sessionId"]
    crashed = tower_command.endpoints["pid"]
    os.kill(crashed, signal.SIGKILL)

    assert tower_command("status").code == 1
    assert tower_command("send", session_id, "say: after", "--wait").stdout == b"after\n"
    assert tower_command.endpoints["pid"] != crashed


def test_a_watcher_lives_through_a_crash_and_a_restart(tower_command: TowerCommand, line_with: Any) -> None:
    session_id = tower_command("run", "--headless", "--json", "say: before").json["sessionId"]
    watcher = tower_command.start("attach", session_id, "--jsonl")
    line_with(watcher, "run_complete", of="stdout")

    os.kill(tower_command.endpoints["pid"], signal.SIGKILL)
    line_with(watcher, "connection lost")
    assert tower_command("send", session_id, "say: after", "--wait").code == 0
    after = json.loads(line_with(watcher, "after", of="stdout"))

    replayed = tower_command("attach", session_id, "--jsonl", "--no-follow").events
    assert after in replayed
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=60)
    assert watcher.returncode == 0


def test_a_required_attach_token_is_carried_by_the_run_and_taken_by_attach(tower_command: TowerCommand) -> None:
    tower_command.environment["TOWER_ATTACH_TOKEN_REQUIRED"] = "true"

    ended = tower_command("run", "--headless", "--json", "write notes.txt: x", "--approve", "always")

    assert (ended.code, ended.json["outcome"]) == (0, "success"), ended.stderr
    without = tower_command("attach", ended.json["sessionId"], "--no-follow")
    assert without.code == 1
    assert without.stderr.startswith("tower: ATTACH_FORBIDDEN: ")


def test_the_daemon_takes_no_modules_from_the_folder_it_was_started_in(tower_command: TowerCommand) -> None:
    (tower_command.folder / "click.py").write_text("raise SystemExit('taken from the folder')")
    program = Path(executable).parent / "tower"

    ended = subprocess.run(
        [program, "sessions"], cwd=tower_command.folder, env=tower_command.environment, capture_output=True, timeout=60
    )

    assert ended.returncode == 0, ended.stderr
