"""The question at the terminal, and `tower approve --always`: which answers mean what, and what is never taken for one."""

from typing import Any

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.scripted import RUN, SESSION, ScriptedDaemon, make_approval_request
from tests.cli.terminal import TerminalDriver

from switchtower.cli.terminal import approval_prompt
from switchtower.cli.terminal.approval_prompt import TerminalDecision

RULE = "allow run: make test"


@pytest.mark.parametrize(
    ("answer", "meant"),
    [
        ("y\n", TerminalDecision("approve")),
        (" YES \n", TerminalDecision("approve")),
        ("a\n", TerminalDecision("approve", scope="session")),
        ("always\n", TerminalDecision("approve", scope="session")),
        ("n\n", TerminalDecision("deny", comment=approval_prompt.DENIAL_COMMENT)),
        ("no\n", TerminalDecision("deny", comment=approval_prompt.DENIAL_COMMENT)),
        ("n  write it to docs/ \n", TerminalDecision("deny", comment="write it to docs/")),
        ("d\n", TerminalDecision("deny", stop=True)),
        ("deny\n", TerminalDecision("deny", stop=True)),
        ("\n", TerminalDecision("deny", stop=True)),
        ("", TerminalDecision("deny", stop=True)),
    ],
)
def test_an_answer_and_what_it_means(answer: str, meant: TerminalDecision) -> None:
    assert approval_prompt.parse_approval_answer(answer, may_be_always=True) == meant


@pytest.mark.parametrize("answer", ["ye\n", "y but carefully\n", "always yes\n", "d it\n", "maybe\n", "yy\n", "\x1b[A\n", "1\n"])
def test_what_is_no_answer_means_nothing(answer: str) -> None:
    assert approval_prompt.parse_approval_answer(answer, may_be_always=True) is None


@pytest.mark.parametrize("answer", ["a\n", "always\n"])
def test_always_means_nothing_where_each_time_is_asked_anew(answer: str) -> None:
    assert approval_prompt.parse_approval_answer(answer, may_be_always=False) is None


@pytest.fixture
def asking_daemon(scripted_daemon: ScriptedDaemon) -> ScriptedDaemon:
    """A daemon whose run asks at once, and ends when it was answered."""

    def decided(payload: dict[str, Any]) -> dict[str, Any]:
        scripted_daemon.add_event("approval_received", {"approvalId": "appr_1", "decision": payload["decision"], "by": "cli"})
        scripted_daemon.add_completion()
        return {"accepted": True}

    scripted_daemon.answers |= {
        "start_session": {"sessionId": SESSION, "state": "idle", "attachToken": "att_1"},
        "send_user_message": lambda _: {"runId": RUN, "accepted": True},
        "submit_approval": decided,
    }
    scripted_daemon.capabilities.remove("session_info")
    return scripted_daemon


def run(tower: TowerCommand, asking: ScriptedDaemon, **details: Any) -> TerminalDriver:
    asking.add_event("approval_required", make_approval_request(**details))
    return TerminalDriver(tower, "run", "--provider", "demo", "x", NO_COLOR="1")


def get_submitted(asking: ScriptedDaemon) -> dict[str, Any]:
    [payload] = asking.list_requests("submit_approval")
    assert payload.pop("sessionId") == SESSION
    assert (payload.pop("runId"), payload.pop("approvalId")) == (RUN, "appr_1")
    return payload


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        ("y", {"decision": "approve"}),
        ("a", {"decision": "approve", "scope": "session"}),
        ("n", {"decision": "deny", "comment": approval_prompt.DENIAL_COMMENT}),
        ("n use make check", {"decision": "deny", "comment": "use make check"}),
        ("d", {"decision": "deny", "stop": True}),
        ("", {"decision": "deny", "stop": True}),
    ],
)
def test_the_answer_at_the_terminal_is_the_decision(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon, answer: str, sent: dict[str, Any]
) -> None:
    terminal = run(tower_command, asking_daemon, command="make test", always=RULE)
    terminal.wait_for("approve? [y/a/n/D] ")
    assert f"a always for this session: {RULE}" in terminal.shown

    terminal.type(answer)

    assert terminal.end() == 0
    assert get_submitted(asking_daemon) == sent
    assert (f"from now on in this session: {RULE}" in terminal.shown) is (answer == "a")


def test_a_rule_that_was_made_is_told_although_the_run_ended_before_the_answer_came(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon
) -> None:
    async def decided(payload: dict[str, Any]) -> dict[str, Any]:
        asking_daemon.add_event("approval_received", {"approvalId": "appr_1", "decision": payload["decision"], "by": "cli"})
        asking_daemon.unwatched.clear()
        asking_daemon.add_completion()
        await asking_daemon.unwatched.wait()
        return {"accepted": True}

    asking_daemon.answers["submit_approval"] = decided
    terminal = run(tower_command, asking_daemon, command="make test", always=RULE)
    terminal.wait_for("approve? [y/a/n/D] ")

    terminal.type("a")

    assert terminal.end() == 0
    assert f"from now on in this session: {RULE}" in terminal.shown


