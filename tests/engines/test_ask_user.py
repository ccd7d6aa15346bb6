"""The agent asks the person it works for, with the demo model and a recording desk."""

import pytest
from tests.engines.parts import MakeAgent, MakeDesk, MakeTask, ScriptedModel

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.models import port


async def test_a_question_is_an_input_and_its_answer_the_tools_result(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    desk = make_run_context(dialogs=[engine.DialogAnswer({"value": "tabs"})])

    result = await agent(now_ms=lambda: 1_000).run(make_task("ask: Tabs or spaces?"), desk)

    assert desk.dialogs == [events.Dialog("", "input", "Tabs or spaces?", 61_000)]
    [finished] = desk.list_events(events.ToolFinished)
    assert (finished.tool, finished.text, finished.is_error) == ("ask_user", "tabs", False)
    assert result.outcome is events.Outcome.SUCCESS
    assert "tabs" in result.summary
    assert desk.questions == [], "it has no effect, so nobody is asked whether it may ask"


async def test_a_question_with_options_is_a_select(make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent) -> None:
    desk = make_run_context(dialogs=[engine.DialogAnswer({"value": "spaces"})])

    await agent().run(make_task("ask: Which? | tabs | spaces", policy="read-only"), desk)

    [dialog], [finished] = desk.dialogs, desk.list_events(events.ToolFinished)
    assert (dialog.method, dialog.options, finished.text) == ("select", ("tabs", "spaces"), "spaces")


@pytest.mark.parametrize(
    ("reason", "told"),
    [("expired", "“Which?” was not answered: nobody did within 60 s"), ("dismissed", "“Which?” was dismissed")],
)
async def test_an_unanswered_question_is_an_error_that_the_model_reads_and_the_run_goes_on(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, reason: str, told: str
) -> None:
    desk = make_run_context(dialogs=[engine.DialogAnswer(None, reason)])

    result = await agent().run(make_task("ask: Which?\nsay: going on"), desk)

    [finished] = desk.list_events(events.ToolFinished)
    assert finished.is_error
    assert finished.text.startswith(f"{told}. Go on without the answer")
    assert result.outcome is events.Outcome.SUCCESS


async def test_a_headless_run_does_not_offer_the_tool(make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent) -> None:
    offered = {}
    for headless in (False, True):
        model = ScriptedModel([port.TextPart("ok")])
        await agent(model).run(make_task("hello", headless=headless), make_run_context())
        offered[headless] = "ask_user" in [tool.name for tool in model.requests[0].tools]
    assert offered == {False: True, True: False}


async def test_a_headless_run_that_calls_it_all_the_same_is_told_that_there_is_none(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    desk = make_run_context()

    await agent().run(make_task("ask: Which?", headless=True), desk)

    assert desk.dialogs == []
    [finished] = desk.list_events(events.ToolFinished)
    assert "there is no tool `ask_user`" in finished.text


async def test_two_questions_of_one_message_are_asked_one_after_the_other(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    calls = [port.ToolCallPart("ask_user", {"question": name}) for name in ("first?", "second?")]
    desk = make_run_context(dialogs=[engine.DialogAnswer({"value": "1"}), engine.DialogAnswer({"value": "2"})])

    await agent(ScriptedModel(calls, [port.TextPart("ok")])).run(make_task("hello"), desk)

    assert [dialog.title for dialog in desk.dialogs] == ["first?", "second?"]
    assert [finished.text for finished in desk.list_events(events.ToolFinished)] == ["1", "2"]


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"question": ""},
        {"question": "   "},
        {"question": "x" * 1_001},
        {"question": 7},
        {"question": "x", "options": ["one"]},
        {"question": "x", "options": ["one", "one"]},
        {"question": "x", "options": ["one", " "]},
        {"question": "x", "options": [{}, []]},
        {"question": "x", "timeout": 1},
    ],
)
async def test_a_question_that_cannot_be_shown_is_not_asked(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, args: dict[str, object]
) -> None:
    desk = make_run_context()

    await agent(ScriptedModel([port.ToolCallPart("ask_user", args)], [port.TextPart("ok")])).run(make_task("hello"), desk)

    assert desk.dialogs == []
    [finished] = desk.list_events(events.ToolFinished)
    assert finished.is_error
