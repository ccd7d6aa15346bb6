"""A run that a restart cut short goes on where it was, and does nothing twice."""

from pathlib import Path

import pytest
from tests.engines.parts import APPROVE, MakeAgent, MakeDesk, MakeTask, ScriptedModel

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.models import port


def make_user_message(text: str) -> engine.Message:
    return engine.Message(role="user", text=text)


def make_assistant_message(*calls: events.ToolRequest, text: str = "") -> engine.Message:
    return engine.Message(role="assistant", text=text, calls=calls)


def make_tool_result(call: events.ToolRequest, text: str) -> engine.Message:
    return engine.Message(role="tool", text=text, call_id=call.call_id, tool=call.tool)


def make_approval(call: events.ToolRequest) -> events.Approval:
    return events.Approval(
        id="appr_1", call_id=call.call_id, kind="exec", title="", summary="", details={}, expires_at_ms=0, fingerprint=""
    )


TOUCH = events.ToolRequest(call_id="call_a", tool="run", args={"command": "touch ran"})
READ = events.ToolRequest(call_id="call_b", tool="read_file", args={"path": "b.txt"})


async def test_a_call_that_was_not_yet_announced_is_run_in_the_usual_way(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    desk = make_run_context(APPROVE)
    task = make_task((make_user_message("run: touch ran"), make_assistant_message(TOUCH)), open_calls=(TOUCH,))

    result = await agent().run(task, desk)

    assert desk.outline == ["ToolCalled", "ApprovalQuestion", "flush", "ToolFinished", "MessageCompleted"]
    assert (tmp_path / "ran").exists()
    assert result.outcome is events.Outcome.SUCCESS


async def test_a_call_that_was_under_way_is_not_run_again(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    (tmp_path / "b.txt").write_text("b")
    desk = make_run_context(APPROVE)
    task = make_task(
        (make_user_message("run: touch ran\nread b.txt"), make_assistant_message(TOUCH, READ)),
        open_calls=(TOUCH, READ),
        called=frozenset({TOUCH.call_id}),
    )

    result = await agent().run(task, desk)

    interrupted, read = desk.list_events(events.ToolFinished)
    assert (interrupted.call_id, interrupted.is_error) == (TOUCH.call_id, True)
    assert "unknown" in interrupted.text
    assert read.text == "b"
    assert [called.call_id for called in desk.list_events(events.ToolCalled)] == [READ.call_id]
    assert desk.questions == []
    assert not (tmp_path / "ran").exists()
    assert result.outcome is events.Outcome.SUCCESS


async def test_a_call_that_waited_for_its_approval_asks_the_same_again_and_runs_once(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    request = make_user_message("run: touch ran")
    before = make_run_context(engine.ApprovalAnswer(events.Verdict.DENY_STOP))
    await agent().run(make_task((request, make_assistant_message(TOUCH)), open_calls=(TOUCH,)), before)
    after = make_run_context(APPROVE)
    task = make_task(
        (request, make_assistant_message(TOUCH)),
        open_calls=(TOUCH,),
        called=frozenset({TOUCH.call_id}),
        pending_approval=make_approval(TOUCH),
    )

    result = await agent().run(task, after)

    assert after.questions == before.questions
    assert after.outline == ["ApprovalQuestion", "flush", "ToolFinished", "MessageCompleted"]
    assert (tmp_path / "ran").exists()
    assert result.outcome is events.Outcome.SUCCESS


async def test_an_approval_pending_for_one_call_frees_no_other(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    other = events.ToolRequest(call_id="call_c", tool="run", args={"command": "touch other"})
    desk = make_run_context(APPROVE)
    task = make_task(
        (make_user_message("go"), make_assistant_message(other, TOUCH)),
        open_calls=(other, TOUCH),
        called=frozenset({other.call_id, TOUCH.call_id}),
        pending_approval=make_approval(TOUCH),
    )

    await agent().run(task, desk)

    assert [path.name for path in tmp_path.iterdir()] == ["ran"]
    assert [question.call_id for question in desk.questions] == [TOUCH.call_id]


async def test_a_run_cut_short_between_steps_goes_on_with_the_next(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    (tmp_path / "b.txt").write_text("b")
    desk = make_run_context()
    task = make_task(
        (make_user_message("run: touch ran\nread b.txt"), make_assistant_message(TOUCH), make_tool_result(TOUCH, "[exit code 0]"))
    )

    await agent().run(task, desk)

    assert [called.tool for called in desk.list_events(events.ToolCalled)] == ["read_file"]


async def test_a_run_that_had_said_its_last_word_is_a_success_without_another_turn(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    desk = make_run_context()

    result = await agent().run(make_task((make_user_message("say: hi"), make_assistant_message(text="hi"))), desk)

    assert result == engine.RunResult(events.Outcome.SUCCESS, "hi")
    assert desk.log == []


async def test_turns_before_the_restart_count(make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent) -> None:
    task = make_task(
        (
            make_user_message("run: touch ran\nread b.txt"),
            make_assistant_message(TOUCH),
            make_tool_result(TOUCH, "[exit code 0]"),
        ),
        turns_taken=1,
        budget=events.Budget(max_turns=1),
    )

    result = await agent().run(task, make_run_context())

    assert result.outcome is events.Outcome.FAILED
    assert "1 turns" in result.summary


async def test_calls_that_an_earlier_run_left_open_are_answered_before_the_model_sees_them(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel([port.TextPart("nothing")])
    desk = make_run_context()
    task = make_task(
        (
            make_user_message("run: touch ran"),
            make_assistant_message(TOUCH, READ),
            make_tool_result(READ, "b"),
            make_user_message("and now?"),
        )
    )

    await agent(model).run(task, desk)

    [seen] = model.conversations
    assert [(message.role, message.call_id) for message in seen] == [
        ("user", None),
        ("assistant", None),
        ("tool", TOUCH.call_id),
        ("tool", READ.call_id),
        ("user", None),
    ]
    assert seen[2].is_error
    assert desk.list_events(events.ToolFinished) == []


@pytest.mark.parametrize("verdict", [events.Verdict.DENY_STOP, None])
async def test_a_stop_leaves_the_later_calls_of_the_message_alone(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, verdict: events.Verdict | None
) -> None:
    desk = make_run_context(engine.ApprovalAnswer(verdict))

    await agent().run(make_task((make_user_message("go"), make_assistant_message(TOUCH, READ)), open_calls=(TOUCH, READ)), desk)

    assert [called.call_id for called in desk.list_events(events.ToolCalled)] == [TOUCH.call_id]
