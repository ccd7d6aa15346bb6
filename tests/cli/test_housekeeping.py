"""`tower undo`, `compact`, `diff`, `configure`: what they ask for, what they print, and which exit code says what."""

import os
import signal
from typing import Any, get_args

import pytest
from tests.cli.scripted import SESSION, ScriptedDaemon, refusing
from tests.cli.terminal import Terminal

from switchtower import config
from switchtower.cli import arguments
from switchtower.cli.main import COMMANDS
from switchtower.protocols.push import messages


def test_undo_prints_the_files_and_those_left_alone(tower: Any, scripted: ScriptedDaemon) -> None:
    restored = "undo of run_0: a.py, b.py; left alone: c.py"
    scripted.completed()  # of an earlier run with the same id: what is past does not count
    scripted.answers["undo_run"] = scripted.chore(
        lambda: scripted.status("Undo started", ""),
        lambda: scripted.status("Workspace restored", restored),
        scripted.completed,
    )

    ended = tower("undo", "last")

    assert (ended.code, ended.stdout.decode()) == (0, f"{restored}\n")
    assert (
        f"hint: `tower undo {SESSION} --redo && tower undo {SESSION} --force` overwrites them too, and those changes are lost"
        in ended.stderr
    )
    assert scripted.asked("undo_run") == [{"sessionId": SESSION}]


def test_redo_and_force_are_passed_on_and_nothing_left_alone_needs_no_hint(tower: Any, scripted: ScriptedDaemon) -> None:
    scripted.answers["undo_run"] = scripted.chore(
        lambda: scripted.status("Workspace restored", "redo of run_0: a\x1b[31m.py"), scripted.completed
    )

    ended = tower("undo", SESSION, "--redo", "--force")

    assert (ended.code, ended.stdout.decode()) == (0, "redo of run_0: a\\x1b[31m.py\n")
    assert "--force" not in ended.stderr
    assert scripted.asked("undo_run") == [{"sessionId": SESSION, "redo": True, "force": True}]


def test_a_redo_that_left_files_alone_says_how_to_make_it_again_for_all(tower: Any, scripted: ScriptedDaemon) -> None:
    restored = "redo of run_0: nothing to change; left alone: c.py"
    scripted.answers["undo_run"] = scripted.chore(lambda: scripted.status("Workspace restored", restored), scripted.completed)

    ended = tower("undo", "last", "--redo")

    assert (
        f"hint: `tower undo {SESSION} && tower undo {SESSION} --redo --force` overwrites them too, and those changes are lost"
        in ended.stderr
    )


@pytest.mark.parametrize(("outcome", "hint"), [("failed", 1), ("cancelled", 2), ("denied", 3)])
@pytest.mark.parametrize("command", [["undo", "last"], ["compact", "last"]], ids=lambda command: command[0])
def test_a_chore_that_does_not_succeed_says_so_and_has_the_run_s_exit_code(
    tower: Any, scripted: ScriptedDaemon, command: list[str], outcome: str, hint: int
) -> None:
    start = scripted.chore(lambda: scripted.completed(outcome, "it could not be done", hint=hint))
    scripted.answers["undo_run"] = scripted.answers["compact_session"] = start

    ended = tower(*command)

    assert (ended.code, ended.stdout) == (hint, b"")
    assert f"= {outcome}: it could not be done" in ended.stderr


def test_nothing_to_undo_is_one_line(tower: Any, scripted: ScriptedDaemon) -> None:
    scripted.answers["undo_run"] = refusing("INVALID_REQUEST", "There is nothing to undo or redo")

    ended = tower("undo", "last")

    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr == "tower: INVALID_REQUEST: There is nothing to undo or redo\n"


def test_compact_takes_instructions_and_prints_what_became_of_the_context(tower: Any, scripted: ScriptedDaemon) -> None:
    scripted.answers["compact_session"] = scripted.chore(
        lambda: scripted.status("Compacting the context", "requested"),
        lambda: scripted.status("Usage", "900 tokens in, 40 out, $0.0031 (anthropic claude)", source="model"),
        lambda: scripted.status("Context compacted", "900 tokens became about 60"),
        scripted.completed,
    )

    ended = tower("compact", "last", "keep the names")

    assert (ended.code, ended.stdout) == (0, b"900 tokens became about 60\n")
    assert ended.stderr == "· Compacting the context: requested\n  900 tokens in, 40 out, $0.0031 (anthropic claude)\n"
    assert scripted.asked("compact_session") == [{"sessionId": SESSION, "instructions": "keep the names"}]


def test_ctrl_c_cancels_a_chore(tower: Any, scripted: ScriptedDaemon, line_with: Any) -> None:
    def cancelled(_: dict[str, Any]) -> dict[str, Any]:
        scripted.completed("cancelled", "The run was cancelled", hint=2)
        return {"accepted": True}

    scripted.answers["cancel_run"] = cancelled
    scripted.answers["compact_session"] = scripted.chore(lambda: scripted.status("Compacting the context", "requested"))
    process = tower.start("compact", "last")
    line_with(process, "Compacting")

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert process.returncode == 2
    assert scripted.asked("cancel_run") == [{"sessionId": SESSION, "runId": "run_1", "reason": "user_cancelled"}]


DIFF = (
    "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n same\n"
    "-old \x1b[31m\n--- was a comment\n+new\n\\ No newline at end of file\n"
)


