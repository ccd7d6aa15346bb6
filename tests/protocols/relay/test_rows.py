"""Sessions and their history as the HTTP endpoints list them."""

from typing import Any

import msgspec
import pytest
from tests.protocols.relay import samples

from switchtower.core import events
from switchtower.core.ports import journal
from switchtower.protocols.relay import rows

NOON = 1_760_000_000_000
OPEN = journal.ApprovalSummary(title="Proceed?", tool="bash", summary="make test")
APPROVAL_ID = "appr_01K0GD3W7Q8ZJ4X5Y6V7B8N9M0"


def make_card(state: events.SessionState = events.SessionState.RUNNING, **fields: Any) -> journal.Card:
    return journal.Card(
        session_id="sess_1",
        state=state,
        created_at_ms=NOON,
        updated_at_ms=NOON + 1_500,
        workspace=events.Workspace(root="/work"),
        provider="terminal",
        **{"engine": "pty", "title": "codex", "mode": "interactive", "tool": "codex", **fields},
    )


def make_row(card_: journal.Card) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(rows.make_run_row(card_, "host_me")))
    return told


RUNNING, WAITING, DONE, FAILED, CANCELLED = (
    events.SessionState.RUNNING,
    events.SessionState.AWAITING_APPROVAL,
    events.SessionState.COMPLETED,
    events.SessionState.FAILED,
    events.SessionState.CANCELLED,
)


@pytest.mark.parametrize(
    ("card_", "status"),
    [
        (make_card(RUNNING), "running"),
        (make_card(RUNNING, waits=journal.WaitingPrompt("prompt", "Name?")), "awaiting_input"),
        (make_card(WAITING, pending_approval_id=APPROVAL_ID, question=OPEN), "awaiting_approval"),
        (
            make_card(WAITING, pending_approval_id=APPROVAL_ID, waits=journal.WaitingPrompt("permission", "Proceed?")),
            "awaiting_approval",
        ),
        (make_card(RUNNING, host="host_1", host_lost=True), "lost"),
        (make_card(WAITING, host="host_1", host_lost=True, pending_approval_id=APPROVAL_ID), "lost"),
        (make_card(DONE), "exited"),
        (make_card(FAILED), "exited"),
        (make_card(CANCELLED), "exited"),
        (make_card(DONE, host="host_1", host_lost=True), "exited"),
        (make_card(DONE, tool=""), "awaiting_input"),
        (make_card(events.SessionState.IDLE, tool=""), "awaiting_input"),
        (make_card(DONE, tool="", mode="headless"), "exited"),
        (make_card(RUNNING, tool=""), "running"),
    ],
)
def test_a_run_s_status(card_: journal.Card, status: str) -> None:
    assert rows.compute_status(card_) == status
    assert make_row(card_)["status"] == status


def test_a_run_that_runs_is_listed_without_an_end() -> None:
    assert make_row(make_card()) == {
        "id": "sess_1",
        "host_id": "host_me",
        "tool": "codex",
        "cwd": "/work",
        "status": "running",
        "started_at": "2025-10-09T08:53:20.000Z",
        "last_active_at": "2025-10-09T08:53:21.500Z",
        "title": "codex",
        "engine": "pty",
        "provider": "terminal",
    }


@pytest.mark.parametrize(
    ("card_", "exit_code"),
    [
        (make_card(DONE, exit_code=0), 0),
        (make_card(FAILED, exit_code=130), 130),
        (make_card(DONE), 0),
        (make_card(FAILED), 1),
        (make_card(CANCELLED), 2),
        (make_card(CANCELLED, exit_code=143), 143),
    ],
)
def test_a_run_that_has_ended_says_when_and_how(card_: journal.Card, exit_code: int) -> None:
    told = make_row(msgspec.structs.replace(card_, ended_at_ms=NOON + 9))
    assert (told["exit_code"], told["ended_at"]) == (exit_code, "2025-10-09T08:53:20.009Z")


def test_a_question_is_listed_in_short() -> None:
    told = make_row(
        make_card(WAITING, pending_approval_id="appr_r.k3j9x", question=OPEN, waits=journal.WaitingPrompt("permission", "other"))
    )
    assert {name: value for name, value in told.items() if name.startswith("pending")} == {
        "pending_request_id": "k3j9x",
        "pending_reason": "permission",
        "pending_prompt": "Proceed?",
        "pending_op_tool": "bash",
        "pending_op_args_summary": "make test",
    }


def test_what_a_program_waits_for_is_listed_without_a_question() -> None:
    told = make_row(make_card(waits=journal.WaitingPrompt("choice", "Which?")))
    assert (told["pending_reason"], told["pending_prompt"]) == ("choice", "Which?")
    assert "pending_request_id" not in told