def test_always_is_not_offered_where_each_time_is_asked_anew(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    terminal = run(tower_command, asking_daemon, command="rm -r build", destructive=True)
    terminal.wait_for("approve? [y/n/D] ")
    assert "DESTRUCTIVE" in terminal.shown
    assert "always" not in terminal.shown

    terminal.type("a")
    terminal.wait_for("approve? [y/n/D] ", times=2)
    terminal.type("y")

    assert terminal.end() == 0
    assert get_submitted(asking_daemon) == {"decision": "approve"}


def test_the_end_of_the_terminal_s_input_denies(tower_command: TowerCommand, asking_daemon: ScriptedDaemon) -> None:
    terminal = run(tower_command, asking_daemon, command="make test", always=RULE)
    terminal.wait_for("approve? [y/a/n/D] ")

    terminal.press(b"\x04")

    assert terminal.end() == 0
    assert get_submitted(asking_daemon) == {"decision": "deny", "stop": True}


def test_what_was_typed_before_the_question_is_no_answer_to_it(
    tower_command: TowerCommand, asking_daemon: ScriptedDaemon
) -> None:
    asking_daemon.add_status("Thinking")
    terminal = TerminalDriver(tower_command, "run", "--provider", "demo", "x", NO_COLOR="1")
    terminal.wait_for("Thinking")
    terminal.type("y")
    terminal.wait_for("y\r\n")  # the terminal has it

    asking_daemon.send_event("approval_required", make_approval_request(command="rm -r build"))
    terminal.wait_for("approve? [y/n/D] ")
    terminal.type("d")

    assert terminal.end() == 0
    assert get_submitted(asking_daemon) == {"decision": "deny", "stop": True}


@pytest.fixture
def waiting_daemon(scripted_daemon: ScriptedDaemon) -> ScriptedDaemon:
    scripted_daemon.state = "awaiting_approval"
    return scripted_daemon


def test_approve_always_sends_the_scope_and_prints_the_rule(tower_command: TowerCommand, waiting_daemon: ScriptedDaemon) -> None:
    waiting_daemon.pending = make_approval_request(command="make test", always=RULE)

    ended = tower_command("approve", "appr_1", "--always")

    assert (ended.code, ended.stdout) == (0, b"")
    assert ended.stderr == f"approved: make test ({SESSION})\nallowed for the rest of this session: {RULE}\n"
    assert get_submitted(waiting_daemon) == {"decision": "approve", "scope": "session"}


def test_approve_once_makes_no_rule(tower_command: TowerCommand, waiting_daemon: ScriptedDaemon) -> None:
    waiting_daemon.pending = make_approval_request(command="make test", always=RULE)

    shown = tower_command("approve").stderr
    assert "command: make test" in shown
    assert shown.endswith(f"approved: make test ({SESSION})\n")
    assert get_submitted(waiting_daemon) == {"decision": "approve"}


@pytest.mark.parametrize(("answer", "approves"), [("y", True), ("", False), ("n", False), ("yess", False)])
def test_approve_without_an_id_shows_the_action_and_waits_for_a_yes_at_a_terminal(
    tower_command: TowerCommand, waiting_daemon: ScriptedDaemon, answer: str, approves: bool
) -> None:
    waiting_daemon.pending = make_approval_request(command="make test")
    terminal = TerminalDriver(tower_command, "approve", "last", NO_COLOR="1")
    terminal.wait_for("Approve this? [y/N] ")
    assert "command: make test" in terminal.shown
    assert waiting_daemon.list_requests("submit_approval") == []
    terminal.type(answer)
    assert terminal.end() == (0 if approves else 1)
    assert bool(waiting_daemon.list_requests("submit_approval")) is approves


def test_approve_always_where_there_is_no_always_decides_nothing(
    tower_command: TowerCommand, waiting_daemon: ScriptedDaemon
) -> None:
    waiting_daemon.pending = make_approval_request(command="rm -r build", destructive=True)

    ended = tower_command("approve", "last", "--always")

    assert ended.code == 1
    assert ended.stderr == "tower: this is asked about every time: make test; hint: approve it without `--always`\n"
    assert waiting_daemon.list_requests("submit_approval") == []


def test_deny_stops_where_that_is_said(tower_command: TowerCommand, waiting_daemon: ScriptedDaemon) -> None:
    waiting_daemon.pending = make_approval_request(command="make test")

    assert tower_command("deny", "--stop").code == 0
    assert get_submitted(waiting_daemon) == {"decision": "deny", "stop": True}


@pytest.mark.parametrize("comment", [["--comment", "use docs/"], []])
def test_deny_takes_its_comment_along(tower_command: TowerCommand, waiting_daemon: ScriptedDaemon, comment: list[str]) -> None:
    waiting_daemon.pending = make_approval_request(command="make test")

    assert tower_command("deny", *comment).code == 0
    assert get_submitted(waiting_daemon) == {"decision": "deny", **({"comment": "use docs/"} if comment else {})}
