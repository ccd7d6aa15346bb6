"""Between two turns of the model: steering, reads side by side, rules that a decision made, files brought in, checkpoints."""

import asyncio
import subprocess
from pathlib import Path

import pytest
from tests.engines.parts import APPROVE, MakeAgent, MakeDesk, MakeTask, RecordingRunContext, ScriptedModel

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.core.session import Timeline, WorkspaceChange
from switchtower.engines.agent.prompts.system_prompt import PromptCatalog
from switchtower.models import port

OWNER = events.Actor("owner", "cli")


def steer(text: str) -> events.MessageQueued:
    return events.MessageQueued("msg_1", text, events.Delivery.STEER, OWNER)


def make_final_answer(text: str = "done") -> list[port.Part | Exception]:
    return [port.TextPart(text)]


async def test_steering_reaches_the_model_at_its_next_step(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel([port.ToolCallPart("list_dir", {})], make_final_answer())
    desk = make_run_context()
    desk.waiting.append(steer("use tabs"))
    await agent(model).run(make_task("go"), desk)
    assert [message.text for message in model.conversations[0]] == ["go", "use tabs"]
    assert desk.list_events(events.MessageDelivered) == [events.MessageDelivered("msg_1", "use tabs")]


async def test_steering_that_comes_with_the_last_word_makes_another_turn(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    desk = make_run_context()

    class Interrupted(ScriptedModel):
        async def stream(self, request: port.CompletionRequest):  # type: ignore[no-untyped-def, override]
            if len(self.requests) == 0:
                desk.waiting.append(steer("and the docs"))
            async for part in super().stream(request):
                yield part

    model = Interrupted(make_final_answer("first"), make_final_answer("second"))
    result = await agent(model).run(make_task("go"), desk)
    assert result.summary == "second"
    assert [message.text for message in model.conversations[1]] == ["go", "first", "and the docs"]


async def test_reads_of_one_message_run_side_by_side_and_are_told_in_order(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    for name in "abc":
        (tmp_path / name).write_text(name.upper())
    reads = [port.ToolCallPart("read_file", {"path": name}) for name in "abc"]
    desk = make_run_context(APPROVE)
    write = port.ToolCallPart("write_file", {"path": "d", "content": "D"})
    model = ScriptedModel([*reads[:2], write, reads[2]], make_final_answer())
    await agent(model).run(make_task("go"), desk)
    together = ["ToolCalled", "ToolCalled", "flush", "ToolFinished", "ToolFinished"]
    alone = ["ToolCalled", "ApprovalQuestion", "flush", "ToolFinished"]
    assert desk.outline == ["MessageCompleted", *together, *alone, "ToolCalled", "flush", "ToolFinished", "MessageCompleted"]
    assert [message.text[:1] for message in model.conversations[1][2:]][:2] == ["A", "B"]


async def test_always_allows_the_same_for_the_rest_of_the_run(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    touch = port.ToolCallPart("run", {"command": "touch ran"})
    desk = make_run_context()

    async def allow_always(question: engine.ApprovalQuestion) -> engine.ApprovalAnswer:
        desk.log.append(question)
        return engine.ApprovalAnswer(events.Verdict.APPROVE, rule=question.rule)

    desk.request_approval = allow_always  # type: ignore[method-assign]
    await agent(ScriptedModel([touch], [touch], make_final_answer())).run(make_task("go"), desk)
    [question] = desk.questions
    assert question.rule is not None
    assert question.rule.effect == "allow"
    assert "touch ran" in str(question.details["always"])
    assert [finished.is_error for finished in desk.list_events(events.ToolFinished)] == [False, False]


async def test_rules_that_earlier_runs_made_hold(make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent) -> None:
    rule = events.Rule("allow", tool="run", command="touch ran")
    desk = make_run_context()
    model = ScriptedModel([port.ToolCallPart("run", {"command": "touch ran"})], make_final_answer())
    await agent(model).run(make_task("go", rules=(rule,)), desk)
    assert desk.questions == []
    assert [finished.is_error for finished in desk.list_events(events.ToolFinished)] == [False]


async def test_a_read_only_session_writes_nothing_and_asks_nothing(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    desk = make_run_context()
    model = ScriptedModel([port.ToolCallPart("write_file", {"path": "a", "content": "x"})], make_final_answer())
    await agent(model).run(make_task("go", policy="read-only"), desk)
    assert desk.questions == []
    assert [finished.is_error for finished in desk.list_events(events.ToolFinished)] == [True]
    assert list(tmp_path.iterdir()) == []


async def test_a_file_that_changes_after_its_change_was_approved_is_left_alone(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    target = tmp_path / "a.txt"
    target.write_text("one\n")
    desk = make_run_context()

    async def approve_late(question: engine.ApprovalQuestion) -> engine.ApprovalAnswer:
        target.write_text("somebody else's\n")
        return APPROVE

    desk.request_approval = approve_late  # type: ignore[method-assign]
    model = ScriptedModel([port.ToolCallPart("write_file", {"path": "a.txt", "content": "two\n"})], make_final_answer())
    await agent(model).run(make_task("go"), desk)
    [finished] = desk.list_events(events.ToolFinished)
    assert finished.error is not None
    assert finished.error.type == "STALE_FILE"
    assert target.read_text() == "somebody else's\n"


async def test_a_mentioned_file_is_brought_in_and_journalled(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("remember the milk")
    model = ScriptedModel(make_final_answer())
    desk = make_run_context()
    await agent(model).run(make_task("what is in @notes.txt?"), desk)
    [expanded] = desk.list_events(events.PromptExpanded)
    assert "remember the milk" in expanded.text
    assert model.conversations[0][0].text == expanded.text
    assert "notes.txt" in expanded.sources[0]


async def test_the_projects_instructions_and_the_tools_reach_the_model(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    (tmp_path / "AGENTS.md").write_text("Always use tabs here.")
    model = ScriptedModel(make_final_answer())
    await agent(model).run(make_task("go"), make_run_context())
    assert "Always use tabs here." in model.requests[0].system
    assert {"read_file", "edit_file", "search", "run", "git_commit"} <= {tool.name for tool in model.requests[0].tools}


def list_trees(context: RecordingRunContext) -> list[str]:
    return [event.when for event in context.list_events(events.CheckpointTaken)]


async def test_the_workspace_is_kept_before_the_first_change_and_after_the_run(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    desk = make_run_context(APPROVE, APPROVE)
    write = [port.ToolCallPart("write_file", {"path": name, "content": "x"}) for name in ("a", "b")]
    await agent(ScriptedModel([port.ToolCallPart("list_dir", {}), *write], make_final_answer())).run(make_task("go"), desk)
    assert list_trees(desk) == ["before", "after"]


async def test_a_run_that_only_reads_keeps_nothing(make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent) -> None:
    desk = make_run_context()
    await agent(ScriptedModel([port.ToolCallPart("list_dir", {})], make_final_answer())).run(make_task("go"), desk)
    assert list_trees(desk) == []


async def test_a_cancelled_run_keeps_its_end_too(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    desk = make_run_context(APPROVE)
    model = ScriptedModel([port.ToolCallPart("run", {"command": "touch ran; sleep 1000"})])
    running = asyncio.create_task(agent(model).run(make_task("go"), desk))
    async with asyncio.timeout(60):
        while not (tmp_path / "ran").exists():
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert list_trees(desk)[0] == "before"


@pytest.mark.parametrize("repository", [True, False])
async def test_what_a_run_changed_can_be_undone_and_made_again(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path, repository: bool
) -> None:
    if repository:
        subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "kept.txt").write_text("old")
    desk = make_run_context(APPROVE, APPROVE)
    model = ScriptedModel(
        [
            port.ToolCallPart("write_file", {"path": "kept.txt", "content": "new"}),
            port.ToolCallPart("run", {"command": "echo made > made.txt"}),
        ],
        make_final_answer(),
    )
    worker = agent(model)
    await worker.run(make_task("go"), desk)
    before, after = desk.list_events(events.CheckpointTaken)
    change = WorkspaceChange("run_x", before.tree, after.tree)

    undoing = make_run_context()
    result = await worker.run(make_task("", purpose=events.Purpose.UNDO, timeline=Timeline(done=(change,))), undoing)
    assert result.outcome is events.Outcome.SUCCESS
    assert (tmp_path / "kept.txt").read_text() == "old"
    assert not (tmp_path / "made.txt").exists()
    [restored] = undoing.list_events(events.WorkspaceRestored)
    assert sorted(restored.files) == ["kept.txt", "made.txt"]

    await worker.run(make_task("", purpose=events.Purpose.REDO, timeline=Timeline(undone=(change,))), make_run_context())
    assert (tmp_path / "kept.txt").read_text() == "new"
    assert (tmp_path / "made.txt").read_text() == "made\n"


async def test_a_skill_of_the_user_is_read_by_its_name(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path_factory: pytest.TempPathFactory
) -> None:
    user_folder = tmp_path_factory.mktemp("user")
    (user_folder / "skills").mkdir()
    (user_folder / "skills" / "release.md").write_text("# How to release\nTag first, then build.")
    model = ScriptedModel([port.ToolCallPart("read_skill", {"name": "release"})], make_final_answer())
    desk = make_run_context()
    await agent(model, prompts=PromptCatalog(user_folder)).run(make_task("release it"), desk)
    [finished] = desk.list_events(events.ToolFinished)
    assert "Tag first, then build." in finished.text
    assert desk.questions == []
    assert "release" in model.requests[0].system


async def test_without_skills_no_tool_for_them_is_offered(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel(make_final_answer())
    await agent(model).run(make_task("go"), make_run_context())
    assert "read_skill" not in [tool.name for tool in model.requests[0].tools]


async def test_a_crashed_runs_end_is_kept_before_it_is_undone(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("old")
    desk = make_run_context(APPROVE)
    worker = agent(ScriptedModel([port.ToolCallPart("write_file", {"path": "a.txt", "content": "new"})], make_final_answer()))
    await worker.run(make_task("go"), desk)
    crashed = WorkspaceChange("run_x", desk.list_events(events.CheckpointTaken)[0].tree)

    undoing = make_run_context()
    result = await worker.run(make_task("", purpose=events.Purpose.UNDO, timeline=Timeline(done=(crashed,))), undoing)
    assert result.outcome is events.Outcome.SUCCESS
    assert (tmp_path / "a.txt").read_text() == "old"
    assert undoing.outline == ["flush", "WorkspaceRestored"]
    [kept], [restored] = undoing.list_events(events.CheckpointTaken), undoing.list_events(events.WorkspaceRestored)
    assert (kept.when, kept.of, kept.tree) == ("after", "run_x", restored.after)
