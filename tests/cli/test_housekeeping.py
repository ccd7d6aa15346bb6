"""`tower undo`, `compact`, `diff`, `configure`: what they ask for, what they print, and which exit code says what."""

import os
import signal
from typing import Any, get_args

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.scripted import SESSION, ScriptedDaemon, make_refusal
from tests.cli.terminal import TerminalDriver

from switchtower import config
from switchtower.cli import arguments
from switchtower.cli.main import COMMANDS
from switchtower.protocols.push import messages


def test_undo_prints_the_files_and_those_left_alone(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    restored = "undo of run_0: a.py, b.py; left alone: c.py"
    scripted_daemon.add_completion()  # of an earlier run with the same id: what is past does not count
    scripted_daemon.answers["undo_run"] = scripted_daemon.make_run_reply(
        lambda: scripted_daemon.add_status("Undo started", ""),
        lambda: scripted_daemon.add_status("Workspace restored", restored),
        scripted_daemon.add_completion,
    )

    ended = tower_command("undo", "last")

    assert (ended.code, ended.stdout.decode()) == (0, f"{restored}\n")
    assert (
        f"hint: `tower undo {SESSION} --redo && tower undo {SESSION} --force` overwrites them too, and those changes are lost"
        in ended.stderr
    )
    assert scripted_daemon.list_requests("undo_run") == [{"sessionId": SESSION}]


def test_redo_and_force_are_passed_on_and_nothing_left_alone_needs_no_hint(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon
) -> None:
    scripted_daemon.answers["undo_run"] = scripted_daemon.make_run_reply(
        lambda: scripted_daemon.add_status("Workspace restored", "redo of run_0: a\x1b[31m.py"), scripted_daemon.add_completion
    )

    ended = tower_command("undo", SESSION, "--redo", "--force")

    assert (ended.code, ended.stdout.decode()) == (0, "redo of run_0: a\\x1b[31m.py\n")
    assert "--force" not in ended.stderr
    assert scripted_daemon.list_requests("undo_run") == [{"sessionId": SESSION, "redo": True, "force": True}]


def test_a_redo_that_left_files_alone_says_how_to_make_it_again_for_all(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon
) -> None:
    restored = "redo of run_0: nothing to change; left alone: c.py"
    scripted_daemon.answers["undo_run"] = scripted_daemon.make_run_reply(
        lambda: scripted_daemon.add_status("Workspace restored", restored), scripted_daemon.add_completion
    )

    ended = tower_command("undo", "last", "--redo")

    assert (
        f"hint: `tower undo {SESSION} && tower undo {SESSION} --redo --force` overwrites them too, and those changes are lost"
        in ended.stderr
    )


@pytest.mark.parametrize(("outcome", "hint"), [("failed", 1), ("cancelled", 2), ("denied", 3)])
@pytest.mark.parametrize("command", [["undo", "last"], ["compact", "last"]], ids=lambda command: command[0])
def test_a_chore_that_does_not_succeed_says_so_and_has_the_run_s_exit_code(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon, command: list[str], outcome: str, hint: int
) -> None:
    start = scripted_daemon.make_run_reply(lambda: scripted_daemon.add_completion(outcome, "it could not be done", hint=hint))
    scripted_daemon.answers["undo_run"] = scripted_daemon.answers["compact_session"] = start

    ended = tower_command(*command)

    assert (ended.code, ended.stdout) == (hint, b"")
    assert f"= {outcome}: it could not be done" in ended.stderr


def test_nothing_to_undo_is_one_line(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.answers["undo_run"] = make_refusal("INVALID_REQUEST", "There is nothing to undo or redo")

    ended = tower_command("undo", "last")

    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr == "tower: INVALID_REQUEST: There is nothing to undo or redo\n"


def test_compact_takes_instructions_and_prints_what_became_of_the_context(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon
) -> None:
    scripted_daemon.answers["compact_session"] = scripted_daemon.make_run_reply(
        lambda: scripted_daemon.add_status("Compacting the context", "requested"),
        lambda: scripted_daemon.add_status("Usage", "900 tokens in, 40 out, $0.0031 (anthropic claude)", source="model"),
        lambda: scripted_daemon.add_status("Context compacted", "900 tokens became about 60"),
        scripted_daemon.add_completion,
    )

    ended = tower_command("compact", "last", "keep the names")

    assert (ended.code, ended.stdout) == (0, b"900 tokens became about 60\n")
    assert ended.stderr == "· Compacting the context: requested\n  900 tokens in, 40 out, $0.0031 (anthropic claude)\n"
    assert scripted_daemon.list_requests("compact_session") == [{"sessionId": SESSION, "instructions": "keep the names"}]


def test_ctrl_c_cancels_a_chore(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon, line_with: Any) -> None:
    def cancelled(_: dict[str, Any]) -> dict[str, Any]:
        scripted_daemon.add_completion("cancelled", "The run was cancelled", hint=2)
        return {"accepted": True}

    scripted_daemon.answers["cancel_run"] = cancelled
    scripted_daemon.answers["compact_session"] = scripted_daemon.make_run_reply(
        lambda: scripted_daemon.add_status("Compacting the context", "requested")
    )
    process = tower_command.start("compact", "last")
    line_with(process, "Compacting")

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert process.returncode == 2
    assert scripted_daemon.list_requests("cancel_run") == [{"sessionId": SESSION, "runId": "run_1", "reason": "user_cancelled"}]


DIFF = (
    "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n same\n"
    "-old \x1b[31m\n--- was a comment\n+new\n\\ No newline at end of file\n"
)


def test_a_diff_into_a_pipe_is_what_the_daemon_sent_byte_for_byte(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon
) -> None:
    scripted_daemon.answers["diff_session"] = {"diff": DIFF}

    ended = tower_command("diff", "last", "--run", "run_7")

    assert (ended.code, ended.stdout, ended.stderr) == (0, DIFF.encode(), "")
    assert scripted_daemon.list_requests("diff_session") == [{"sessionId": SESSION, "runId": "run_7"}]


def test_a_diff_on_a_terminal_has_colours_and_cannot_steer_it(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon
) -> None:
    scripted_daemon.answers["diff_session"] = {"diff": DIFF}

    terminal = TerminalDriver(tower_command, "diff", "last")

    assert terminal.end() == 0
    assert terminal.shown.replace("\r\n", "\n").splitlines() == [
        "\x1b[2mdiff --git a/x b/x\x1b[0m",
        "\x1b[2mindex 1..2 100644\x1b[0m",
        "\x1b[2m--- a/x\x1b[0m",
        "\x1b[2m+++ b/x\x1b[0m",
        "\x1b[36m@@ -1,3 +1,3 @@\x1b[0m",
        " same",
        "\x1b[31m-old \\x1b[31m\x1b[0m",
        "\x1b[31m--- was a comment\x1b[0m",
        "\x1b[32m+new\x1b[0m",
        "\x1b[2m\\ No newline at end of file\x1b[0m",
    ]


def test_no_color_leaves_a_diff_plain_on_a_terminal_too(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.answers["diff_session"] = {"diff": DIFF}

    terminal = TerminalDriver(tower_command, "diff", "last", NO_COLOR="1")

    assert terminal.end() == 0
    assert "\x1b" not in terminal.shown
    assert "+new" in terminal.shown


def test_no_changes_is_said_and_is_no_failure(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.answers["diff_session"] = {"diff": ""}

    ended = tower_command("diff", "last")

    assert (ended.code, ended.stdout, ended.stderr) == (0, b"", "nothing was changed\n")


def test_configure_sends_only_what_was_named(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.answers["configure_session"] = {"accepted": True}

    ended = tower_command("configure", "last", "--policy", "auto", "--thinking", "high", "--title", os.fsdecode(b"caf\xe9"))

    assert (ended.code, ended.stdout) == (0, b"")
    assert ended.stderr == "configured: policy=auto, thinking=high, title=caf\ufffd\n"
    assert scripted_daemon.list_requests("configure_session") == [
        {"sessionId": SESSION, "policy": "auto", "thinking": "high", "title": "caf\ufffd"}
    ]


def test_configuring_yolo_is_warned_of_in_one_line(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.answers["configure_session"] = {"accepted": True}

    ended = tower_command("configure", "last", "--policy", "yolo")

    assert ended.code == 0
    assert [line for line in ended.stderr.splitlines() if "warning" in line] == [
        "warning: from its next run on this session asks nobody about anything"
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["configure", "last"],
        ["configure", "last", "--policy", "careless"],
        ["configure", "last", "--title", " "],
        ["configure", "last", "--thinking", "a lot"],
        ["undo"],
        ["diff"],
        ["send", "last", "x", "--steer", "--follow-up"],
        ["send", "last", "x", "--steer", "--wait"],
        ["send", "last", "x", "--follow-up", "--wait"],
        ["skills", "--cwd", "/no/such/folder"],
        ["run", "x", "--policy", "careless"],
        ["run", "x", "--sandbox", "castle"],
        ["run", "x", "--thinking", "a lot"],
        ["run", "x", "--provider", ""],
        ["run", "x", "--max-turns", "0"],
        ["run", "x", "--max-turns", "1.5"],
        ["run", "x", "--max-tokens", "9" * 30],
        ["run", "x", "--max-cost", "nan"],
        ["run", "x", "--max-cost", "-1"],
        ["run", "x", "--max-minutes", "inf"],
        ["run", "x", "--timeout", "nan"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_64_and_one_line_and_asks_nobody(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon, arguments: list[str]
) -> None:
    ended = tower_command(*arguments)

    assert (ended.code, ended.stdout) == (64, b"")
    assert ended.stderr.count("\n") == 1
    assert "hint: " in ended.stderr
    assert scripted_daemon.requests == []


@pytest.mark.parametrize(("flag", "delivery"), [("--steer", "steer"), ("--follow-up", "follow_up")])
def test_a_message_for_a_run_that_is_under_way_is_queued_and_its_id_printed(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon, flag: str, delivery: str
) -> None:
    scripted_daemon.answers["queue_message"] = lambda asked: {
        "accepted": True,
        "messageId": asked["clientMessageId"],
        "runId": None,
    }

    ended = tower_command("send", "last", "leave the tests alone", flag)

    [asked] = scripted_daemon.list_requests("queue_message")
    assert (ended.code, ended.stdout.decode()) == (0, f"{asked['clientMessageId']}\n")
    assert (asked["text"], asked["delivery"]) == ("leave the tests alone", delivery)
    assert "queued" in ended.stderr


def test_a_message_that_comes_after_the_run_starts_one_and_prints_its_id(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon
) -> None:
    scripted_daemon.answers["queue_message"] = {"accepted": True, "messageId": "msg_1", "runId": "run_2"}

    ended = tower_command("send", "last", "x", "--steer")

    assert (ended.code, ended.stdout) == (0, b"run_2\n")
    assert "started one" in ended.stderr


@pytest.mark.parametrize("more", [[], ["--wait"]], ids=["send", "send --wait"])
def test_a_refused_message_says_how_to_reach_a_running_session(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon, more: list[str]
) -> None:
    scripted_daemon.answers["send_user_message"] = make_refusal("RUN_IN_PROGRESS", "A run is already active in this session")

    ended = tower_command("send", "last", "x", *more)

    assert ended.code == 1
    assert ended.stderr == (
        "tower: RUN_IN_PROGRESS: A run is already active in this session; "
        "hint: join it with `--steer`, or wait for its end with `--follow-up`\n"
    )


def test_every_command_teaches_with_an_example(tower_command: TowerCommand) -> None:
    without = [
        row.name
        for row in COMMANDS
        if f"Example:\n  tower {row.name}" not in tower_command(row.name, "--help").stdout.decode().replace("    ", "  ")
    ]

    assert without == []


def test_the_choices_are_the_wire_s_own() -> None:
    assert get_args(messages.ThinkingLevel) == arguments.THINKING
    assert set(config.POLICIES) == set(get_args(messages.PolicyProfile))
    assert set(config.SANDBOX_SETTINGS) == set(get_args(messages.SandboxWish))


def test_a_reader_that_leaves_in_the_middle_of_a_large_diff_ends_it_quietly(
    tower_command: TowerCommand, scripted_daemon: ScriptedDaemon
) -> None:
    scripted_daemon.answers["diff_session"] = {"diff": "+x\n" * 500_000}
    process = tower_command.start("diff", "last")

    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()

    assert process.wait(timeout=60) == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_request_is_one_line_whatever_is_in_it(tower_command: TowerCommand, scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.answers["compact_session"] = scripted_daemon.make_run_reply(scripted_daemon.add_completion)
    nasty = 'one\ntwo\u2028three "quoted" \\ \x07'

    assert tower_command("compact", "last", nasty).code == 0
    assert scripted_daemon.list_requests("compact_session") == [{"sessionId": SESSION, "instructions": nasty}]
