"""`tower run`: what goes to stdout, what to stderr, and which exit code says what."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TowerCommand


def test_the_answer_goes_to_stdout_and_progress_to_stderr(shared_command: TowerCommand) -> None:
    ended = shared_command("run", "--headless", "say: hello there")

    assert (ended.code, ended.stdout) == (0, b"hello there\n")
    assert "= success" in ended.stderr
    assert "\x1b" not in ended.stderr, "no colour outside of a terminal"


def test_tool_calls_are_progress_and_what_the_model_says_about_them_is_the_answer(shared_command: TowerCommand) -> None:
    (shared_command.folder / "README.md").write_text("First line\nSecond line\n")

    ended = shared_command("run", "--headless", "read README.md")

    assert ended.code == 0
    assert "→ sandbox_read_file path=README.md" in ended.stderr
    assert b"First line" in ended.stdout
    assert b"sandbox_read_file" not in ended.stdout


def test_text_may_come_from_stdin(shared_command: TowerCommand) -> None:
    assert shared_command("run", "--headless", "-", stdin=b"say: from a pipe\n").stdout == b"from a pipe\n"


def test_json_prints_one_object_derived_from_the_completion(shared_command: TowerCommand) -> None:
    ended = shared_command("run", "--headless", "--json", "say: hi", "--accept", "ok=true", "--accept", "here=pwd")

    assert ended.code == 0
    assert ended.stdout.count(b"\n") == 1
    result = ended.json
    assert result.pop("sessionId").startswith("sess_")
    assert result.pop("runId").startswith("run_")
    assert result.pop("summary")
    assert result == {
        "outcome": "success",
        "acceptance": {
            "total": 2,
            "passed": 2,
            "results": [
                {"id": "ok", "passed": True, "exitCode": 0, "output": ""},
                {"id": "here", "passed": True, "exitCode": 0, "output": f"{shared_command.folder}\n"},
            ],
        },
        "headless": {"exitCodeHint": 0},
    }


def test_jsonl_prints_every_event_from_the_first_to_the_completion(shared_command: TowerCommand) -> None:
    ended = shared_command("run", "--headless", "--jsonl", "count 300")

    events = ended.events
    assert ended.code == 0
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert (events[0]["type"], events[-1]["type"]) == ("session_started", "run_complete")
    text = "".join(event["payload"]["text"] for event in events if event["type"] == "assistant_token")
    assert text == " ".join(map(str, range(1, 301)))
    assert events[-1]["payload"]["headless"] == {"exitCodeHint": 0}


@pytest.mark.parametrize("rules", [[], ["--approve", "never"], ["--approve", "run"], ["--approve", "write_file:docs/**"]])
def test_what_no_rule_allows_is_denied_and_exits_with_3(shared_command: TowerCommand, rules: list[str]) -> None:
    ended = shared_command("run", "--headless", "--json", "write notes.txt: some text", *rules)

    assert ended.code == 3
    assert ended.json["outcome"] == "denied"
    assert ended.json["headless"] == {"exitCodeHint": 3}
    assert not (shared_command.folder / "notes.txt").exists()


@pytest.mark.parametrize("rule", ["always", "write", "write_file", "sandbox_write_file", "write_file:*.txt"])
def test_what_a_rule_allows_happens(shared_command: TowerCommand, rule: str) -> None:
    ended = shared_command("run", "--headless", "write notes.txt: some text", "--approve", rule)

    assert ended.code == 0, ended.stderr
    assert (shared_command.folder / "notes.txt").read_text().rstrip("\n") == "some text"


def test_acceptance_that_fails_exits_with_4(shared_command: TowerCommand) -> None:
    ended = shared_command(
        "run", "--headless", "--json", "say: done", "--accept", "fails=echo why; exit 7", "--accept", "holds=true"
    )

    assert ended.code == 4
    assert ended.json["acceptance"]["passed"] == 1
    assert ended.json["acceptance"]["results"][0] == {"id": "fails", "passed": False, "exitCode": 7, "output": "why\n"}
    assert "fails: not accepted (exit code 7)" in ended.stderr


def test_a_timeout_cancels_the_run_and_exits_with_124(shared_command: TowerCommand, processes_with: Any) -> None:
    ended = shared_command("run", "--headless", "--json", "--approve", "always", "--timeout", "1", "run: sleep 61.5001")

    assert ended.code == 124
    assert ended.json["outcome"] == "cancelled"
    assert "did not end within 1 s" in ended.stderr
    assert not processes_with("sleep 61.5001")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_cancels_the_run_and_leaves_nothing_running(
    shared_command: TowerCommand, line_with: Any, processes_with: Any, number: int
) -> None:
    marker = f"sleep 62.500{int(number)}"
    process = shared_command.start("run", "--headless", "--json", "--approve", "always", f"run: {marker}")
    line_with(process, "approved by")

    process.send_signal(number)
    stdout, _ = process.communicate(timeout=60)

    assert process.returncode == 2
    assert json.loads(stdout)["outcome"] == "cancelled"
    assert not processes_with(marker)


def test_a_hangup_that_nohup_ignores_does_not_cancel(shared_command: TowerCommand, line_with: Any) -> None:
    command = ["run", "--headless", "--approve", "always", "run: sleep 0.5 && echo slept"]
    process = shared_command.start(*command, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    line_with(process, "approved by")

    process.send_signal(signal.SIGHUP)
    stdout, _ = process.communicate(timeout=60)

    assert process.returncode == 0
    assert b"slept" in stdout


def test_bytes_that_are_no_utf_8_reach_the_model_as_marks(shared_command: TowerCommand) -> None:
    assert shared_command("run", "--headless", os.fsdecode(b"say: caf\xe9")).stdout == "caf\ufffd\n".encode()


def test_a_second_interrupt_leaves_at_once(tower_command: TowerCommand, line_with: Any) -> None:
    process = tower_command.start("run", "--headless", "--approve", "always", "run: sleep 63.5001")
    line_with(process, "approved by")
    daemon = tower_command.endpoints["pid"]

    os.kill(daemon, signal.SIGSTOP)  # so that the cancelled run cannot end
    try:
        process.send_signal(signal.SIGINT)
        line_with(process, "cancelling")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 2
    finally:
        os.kill(daemon, signal.SIGCONT)
        process.communicate()


def test_a_reader_that_leaves_ends_the_run_quietly(shared_command: TowerCommand, line_with: Any, processes_with: Any) -> None:
    process = shared_command.start("run", "--headless", "--jsonl", "--approve", "always", "run: sleep 64.5001 && echo\ncount 10")
    process.stdout.readline()
    process.stdout.close()

    assert process.wait(timeout=60) == 141
    assert "Traceback" not in process.stderr.read().decode()
    process.stderr.close()
    assert not processes_with("sleep 64.5001")


def test_a_failing_start_exits_with_1_and_says_why(shared_command: TowerCommand) -> None:
    ended = shared_command("run", "--headless", "--provider", "nonesuch", "say: hi")

    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr.startswith("tower: PROVIDER_NOT_CONFIGURED: ")
    assert ended.stderr.count("\n") == 1


def test_a_daemon_that_cannot_start_is_told_with_its_last_words(tower_command: TowerCommand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = tower_command("run", "--headless", "say: hi", TOWER_HTTP=address)

    assert (ended.code, ended.stdout) == (1, b"")
    assert "the daemon did not start" in ended.stderr
    assert address in ended.stderr
    assert "hint: " in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "--headless", ""],
        ["run", "--headless", "x", "--json", "--jsonl"],
        ["run", "--headless", "x", "--accept", "no-equals-sign"],
        ["run", "--headless", "x", "--approve", "always", "--approve", "run"],
        ["run", "--headless", "x", "--timeout", "0"],
        ["run", "--headless", "x", "--cwd", "/no/such/folder"],
        ["serve", "--http", "nowhere"],
        ["attach", "last", "--json"],
        ["sessions", "--limit", "0"],
        ["nonesuch"],
        ["--nonesuch"],
    ],
)
def test_wrong_usage_exits_with_64_and_one_line(tower_command: TowerCommand, arguments: list[str]) -> None:
    ended = tower_command(*arguments)

    assert (ended.code, ended.stdout) == (64, b"")
    assert ended.stderr.count("\n") == 1
    assert "hint: " in ended.stderr


def test_a_bad_setting_is_one_line_and_exits_with_1(tower_command: TowerCommand) -> None:
    ended = tower_command("run", "--headless", "say: hi", TOWER_LOG_LEVEL="loud")

    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr.startswith("tower: `log_level` from the variable `TOWER_LOG_LEVEL`: `loud` is not ")
    assert ended.stderr.endswith("; hint: use one of debug, info, warning, error\n")
    assert ended.stderr.count("\n") == 1


def test_push_is_the_same_program(shared_command: TowerCommand) -> None:
    program = Path(sys.executable).parent / "push"
    ended = subprocess.run(
        [program, "run", "--headless", "say: hi"],
        env=shared_command.environment,
        cwd=shared_command.folder,
        capture_output=True,
        timeout=30,
    )

    assert (ended.returncode, ended.stdout) == (0, b"hi\n")