def test_a_diff_into_a_pipe_is_what_the_daemon_sent_byte_for_byte(tower: Any, scripted: ScriptedDaemon) -> None:
    scripted.answers["diff_session"] = {"diff": DIFF}

    ended = tower("diff", "last", "--run", "run_7")

    assert (ended.code, ended.stdout, ended.stderr) == (0, DIFF.encode(), "")
    assert scripted.asked("diff_session") == [{"sessionId": SESSION, "runId": "run_7"}]


def test_a_diff_on_a_terminal_has_colours_and_cannot_steer_it(tower: Any, scripted: ScriptedDaemon) -> None:
    scripted.answers["diff_session"] = {"diff": DIFF}

    terminal = Terminal(tower, "diff", "last")

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


def test_no_color_leaves_a_diff_plain_on_a_terminal_too(tower: Any, scripted: ScriptedDaemon) -> None:
    scripted.answers["diff_session"] = {"diff": DIFF}

    terminal = Terminal(tower, "diff", "last", NO_COLOR="1")

    assert terminal.end() == 0
    assert "\x1b" not in terminal.shown
    assert "+new" in terminal.shown


def test_no_changes_is_said_and_is_no_failure(tower: Any, scripted: ScriptedDaemon) -> None:
    scripted.answers["diff_session"] = {"diff": ""}

    ended = tower("diff", "last")

    assert (ended.code, ended.stdout, ended.stderr) == (0, b"", "nothing was changed\n")


def test_configure_sends_only_what_was_named(tower: Any, scripted: ScriptedDaemon) -> None:
    scripted.answers["configure_session"] = {"accepted": True}

    ended = tower("configure", "last", "--policy", "auto", "--thinking", "high", "--title", os.fsdecode(b"caf\xe9"))

    assert (ended.code, ended.stdout) == (0, b"")
    assert ended.stderr == "configured: policy=auto, thinking=high, title=caf\ufffd\n"
    assert scripted.asked("configure_session") == [
        {"sessionId": SESSION, "policy": "auto", "thinking": "high", "title": "caf\ufffd"}
    ]


def test_configuring_yolo_is_warned_of_in_one_line(tower: Any, scripted: ScriptedDaemon) -> None:
    scripted.answers["configure_session"] = {"accepted": True}

    ended = tower("configure", "last", "--policy", "yolo")

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
    tower: Any, scripted: ScriptedDaemon, arguments: list[str]
) -> None:
    ended = tower(*arguments)

    assert (ended.code, ended.stdout) == (64, b"")
    assert ended.stderr.count("\n") == 1
    assert "hint: " in ended.stderr
    assert scripted.requests == []


@pytest.mark.parametrize(("flag", "delivery"), [("--steer", "steer"), ("--follow-up", "follow_up")])
def test_a_message_for_a_run_that_is_under_way_is_queued_and_its_id_printed(
    tower: Any, scripted: ScriptedDaemon, flag: str, delivery: str
) -> None:
    scripted.answers["queue_message"] = lambda asked: {"accepted": True, "messageId": asked["clientMessageId"], "runId": None}

    ended = tower("send", "last", "leave the tests alone", flag)

    [asked] = scripted.asked("queue_message")
    assert (ended.code, ended.stdout.decode()) == (0, f"{asked['clientMessageId']}\n")
    assert (asked["text"], asked["delivery"]) == ("leave the tests alone", delivery)
    assert "queued" in ended.stderr


def test_a_message_that_comes_after_the_run_starts_one_and_prints_its_id(tower: Any, scripted: ScriptedDaemon) -> None:
    scripted.answers["queue_message"] = {"accepted": True, "messageId": "msg_1", "runId": "run_2"}

    ended = tower("send", "last", "x", "--steer")

    assert (ended.code, ended.stdout) == (0, b"run_2\n")
    assert "started one" in ended.stderr


@pytest.mark.parametrize("more", [[], ["--wait"]], ids=["send", "send --wait"])
def test_a_refused_message_says_how_to_reach_a_running_session(tower: Any, scripted: ScriptedDaemon, more: list[str]) -> None:
    scripted.answers["send_user_message"] = refusing("RUN_IN_PROGRESS", "A run is already active in this session")

    ended = tower("send", "last", "x", *more)

    assert ended.code == 1
    assert ended.stderr == (
        "tower: RUN_IN_PROGRESS: A run is already active in this session; "
        "hint: join it with `--steer`, or wait for its end with `--follow-up`\n"
    )


def test_every_command_teaches_with_an_example(tower: Any) -> None:
    without = [
        row.name
        for row in COMMANDS
        if f"Example:\n  tower {row.name}" not in tower(row.name, "--help").stdout.decode().replace("    ", "  ")
    ]

    assert without == []


def test_the_choices_are_the_wire_s_own() -> None:
    assert get_args(messages.ThinkingLevel) == arguments.THINKING
    assert set(config.POLICIES) == set(get_args(messages.PolicyProfile))
    assert set(config.SANDBOX_SETTINGS) == set(get_args(messages.SandboxWish))


def test_a_reader_that_leaves_in_the_middle_of_a_large_diff_ends_it_quietly(tower: Any, scripted: ScriptedDaemon) -> None:
    scripted.answers["diff_session"] = {"diff": "+x\n" * 500_000}
    process = tower.start("diff", "last")

    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()

    assert process.wait(timeout=60) == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_request_is_one_line_whatever_is_in_it(tower: Any, scripted: ScriptedDaemon) -> None:
    scripted.answers["compact_session"] = scripted.chore(scripted.completed)
    nasty = 'one\ntwo\u2028three "quoted" \\ \x07'

    assert tower("compact", "last", nasty).code == 0
    assert scripted.asked("compact_session") == [{"sessionId": SESSION, "instructions": nasty}]
