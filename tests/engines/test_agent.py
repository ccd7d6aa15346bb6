"""The agent with the demo model, real tools and a recording desk."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.engines.parts import APPROVE, EXPIRED, MakeAgent, MakeDesk, MakeTask, ScriptedModel

from switchtower.core import errors, events
from switchtower.core.ports import engine
from switchtower.models import demo, port
from switchtower.tools.processes import orphans


async def test_a_plain_answer_is_streamed_and_completed(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    desk = make_run_context()

    result = await agent().run(make_task("say: hello big world"), desk)

    assert result == engine.RunResult(events.Outcome.SUCCESS, "hello big world")
    assert [delta.text for delta in desk.list_events(events.TextDelta)] == ["hello ", "big ", "world"]
    [completed] = desk.list_events(events.MessageCompleted)
    assert completed.text == "hello big world"
    assert completed.thinking == "".join(delta.text for delta in desk.list_events(events.ThinkingDelta)) != ""
    assert desk.outline == ["MessageCompleted"]


async def test_a_read_runs_unasked_and_its_announcement_is_on_disk_first(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    (tmp_path / "README.md").write_text("first line\nsecond\n")
    desk = make_run_context()

    result = await agent().run(make_task("read README.md"), desk)

    assert desk.outline == ["MessageCompleted", "ToolCalled", "flush", "ToolFinished", "MessageCompleted"]
    [request] = desk.list_events(events.MessageCompleted)[0].calls
    [called], [finished] = desk.list_events(events.ToolCalled), desk.list_events(events.ToolFinished)
    assert called == events.ToolCalled(call_id=request.call_id, tool="read_file", args={"path": "README.md"})
    assert (finished.call_id, finished.text, finished.is_error) == (request.call_id, "first line\nsecond\n", False)
    assert result.outcome is events.Outcome.SUCCESS
    assert "2 lines; the first is: first line" in result.summary


async def test_a_write_waits_for_its_approval(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    desk = make_run_context(APPROVE)

    result = await agent().run(make_task("write notes.txt: hello"), desk)

    assert desk.outline == ["MessageCompleted", "ToolCalled", "ApprovalQuestion", "flush", "ToolFinished", "MessageCompleted"]
    [question], [called] = desk.questions, desk.list_events(events.ToolCalled)
    assert (question.call_id, question.kind, question.title) == (called.call_id, "write", "Write a file")
    assert question.summary == "notes.txt (5 bytes)"
    assert question.details["path"] == "notes.txt"
    assert "+hello" in str(question.details["diff"])
    assert question.rule == events.Rule("allow", tool="write_file", path="notes.txt")
    subject = json.loads(question.subject)
    assert subject["args"] == {"path": "notes.txt", "content": "hello"}
    assert subject["workspace"] == str(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "hello"
    assert result.outcome is events.Outcome.SUCCESS


async def test_nothing_happens_while_a_question_is_open(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    desk = make_run_context()
    running = asyncio.create_task(agent().run(make_task("run: touch ran"), desk))

    await desk.wait_until(lambda desk: desk.questions)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert not (tmp_path / "ran").exists()
    assert desk.outline[-1] == "ApprovalQuestion", "a cancelled run says nothing more"


async def test_a_question_about_a_command_shows_all_of_it(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    desk = make_run_context(APPROVE)

    await agent().run(make_task("run: echo one && exit 3"), desk)

    [question], [finished] = desk.questions, desk.list_events(events.ToolFinished)
    assert (question.kind, question.title, question.summary) == ("exec", "Run a command", "echo one && exit 3")
    assert question.details["command"] == "echo one && exit 3"
    assert question.details["cwd"] == str(tmp_path)
    assert json.loads(question.subject)["args"] == {"command": "echo one && exit 3"}
    assert finished.text == "one\n[exit code 3]"
    assert finished.error == events.ToolError("EXEC_NON_ZERO_EXIT", "the command ended with exit code 3")


async def test_a_denial_with_continue_tells_the_model_and_goes_on(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    (tmp_path / "b.txt").write_text("b")
    desk = make_run_context(engine.ApprovalAnswer(events.Verdict.DENY_CONTINUE, "use another name"))

    result = await agent().run(make_task("write a.txt: x\nread b.txt"), desk)

    denied, read = desk.list_events(events.ToolFinished)
    assert (denied.text, denied.is_error) == ("denied: use another name", True)
    assert (read.text, read.is_error) == ("b", False)
    assert not (tmp_path / "a.txt").exists()
    assert result.outcome is events.Outcome.SUCCESS
    assert any("use another name" in message.text for message in desk.list_events(events.MessageCompleted))


@pytest.mark.parametrize(
    ("headless", "answer"),
    [
        (False, engine.ApprovalAnswer(events.Verdict.DENY_STOP)),
        (True, engine.ApprovalAnswer(events.Verdict.DENY_STOP)),
        (True, engine.ApprovalAnswer(events.Verdict.DENY_CONTINUE, "go on without")),
    ],
)
async def test_a_denial_that_stops_ends_the_run_as_denied(
    make_task: MakeTask,
    make_run_context: MakeDesk,
    agent: MakeAgent,
    tmp_path: Path,
    headless: bool,
    answer: engine.ApprovalAnswer,
) -> None:
    desk = make_run_context(answer)

    result = await agent().run(make_task("run: touch ran\nrun: touch ran_too", headless=headless), desk)

    assert result.outcome is events.Outcome.DENIED
    assert "touch ran" in result.summary
    [finished] = desk.list_events(events.ToolFinished)
    assert finished.is_error
    assert finished.text.startswith("denied")
    assert desk.outline[-1] == "ToolFinished"
    assert list(tmp_path.iterdir()) == []


async def test_an_expired_question_fails_the_run_and_is_no_denial(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    desk = make_run_context(EXPIRED)

    result = await agent().run(make_task("run: touch ran"), desk)

    assert result.outcome is events.Outcome.FAILED
    assert "expired" in result.summary
    [finished] = desk.list_events(events.ToolFinished)
    assert finished.is_error
    assert "expired" in finished.text
    assert "denied" not in finished.text + result.summary
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "type"),
    [
        (port.ToolCallPart("read_file", {"path": ".env"}), "EDIT_GUARD_BLOCKED"),
        (port.ToolCallPart("write_file", {"path": "../x", "content": ""}), "EDIT_GUARD_BLOCKED"),
        (port.ToolCallPart("write_file", {"path": "x"}), "UNKNOWN"),
        (port.ToolCallPart("run", {"command": 7}), "UNKNOWN"),
        (port.ToolCallPart("launch", {}), "UNKNOWN"),
    ],
)
async def test_a_call_that_cannot_succeed_is_answered_without_asking_anybody(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, call: port.ToolCallPart, type: str
) -> None:
    desk = make_run_context()

    result = await agent(ScriptedModel([call], [port.TextPart("well")])).run(make_task("go"), desk)

    assert desk.outline == ["MessageCompleted", "ToolCalled", "ToolFinished", "MessageCompleted"]
    [finished] = desk.list_events(events.ToolFinished)
    assert finished.error is not None
    assert finished.error.type == type
    assert result == engine.RunResult(events.Outcome.SUCCESS, "well")


async def test_several_calls_of_one_message_run_in_order_and_all_results_reach_the_model(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("A")
    (tmp_path / "b").write_text("B")
    calls = [port.ToolCallPart("read_file", {"path": name}) for name in "ab"]
    model = ScriptedModel([*calls, port.UsagePart(input_tokens=1, output_tokens=2)], [port.TextPart("done")])
    desk = make_run_context()

    await agent(model).run(make_task("go"), desk)

    _, assistant, first, second = model.conversations[1]
    assert [call.call_id for call in assistant.calls] == [first.call_id, second.call_id]
    assert (first.text, second.text) == ("A", "B")
    assert len({call.call_id for call in assistant.calls}) == 2


async def test_a_model_that_never_ends_is_stopped(make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent) -> None:
    model = ScriptedModel(*[[port.ToolCallPart("list_dir", {})] for _ in range(10)])
    desk = make_run_context()

    result = await agent(model).run(make_task("go", budget=events.Budget(max_turns=3)), desk)

    assert result.outcome is events.Outcome.FAILED
    assert len(model.conversations) == 3
    assert [error.code for error in desk.list_events(events.ErrorRaised)] == ["BUDGET_EXCEEDED"]


@pytest.mark.parametrize(
    ("error", "message", "retryable"),
    [
        (port.ModelError("the key is not accepted", transient=False), "the key is not accepted", False),
        (ConnectionResetError("swordfish"), "the model failed (ConnectionResetError)", False),
        (RuntimeError("swordfish"), "the model failed (RuntimeError)", False),
    ],
)
async def test_a_model_that_raises_fails_the_run_and_gives_no_internals_away(
    make_task: MakeTask,
    make_run_context: MakeDesk,
    agent: MakeAgent,
    tmp_path: Path,
    error: Exception,
    message: str,
    retryable: bool,
) -> None:
    model = ScriptedModel([port.TextPart("I will "), port.ToolCallPart("list_dir", {}), error])
    desk = make_run_context()

    result = await agent(model).run(make_task("go"), desk)

    assert result == engine.RunResult(events.Outcome.FAILED, message)
    assert desk.list_events(events.ErrorRaised) == [events.ErrorRaised(code="MODEL_ERROR", message=message, retryable=retryable)]
    assert desk.outline == ["ErrorRaised"], "nothing is done on the word of half a message"


async def test_a_provider_that_is_not_configured_fails_the_run_with_a_hint(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    desk = make_run_context()

    result = await agent().run(make_task("say: hi", provider="ollama"), desk)

    assert result.outcome is events.Outcome.FAILED
    [raised] = desk.list_events(events.ErrorRaised)
    assert raised.code == "PROVIDER_NOT_CONFIGURED"
    assert "`OLLAMA_HOST` is not set, and no server answers at http://127.0.0.1:11434" in raised.message


async def test_a_model_that_cannot_be_opened_fails_the_run(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    async def broken(provider: str, name: str | None) -> port.Model:
        raise RuntimeError("swordfish")

    desk = make_run_context()

    result = await agent(open_model=broken).run(make_task("go"), desk)

    assert result == engine.RunResult(events.Outcome.FAILED, "the model failed (RuntimeError)")
    assert [error.code for error in desk.list_events(events.ErrorRaised)] == ["MODEL_ERROR"]


async def test_work_meant_for_another_sandbox_is_not_done_here(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    desk = make_run_context(APPROVE)

    result = await agent().run(make_task("run: touch ran", sandbox="modal"), desk)

    assert result.outcome is events.Outcome.FAILED
    assert [error.code for error in desk.list_events(events.ErrorRaised)] == ["SANDBOX_UNAVAILABLE"]
    assert list(tmp_path.iterdir()) == []


def check_missing_workspace(folder: Path) -> events.ErrorRaised:
    hint = "restore the folder and send a message, or start a session in another folder"
    message = f"The sandbox cannot be had for this workspace: the workspace `{folder}` does not exist any more; hint: {hint}"
    return events.ErrorRaised("SANDBOX_UNAVAILABLE", message, retryable=True)


@pytest.mark.parametrize("is_file", [False, True])
async def test_the_model_is_not_called_for_a_workspace_that_does_not_exist(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path, is_file: bool
) -> None:
    folder = tmp_path / "work"
    if is_file:
        folder.touch()
    desk, model = make_run_context(), ScriptedModel([port.TextPart("hello")])

    result = await agent(model).run(make_task("go", workspace=events.Workspace(str(folder))), desk)

    assert result.outcome is events.Outcome.FAILED
    assert desk.log == [check_missing_workspace(folder)]
    assert model.requests == []


async def test_a_run_fails_when_a_command_removes_its_workspace(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    desk = make_run_context(APPROVE, APPROVE)
    calls = [port.ToolCallPart("run", {"command": 'rm -r "$PWD"'}), port.ToolCallPart("run", {"command": "touch ../made"})]
    model = ScriptedModel(calls, [port.TextPart("done")])

    result = await agent(model).run(make_task("go", workspace=events.Workspace(str(folder))), desk)

    assert result.outcome is events.Outcome.FAILED
    assert desk.list_events(events.ErrorRaised) == [check_missing_workspace(folder)]
    assert [(finished.is_error, finished.text) for finished in desk.list_events(events.ToolFinished)][1:] == [
        (True, "not run: the workspace's folder was removed since the run began")
    ]
    assert len(model.requests) == 1
    assert not (tmp_path / "made").exists()


async def test_a_run_fails_when_its_workspace_is_removed_during_the_last_answer(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    desk = make_run_context()

    class Removing(ScriptedModel):
        async def stream(self, request: port.CompletionRequest) -> AsyncIterator[port.Part]:
            async for part in super().stream(request):
                yield part
            folder.rmdir()

    result = await agent(Removing([port.TextPart("done")])).run(make_task("go", workspace=events.Workspace(str(folder))), desk)

    assert result.outcome is events.Outcome.FAILED
    assert [message.text for message in desk.list_events(events.MessageCompleted)] == ["done"]
    assert desk.list_events(events.ErrorRaised) == [check_missing_workspace(folder)]


async def test_a_failing_desk_is_not_blamed_on_the_model(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    desk = make_run_context()

    async def refuse(event: events.AnyEvent) -> None:
        raise errors.Fenced("another node has it")

    desk.emit = refuse
    model = ScriptedModel([port.TextPart("hello")])

    with pytest.raises(errors.Fenced):
        await agent(model).run(make_task("go"), desk)


async def test_a_long_summary_is_cut(make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent) -> None:
    result = await agent().run(make_task("count 500"), make_run_context())

    assert len(result.summary) == 500
    assert result.summary.startswith("1 2 3 ")
    assert result.summary.endswith("…")


async def test_a_cancelled_stream_ends_at_once_and_closes_the_model(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel([port.TextPart(f"{number} ") for number in range(100_000)])
    desk = make_run_context()
    running = asyncio.create_task(agent(model).run(make_task("go"), desk))
    await desk.wait_until(lambda desk: len(desk.list_events(events.TextDelta)) > 10)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(60):
            await running

    assert model.closed == 1
    (kept,) = desk.list_events(events.MessageCompleted)
    assert kept.cut_short
    assert kept.text == "".join(delta.text for delta in desk.list_events(events.TextDelta))
    assert len(desk.list_events(events.TextDelta)) < 1000


async def test_a_run_cancelled_between_two_parts_closes_the_stream_first(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel([port.TextPart("one "), port.TextPart("two")])
    desk = make_run_context()
    stuck = asyncio.Event()

    async def never_done(event: events.AnyEvent) -> None:
        if isinstance(event, events.TextDelta):
            stuck.set()
            await asyncio.Event().wait()

    desk.emit = never_done
    running = asyncio.create_task(agent(model).run(make_task("go"), desk))
    async with asyncio.timeout(60):
        await stuck.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert model.closed == 1


async def test_a_demo_stream_with_its_usual_delay_can_be_cancelled(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    desk = make_run_context()
    running = asyncio.create_task(agent(demo.DemoModel()).run(make_task("count 100000"), desk))
    await desk.wait_until(lambda desk: len(desk.list_events(events.TextDelta)) >= 2)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(60):
            await running


async def test_a_cancelled_command_leaves_no_process_and_the_run_says_nothing_more(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    desk = make_run_context(APPROVE)
    task = make_task("run: setsid sleep 1000 & (sleep 1000 &) ; sleep 1000")
    running = asyncio.create_task(agent().run(task, desk))
    await desk.wait_until(lambda desk: "flush" in desk.outline)
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(orphans.has_marked_processes, task.run_id):
            await asyncio.sleep(0)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(60):
            await running

    assert not orphans.has_marked_processes(task.run_id)
    assert desk.outline[-1] == "flush"


async def test_what_a_command_leaves_in_the_background_serves_the_run_and_ends_with_it(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    desk = make_run_context(APPROVE, APPROVE)
    task = make_task("run: sleep 1000 >/dev/null 2>&1 & echo $! > pid\nrun: kill -0 $(cat pid)")

    result = await agent().run(task, desk)

    assert [finished.text for finished in desk.list_events(events.ToolFinished)] == ["[exit code 0]", "[exit code 0]"]
    assert result.outcome is events.Outcome.SUCCESS
    assert not orphans.has_marked_processes(task.run_id)
