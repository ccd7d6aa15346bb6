"""The agent and its model's troubles: retries, budgets, compaction. What fails ends as a failure, and all of it is told."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.engines.parts import MakeAgent, MakeDesk, MakeTask, ScriptedModel

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.models import port, provider_errors

PASSING = port.ModelError("the server answered 529", transient=True)
LASTING = port.ModelError("the key is not accepted", transient=False)
OVERFLOW = port.ModelError("the conversation is too long", transient=False, overflow=True)
AT_ONCE = provider_errors.Backoff(max_attempts=3, base=0.0)


def make_text(words: str, *, tokens: int = 0) -> list[port.Part | Exception]:
    return [port.TextPart(words), port.UsagePart(tokens, 0)]


async def test_a_failure_that_passes_is_tried_again_and_told(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel([port.TextPart("Hel"), PASSING], make_text("Hello"))
    desk = make_run_context()
    result = await agent(model, backoff=AT_ONCE).run(make_task("go"), desk)
    assert result == engine.RunResult(events.Outcome.SUCCESS, "Hello")
    assert desk.outline == ["RetryScheduled", "flush", "MessageCompleted", "RetryEnded"]
    [scheduled], [ended] = desk.list_events(events.RetryScheduled), desk.list_events(events.RetryEnded)
    assert (scheduled.attempt, scheduled.max_attempts, scheduled.reason) == (2, 3, "the server answered 529")
    assert (ended.attempt, ended.success) == (2, True)
    [completed] = desk.list_events(events.MessageCompleted)
    assert completed.text == "Hello", "what a broken attempt had said is no part of the message"


async def test_a_failure_that_does_not_pass_ends_the_run_as_failed(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel([PASSING], [PASSING], [PASSING], make_text("too late"))
    desk = make_run_context()
    result = await agent(model, backoff=AT_ONCE).run(make_task("go"), desk)
    assert result.outcome is events.Outcome.FAILED
    assert len(model.requests) == 3
    assert [ended.success for ended in desk.list_events(events.RetryEnded)] == [False]
    assert desk.list_events(events.ErrorRaised) == [events.ErrorRaised("MODEL_ERROR", "the server answered 529", retryable=True)]


async def test_a_lasting_failure_is_not_tried_again(make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent) -> None:
    model = ScriptedModel([LASTING])
    desk = make_run_context()
    result = await agent(model, backoff=AT_ONCE).run(make_task("go"), desk)
    assert result == engine.RunResult(events.Outcome.FAILED, "the key is not accepted")
    assert desk.list_events(events.RetryScheduled) == []


async def test_a_run_that_waits_for_its_next_attempt_can_be_cancelled(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel([port.ModelError("slow down", transient=True, retry_after=30)])
    desk = make_run_context()
    running = asyncio.create_task(agent(model).run(make_task("go"), desk))
    await desk.wait_until(lambda desk: desk.list_events(events.RetryScheduled))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(60):
            await running
    assert len(model.requests) == 1


PAUSED = port.ModelError("x: paused after 6 failures", transient=True, retry_after=0.0, is_paused=True)


async def test_a_paused_provider_is_waited_for_and_costs_no_attempt(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel([PAUSED], [PAUSED], [PAUSED], [PAUSED], make_text("Hello"))
    desk = make_run_context()
    result = await agent(model, backoff=AT_ONCE).run(make_task("go"), desk)
    assert result == engine.RunResult(events.Outcome.SUCCESS, "Hello")
    scheduled = events.RetryScheduled(1, 3, 0, "x: paused after 6 failures", cause="paused")
    assert desk.list_events(events.RetryScheduled) == [scheduled] * 4
    assert scheduled.notice == "Provider paused. Retrying in 0.0 s."


async def test_a_provider_that_stays_paused_fails_the_run_in_the_end(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    long_pause = port.ModelError("x: paused after 6 failures", transient=True, retry_after=5.0, is_paused=True)
    backoff = provider_errors.Backoff(base=0.0, longest_pause=4.0)
    result = await agent(ScriptedModel([long_pause]), backoff=backoff).run(make_task("go"), make_run_context())
    assert result == engine.RunResult(events.Outcome.FAILED, "x: paused after 6 failures")


async def test_a_rate_limit_is_reported_with_the_time_to_wait(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    limited = port.ModelError("x: rate limited (429)", transient=True, retry_after=20.0, status=429)
    desk = make_run_context()
    running = asyncio.create_task(agent(ScriptedModel([limited]), randomness=lambda: 0.0).run(make_task("go"), desk))
    await desk.wait_until(lambda desk: desk.list_events(events.RetryScheduled))
    running.cancel()
    await asyncio.wait({running})
    [scheduled] = desk.list_events(events.RetryScheduled)
    assert scheduled == events.RetryScheduled(2, 5, 20_000, "x: rate limited (429)", cause="rate_limit")
    assert scheduled.notice == "Rate limited (429). Retrying in 20 s."


async def test_a_wait_that_would_outlast_the_runs_time_is_not_begun(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    limited = port.ModelError("x: rate limited (429)", transient=True, retry_after=61.0, status=429)
    task = make_task("go", budget=events.Budget(max_minutes=1), started_at_ms=1_000_000)
    result = await agent(ScriptedModel([limited]), now_ms=lambda: 1_000_000).run(task, make_run_context())
    assert result == engine.RunResult(events.Outcome.FAILED, "x: rate limited (429)")


async def test_a_model_that_says_nothing_for_a_while_is_reported(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    class Hung(ScriptedModel):
        async def stream(self, request: port.CompletionRequest) -> AsyncIterator[port.Part]:
            await desk.wait_until(lambda desk: len(desk.list_events(events.WarningRaised)) == 2)
            yield port.TextPart("Hello")

    desk = make_run_context()
    result = await agent(Hung(), stall_after=0.01).run(make_task("go"), desk)
    assert result == engine.RunResult(events.Outcome.SUCCESS, "Hello")
    stalled = events.WarningRaised("MODEL_STALLED", "No data from scripted for 0 s; still waiting")
    assert desk.list_events(events.WarningRaised) == [stalled] * 2


async def test_an_answer_of_nothing_is_no_success(make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent) -> None:
    model = ScriptedModel([], [port.ThinkingPart("hm")], [])
    desk = make_run_context()
    result = await agent(model, backoff=AT_ONCE).run(make_task("go"), desk)
    assert result == engine.RunResult(events.Outcome.FAILED, "the model answered with nothing")


async def test_after_its_tools_a_model_may_have_nothing_more_to_say(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    result = await agent(ScriptedModel([port.ToolCallPart("list_dir", {})], [])).run(make_task("go"), make_run_context())
    assert result.outcome is events.Outcome.SUCCESS


async def test_arguments_that_are_no_json_are_answered_and_nothing_is_run(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel([port.ToolCallPart("git_status", {}, problem="the arguments are not valid JSON")], make_text("I see"))
    desk = make_run_context()
    result = await agent(model).run(make_task("go"), desk)
    [finished] = desk.list_events(events.ToolFinished)
    assert (finished.text, finished.is_error) == ("the arguments are not valid JSON", True)
    assert result.outcome is events.Outcome.SUCCESS


async def test_what_each_call_took_is_told_with_the_models_name(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    usage = port.UsagePart(100, 20, cache_read_tokens=80, cost=0.25)
    model = ScriptedModel([port.TextPart("hi"), usage], context_window=1_000)
    desk = make_run_context()
    await agent(model).run(make_task("go"), desk)
    expected = events.UsageReported("scripted", "script-1", 100, 20, 80, 0, 0.25, 1_000)
    assert desk.list_events(events.UsageReported) == [expected]


@pytest.mark.parametrize(
    ("budget", "before", "reason"),
    [
        (events.Budget(max_turns=2), {"turns_taken": 2}, "2 turns"),
        (events.Budget(max_tokens=500), {"tokens_used": 500}, "500 tokens"),
        (events.Budget(max_cost=1.5), {"cost": 1.5}, "$1.5000"),
        (events.Budget(max_minutes=2), {"started_at_ms": 1_000_000 - 120_000}, "2.0 minutes"),
    ],
)
async def test_a_budget_that_is_used_up_ends_the_run_before_the_next_call(
    make_task: MakeTask,
    make_run_context: MakeDesk,
    agent: MakeAgent,
    budget: events.Budget,
    before: dict[str, object],
    reason: str,
) -> None:
    model = ScriptedModel(make_text("one more"))
    desk = make_run_context()
    task = make_task("go", budget=budget, **{"started_at_ms": 1_000_000, **before})
    result = await agent(model, now_ms=lambda: 1_000_000).run(task, desk)
    assert result.outcome is events.Outcome.FAILED
    assert reason in result.summary
    assert [error.code for error in desk.list_events(events.ErrorRaised)] == ["BUDGET_EXCEEDED"]
    assert model.requests == []


async def test_tokens_and_cost_add_up_over_the_turns_of_a_run(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    turn = [port.ToolCallPart("list_dir", {}), port.UsagePart(60, 10, cost=0.4)]
    model = ScriptedModel(*[turn for _ in range(9)])
    result = await agent(model).run(make_task("go", budget=events.Budget(max_tokens=200)), make_run_context())
    assert (len(model.requests), result.outcome) == (3, events.Outcome.FAILED)
    model = ScriptedModel(*[turn for _ in range(9)])
    await agent(model).run(make_task("go", budget=events.Budget(max_cost=1.0)), make_run_context())
    assert len(model.requests) == 3


async def test_each_call_may_be_as_long_as_the_rest_of_the_budget(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel([port.ToolCallPart("list_dir", {}), port.UsagePart(60, 10)], make_text("done"))
    await agent(model).run(make_task("go", budget=events.Budget(max_tokens=200)), make_run_context())
    assert [request.max_output_tokens for request in model.requests] == [200, 130]


async def test_an_answer_that_the_budget_has_cut_is_no_success(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel([port.TextPart("and so"), port.UsagePart(10, 40), port.EndingPart("length")])
    desk = make_run_context()
    result = await agent(model).run(make_task("go", budget=events.Budget(max_tokens=50)), desk)
    assert result == engine.RunResult(events.Outcome.FAILED, "the answer was cut by the run's budget: its tokens are used up")
    cut = events.WarningRaised("ANSWER_CUT", "The answer was cut: the run's budget was reached", "length")
    assert desk.list_events(events.WarningRaised) == [cut]
    assert [error.code for error in desk.list_events(events.ErrorRaised)] == ["BUDGET_EXCEEDED"]
    assert [message.stop_reason for message in desk.list_events(events.MessageCompleted)] == ["length"]


async def test_an_answer_cut_at_the_models_limit_is_marked(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    desk = make_run_context()
    model = ScriptedModel([port.TextPart("and so"), port.UsagePart(10, 40), port.EndingPart("length")])
    result = await agent(model).run(make_task("go"), desk)
    assert result == engine.RunResult(events.Outcome.SUCCESS, "and so [cut at the model's limit for one answer]")
    cut = events.WarningRaised("ANSWER_CUT", "The answer was cut: the model's limit for one answer was reached", "length")
    assert desk.list_events(events.WarningRaised) == [cut]


async def test_a_run_that_took_more_than_its_budget_is_marked(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    desk = make_run_context()
    model = ScriptedModel([port.TextPart("done"), port.UsagePart(200, 10)])
    result = await agent(model).run(make_task("go", budget=events.Budget(max_tokens=50)), desk)
    assert result == engine.RunResult(events.Outcome.SUCCESS, "done [over budget: 210 of 50 tokens]")
    overrun = events.WarningRaised("BUDGET_OVERRUN", "The run took more than its budget: 210 of 50 tokens")
    assert desk.list_events(events.WarningRaised) == [overrun]


async def test_failed_attempts_count_for_the_budget(make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent) -> None:
    broken = [port.TextPart("Hel"), port.UsagePart(30, 10, is_estimate=True), PASSING]
    model = ScriptedModel(broken, broken, make_text("too late"))
    desk = make_run_context()
    result = await agent(model, backoff=AT_ONCE).run(make_task("go", budget=events.Budget(max_tokens=70)), desk)
    reason = "the run was stopped by its budget: it took 80 tokens, and may take 70"
    assert result == engine.RunResult(events.Outcome.FAILED, reason)
    assert [request.max_output_tokens for request in model.requests] == [70, 30]
    assert [usage.is_estimate for usage in desk.list_events(events.UsageReported)] == [True, True]


async def test_a_limit_of_costs_ends_a_run_whose_model_has_no_price(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel([port.ToolCallPart("list_dir", {}), port.UsagePart(60, 10)], make_text("too late"))
    result = await agent(model).run(make_task("go", budget=events.Budget(max_cost=1.0)), make_run_context())
    assert result.outcome is events.Outcome.FAILED
    assert "the price of scripted script-1 is unknown" in result.summary
    assert len(model.requests) == 1


async def test_a_summary_that_was_of_no_use_counts_for_the_budget(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel([port.TextPart(" "), port.UsagePart(60, 40)], make_text("too late"), context_window=1_000)
    task = make_task(make_long_conversation(), context_tokens=900, budget=events.Budget(max_tokens=100))
    result = await agent(model).run(task, make_run_context())
    assert result.outcome is events.Outcome.FAILED
    assert [request.max_output_tokens for request in model.requests] == [100]


def make_long_conversation(messages: int = 20, length: int = 400) -> tuple[engine.Message, ...]:
    past = [
        engine.Message(role=("user", "assistant")[number % 2], text=f"message {number} " + "x" * length)
        for number in range(messages)
    ]
    return (*past, engine.Message(role="user", text="go on"))


async def test_a_full_context_is_summarised_before_the_next_call(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel(make_text("Goal: x"), make_text("done"), context_window=1_000)
    desk = make_run_context()
    await agent(model).run(make_task(make_long_conversation(), context_tokens=900), desk)
    assert desk.outline == ["CompactionStarted", "ContextCompacted", "MessageCompleted"]
    [compacted] = desk.list_events(events.ContextCompacted)
    assert (compacted.reason, compacted.summary, compacted.tokens_before) == ("threshold", "Goal: x", 900)
    assert compacted.tokens_after < 900
    summarising, working = model.requests
    assert not summarising.tools
    assert "message 0" in summarising.conversation[0].text
    assert working.conversation[0].text == f"{engine.SUMMARY_HEADING}\n\nGoal: x"
    assert working.conversation[-1].text == "go on"
    assert len(working.conversation) == 1 + compacted.kept < 10
    assert tuple(working.conversation) == tuple(engine.compact_messages(make_long_conversation(), "Goal: x", compacted.kept)), (
        "the journal tells the same"
    )
    assert [delta.text for delta in desk.list_events(events.TextDelta)] == ["done"], "a summary is not said to the user"


async def test_a_summary_counts_against_the_budget(make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent) -> None:
    model = ScriptedModel(make_text("Goal: x"), make_text("one too many"), context_window=1_000)
    task = make_task(make_long_conversation(), context_tokens=900, budget=events.Budget(max_turns=1))
    result = await agent(model).run(task, make_run_context())
    assert result.outcome is events.Outcome.FAILED
    assert len(model.requests) == 1


async def test_a_context_with_room_is_left_alone(make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent) -> None:
    desk = make_run_context()
    await agent(ScriptedModel(make_text("done"), context_window=1_000)).run(
        make_task(make_long_conversation(), context_tokens=799), desk
    )
    assert desk.list_events(events.CompactionStarted) == []


async def test_a_summary_that_does_not_help_is_not_made_again_and_again(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    calls = [[port.ToolCallPart("list_dir", {}), port.UsagePart(950, 0)] for _ in range(6)]
    model = ScriptedModel(make_text("y" * 100_000), *calls, make_text("done"), context_window=1_000)
    desk = make_run_context()
    result = await agent(model).run(make_task(make_long_conversation(), context_tokens=950), desk)
    assert result.outcome is events.Outcome.SUCCESS
    assert len(desk.list_events(events.CompactionStarted)) == 1
    assert [failed.aborted for failed in desk.list_events(events.CompactionFailed)] == [False]


async def test_a_conversation_that_the_model_calls_too_long_is_summarised_once(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel([OVERFLOW], make_text("Goal: x"), make_text("done"), context_window=1_000)
    desk = make_run_context()
    result = await agent(model).run(make_task(make_long_conversation()), desk)
    assert result.outcome is events.Outcome.SUCCESS
    assert [started.reason for started in desk.list_events(events.CompactionStarted)] == ["overflow"]

    model = ScriptedModel([OVERFLOW], make_text("Goal: x"), [OVERFLOW], context_window=1_000)
    result = await agent(model).run(make_task(make_long_conversation()), make_run_context())
    assert result == engine.RunResult(events.Outcome.FAILED, "the conversation is too long")


async def test_a_compaction_on_request_is_a_run_of_its_own(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel(make_text("Goal: x"), context_window=1_000)
    desk = make_run_context()
    task = make_task(make_long_conversation(), purpose=events.Purpose.COMPACT, instructions="keep the paths")
    result = await agent(model).run(task, desk)
    assert result.outcome is events.Outcome.SUCCESS
    assert desk.outline == ["CompactionStarted", "ContextCompacted"]
    assert "keep the paths" in model.requests[0].conversation[0].text


async def test_a_compaction_can_be_cancelled(make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent) -> None:
    model = ScriptedModel([port.TextPart("word ") for _ in range(100_000)], context_window=1_000)
    desk = make_run_context()
    task = make_task(make_long_conversation(), purpose=events.Purpose.COMPACT)
    running = asyncio.create_task(agent(model).run(task, desk))
    await desk.wait_until(lambda desk: desk.list_events(events.CompactionStarted))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(60):
            await running
    assert [failed.aborted for failed in desk.list_events(events.CompactionFailed)] == [True]


async def test_a_compaction_with_nothing_to_summarise_says_so(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    desk = make_run_context()
    result = await agent(ScriptedModel(context_window=1_000)).run(make_task("hi", purpose=events.Purpose.COMPACT), desk)
    assert result.outcome is events.Outcome.FAILED
    assert [failed.reason for failed in desk.list_events(events.CompactionFailed)] == ["there is nothing to summarise yet"]
