"""The question at the terminal, and `tower approve --always`: which answers mean what, and what is never taken for one."""

from typing import Any

import pytest
from tests.cli.scripted import RUN, SESSION, ScriptedDaemon, question
from tests.cli.terminal import Terminal

from switchtower.cli import prompt
from switchtower.cli.prompt import Decision

RULE = "allow run: make test"


@pytest.mark.parametrize(
    ("answer", "meant"),
    [
        ("y\n", Decision("approve")),
        (" YES \n", Decision("approve")),
        ("a\n", Decision("approve", scope="session")),
        ("always\n", Decision("approve", scope="session")),
        ("n\n", Decision("deny", comment=prompt.NO)),
        ("no\n", Decision("deny", comment=prompt.NO)),
        ("n  write it to docs/ \n", Decision("deny", comment="write it to docs/")),
        ("d\n", Decision("deny", stop=True)),
        ("deny\n", Decision("deny", stop=True)),
        ("\n", Decision("deny", stop=True)),
        ("", Decision("deny", stop=True)),
    ],
)
def test_an_answer_and_what_it_means(answer: str, meant: Decision) -> None:
    assert prompt.read(answer, may_be_always=True) == meant


@pytest.mark.parametrize("answer", ["ye\n", "y but carefully\n", "always yes\n", "d it\n", "maybe\n", "yy\n", "\x1b[A\n", "1\n"])
def test_what_is_no_answer_means_nothing(answer: str) -> None:
    assert prompt.read(answer, may_be_always=True) is None


@pytest.mark.parametrize("answer", ["a\n", "always\n"])
def test_always_means_nothing_where_each_time_is_asked_anew(answer: str) -> None:
    assert prompt.read(answer, may_be_always=False) is None


@pytest.fixture
def asking(scripted: ScriptedDaemon) -> ScriptedDaemon:
    """A daemon whose run asks at once, and ends when it was answered."""

    def decided(payload: dict[str, Any]) -> dict[str, Any]:
        scripted.happened("approval_received", {"approvalId": "appr_1", "decision": payload["decision"], "by": "cli"})
        scripted.completed()
        return {"accepted": True}

    scripted.answers |= {
        "start_session": {"sessionId": SESSION, "state": "idle", "attachToken": "att_1"},
        "send_user_message": lambda _: {"runId": RUN, "accepted": True},
        "submit_approval": decided,
    }
    scripted.capabilities.remove("session_info")
    return scripted


def run(tower: Any, asking: ScriptedDaemon, **details: Any) -> Terminal:
    asking.happened("approval_required", question(**details))
    return Terminal(tower, "run", "--provider", "demo", "x", NO_COLOR="1")


def submitted(asking: ScriptedDaemon) -> dict[str, Any]:
    [payload] = asking.asked("submit_approval")
    assert payload.pop("sessionId") == SESSION
    assert (payload.pop("runId"), payload.pop("approvalId")) == (RUN, "appr_1")
    return payload


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        ("y", {"decision": "approve"}),
        ("a", {"decision": "approve", "scope": "session"}),
        ("n", {"decision": "deny", "comment": prompt.NO}),
        ("n use make check", {"decision": "deny", "comment": "use make check"}),
        ("d", {"decision": "deny", "stop": True}),
        ("", {"decision": "deny", "stop": True}),
    ],
)
def test_the_answer_at_the_terminal_is_the_decision(
    tower: Any, asking: ScriptedDaemon, answer: str, sent: dict[str, Any]
) -> None:
    terminal = run(tower, asking, command="make test", always=RULE)
    terminal.until("approve? [y/a/n/D] ")
    assert f"a always for this session: {RULE}" in terminal.shown

    terminal.type(answer)

    assert terminal.end() == 0
    assert submitted(asking) == sent
    assert (f"from now on in this session: {RULE}" in terminal.shown) is (answer == "a")


def test_a_rule_that_was_made_is_told_although_the_run_ended_before_the_answer_came(tower: Any, asking: ScriptedDaemon) -> None:
    async def decided(payload: dict[str, Any]) -> dict[str, Any]:
        asking.happened("approval_received", {"approvalId": "appr_1", "decision": payload["decision"], "by": "cli"})
        asking.unwatched.clear()
        asking.completed()
        await asking.unwatched.wait()
        return {"accepted": True}

    asking.answers["submit_approval"] = decided
    terminal = run(tower, asking, command="make test", always=RULE)
    terminal.until("approve? [y/a/n/D] ")

    terminal.type("a")

    assert terminal.end() == 0
    assert f"from now on in this session: {RULE}" in terminal.shown