def test_a_run_elsewhere_has_its_host_and_its_own_name() -> None:
    told = make_row(msgspec.structs.replace(make_card(host="host_1"), session_id="sess_r.run-7"))
    assert (told["id"], told["host_id"]) == ("run-7", "host_1")


# History


def make_history(happened: list[events.AnyEvent], *, include_output: bool = True, about: Any = samples.AGENT) -> list[Any]:
    entries = [samples.make_entry(samples.RUN, event, seq) for seq, event in enumerate(happened, start=1)]
    return rows.make_history(about, entries, include_output=include_output)


def test_a_message_has_its_place_its_number_and_what_it_says() -> None:
    by = events.Actor(name="ada", via="web")
    (typed, asked) = make_history(
        [
            events.TerminalTyped("in-1", "ls\n", "0" * 64, by),
            events.ApprovalRequested(approval=msgspec.structs.replace(_make_approval(), title="Proceed?")),
        ],
        about=samples.TERMINAL,
    )
    assert (typed.id, typed.seq, typed.role, typed.kind, typed.actor, typed.text) == (1, 1, "user", "run.input", "web", "ls\n")
    assert typed.request_id is None
    assert (asked.role, asked.kind, asked.request_id, asked.text) == ("system", "run.permission_requested", "k3j9x", "Proceed?")
    assert msgspec.json.decode(typed.data)["input_id"] == "in-1"


def _make_approval() -> events.Approval:
    return events.Approval("appr_r.k3j9x", "call_1", "exec", "", "", {}, 1, "")


def test_what_an_agent_says_in_pieces_is_one_message() -> None:
    happened: list[events.AnyEvent] = [
        events.RunStarted(text="hello", by=events.SYSTEM),
        events.TextDelta("Hi "),
        events.PhaseChanged(phase="Thinking"),
        events.TextDelta("there"),
        events.ToolCalled(call_id="c", tool="run", args={}),
        events.TextDelta("Done"),
    ]
    assert [(message.kind, message.text, message.id) for message in make_history(happened)] == [
        ("run.input", "hello", 1),
        ("run.output", "Hi there", 2),
        ("tool.call", "run", 5),
        ("run.output", "Done", 6),
    ]
    assert msgspec.json.decode(make_history(happened)[1].data) == {"stream": "stdout", "text": "Hi there"}


def test_a_long_speech_is_several_messages_and_loses_nothing() -> None:
    told = make_history([events.TextDelta("word " * 100) for _ in range(200)])
    assert 1 < len(told) < 20
    assert "".join(message.text for message in told) == "word " * 20_000


def test_a_program_s_output_is_told_piece_by_piece_or_not_at_all() -> None:
    happened: list[events.AnyEvent] = [
        events.ToolProgressed("c", "a"),
        events.ToolProgressed("c", "b"),
        events.PromptShown("prompt", "Name?"),
    ]
    assert [message.text for message in make_history(happened)] == ["a", "b", "Name?"]
    assert [message.text for message in make_history(happened, include_output=False)] == ["Name?"]


def test_an_exit_is_told_in_words() -> None:
    ended = events.RunCompleted(outcome=events.Outcome.FAILED, summary="", exit_code_hint=1, exit_code=3)
    assert make_history([ended], about=samples.TERMINAL)[0].text == "exit code 3"


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        ("run.output", {"text": 7}),
        ("run.input", {"text_redacted": None, "actor": 5, "request_id": ["x"]}),
        ('run."odd', {"a": 1}),
        ("run.exited", {"unreadable": "x"}),
    ],
)
def test_whatever_a_host_said_can_be_listed(type_: str, data: dict[str, Any]) -> None:
    said = events.HostEventReceived(type=type_, data=data, relayed=events.Relayed(9, NOON))
    (message,) = make_history([said], about=samples.MIRRORED)
    assert (message.kind, message.seq, message.id) == (type_, 9, 1)
    assert isinstance(message.text, str)
    assert message.actor is None
    assert message.request_id is None


def test_a_row_says_what_models_took_and_which_criteria_were_met() -> None:
    spent = journal.UsageSummary(1_200, 34, None, 900, 20_000)
    listed = make_row(
        make_card(
            DONE, tool="", engine="agent", policy="ask", preset="review", spent=spent, accepted={"tests": True, "lint": False}
        )
    )
    assert listed["usage"] == {
        "input_tokens": 1_200,
        "output_tokens": 34,
        "cost": None,
        "context_used": 900,
        "context_window": 20_000,
    }
    assert listed["acceptance"] == [{"id": "tests", "passed": True}, {"id": "lint", "passed": False}]
    assert (listed["policy"], listed["preset"]) == ("ask", "review")