def test_always_is_not_offered_where_each_time_is_asked_anew(tower: Any, asking: ScriptedDaemon) -> None:
    terminal = run(tower, asking, command="rm -r build", destructive=True)
    terminal.until("approve? [y/n/D] ")
    assert "DESTRUCTIVE" in terminal.shown
    assert "always" not in terminal.shown

    terminal.type("a")
    terminal.until("approve? [y/n/D] ", times=2)
    terminal.type("y")

    assert terminal.end() == 0
    assert submitted(asking) == {"decision": "approve"}


def test_the_end_of_the_terminal_s_input_denies(tower: Any, asking: ScriptedDaemon) -> None:
    terminal = run(tower, asking, command="make test", always=RULE)
    terminal.until("approve? [y/a/n/D] ")

    terminal.press(b"\x04")

    assert terminal.end() == 0
    assert submitted(asking) == {"decision": "deny", "stop": True}


def test_what_was_typed_before_the_question_is_no_answer_to_it(tower: Any, asking: ScriptedDaemon) -> None:
    asking.status("Thinking")
    terminal = Terminal(tower, "run", "--provider", "demo", "x", NO_COLOR="1")
    terminal.until("Thinking")
    terminal.type("y")
    terminal.until("y\r\n")  # the terminal has it

    asking.happens_now("approval_required", question(command="rm -r build"))
    terminal.until("approve? [y/n/D] ")
    terminal.type("d")

    assert terminal.end() == 0
    assert submitted(asking) == {"decision": "deny", "stop": True}


@pytest.fixture
def waiting(scripted: ScriptedDaemon) -> ScriptedDaemon:
    scripted.state = "awaiting_approval"
    return scripted


def test_approve_always_sends_the_scope_and_prints_the_rule(tower: Any, waiting: ScriptedDaemon) -> None:
    waiting.pending = question(command="make test", always=RULE)

    ended = tower("approve", "appr_1", "--always")

    assert (ended.code, ended.stdout) == (0, b"")
    assert ended.stderr == f"approved: make test ({SESSION})\nallowed for the rest of this session: {RULE}\n"
    assert submitted(waiting) == {"decision": "approve", "scope": "session"}


def test_approve_once_makes_no_rule(tower: Any, waiting: ScriptedDaemon) -> None:
    waiting.pending = question(command="make test", always=RULE)

    shown = tower("approve").stderr
    assert "command: make test" in shown
    assert shown.endswith(f"approved: make test ({SESSION})\n")
    assert submitted(waiting) == {"decision": "approve"}


@pytest.mark.parametrize(("answer", "approves"), [("y", True), ("", False), ("n", False), ("yess", False)])
def test_approve_without_an_id_shows_the_action_and_waits_for_a_yes_at_a_terminal(
    tower: Any, waiting: ScriptedDaemon, answer: str, approves: bool
) -> None:
    waiting.pending = question(command="make test")
    terminal = Terminal(tower, "approve", "last", NO_COLOR="1")
    terminal.until("Approve this? [y/N] ")
    assert "command: make test" in terminal.shown
    assert waiting.asked("submit_approval") == []
    terminal.type(answer)
    assert terminal.end() == (0 if approves else 1)
    assert bool(waiting.asked("submit_approval")) is approves


def test_approve_always_where_there_is_no_always_decides_nothing(tower: Any, waiting: ScriptedDaemon) -> None:
    waiting.pending = question(command="rm -r build", destructive=True)

    ended = tower("approve", "last", "--always")

    assert ended.code == 1
    assert ended.stderr == "tower: this is asked about every time: make test; hint: approve it without `--always`\n"
    assert waiting.asked("submit_approval") == []


def test_deny_stops_where_that_is_said(tower: Any, waiting: ScriptedDaemon) -> None:
    waiting.pending = question(command="make test")

    assert tower("deny", "--stop").code == 0
    assert submitted(waiting) == {"decision": "deny", "stop": True}


@pytest.mark.parametrize("comment", [["--comment", "use docs/"], []])
def test_deny_takes_its_comment_along(tower: Any, waiting: ScriptedDaemon, comment: list[str]) -> None:
    waiting.pending = question(command="make test")

    assert tower("deny", *comment).code == 0
    assert submitted(waiting) == {"decision": "deny", **({"comment": "use docs/"} if comment else {})}
