"""Pictures in a message: they reach the model, and those that cannot be used end their run and no other."""

import base64

import pytest
from tests.engines.parts import MakeAgent, MakeDesk, MakeTask, ScriptedModel

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.engines.agent import compaction
from switchtower.models import port

PNG = events.Image("image/png", base64.b64encode(b"\x89PNG picture").decode())


def make_picture_result(text: str, *images: events.Image) -> engine.Message:
    return engine.Message(role="user", text=text, images=images)


async def test_the_demo_model_says_how_many_it_was_shown(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    desk = make_run_context()

    result = await agent().run(make_task((make_picture_result("say: hello", PNG, PNG),)), desk)

    assert result.outcome is events.Outcome.SUCCESS
    assert result.summary == "I was shown 2 pictures, which I cannot see.\nhello"


async def test_pictures_stay_with_a_message_that_is_expanded(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    model = ScriptedModel([port.TextPart("ok")])
    desk = make_run_context(dialogs=[engine.DialogAnswer({"responses": {"goal": "match the picture"}})])

    await agent(model).run(make_task((make_picture_result("/brief", PNG),)), desk)

    [message] = model.conversations[0]
    assert "match the picture" in message.text
    assert message.images == (PNG,)


async def test_pictures_can_be_steered_into_a_run(make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent) -> None:
    model, desk = ScriptedModel([port.TextPart("ok")]), make_run_context()
    desk.waiting.append(events.MessageQueued("msg_1", "like this", events.Delivery.STEER, events.SYSTEM, (PNG,)))

    await agent(model).run(make_task("hello"), desk)

    assert model.conversations[0][-1] == make_picture_result("like this", PNG)
    assert desk.list_events(events.MessageDelivered) == [events.MessageDelivered("msg_1", "like this", (PNG,))]


BAD = [
    (events.Image("image/png", "not base64!"), "its data is not base64"),
    (events.Image("image/png", "data:image/png;base64,AAAA"), "its data is not base64"),
    (events.Image("image/png", "AAA"), "its data is not base64"),
    (events.Image("image/png", "ünïcode"), "its data is not base64"),
    (events.Image("image/png", ""), "it is empty"),
    (events.Image("image/svg+xml", PNG.data), "`image/svg+xml` is not a type of picture that models take"),
    (events.Image("\x1b[31m" * 100, PNG.data), "is not a type of picture"),
    (events.Image("image/png", "A" * (port.LARGEST * 4 // 3 + 8)), "it is larger than 20 MiB"),
]


@pytest.mark.parametrize(("image", "why"), BAD)
@pytest.mark.parametrize("steered", [False, True])
async def test_a_picture_that_cannot_be_used_fails_its_run_with_a_reason(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, image: events.Image, why: str, steered: bool
) -> None:
    model, desk = ScriptedModel(), make_run_context()
    if steered:
        desk.waiting.append(events.MessageQueued("msg_1", "look", events.Delivery.STEER, events.SYSTEM, (PNG, image)))

    result = await agent(model).run(
        make_task((make_picture_result("look", PNG) if steered else make_picture_result("look", PNG, image),)), desk
    )

    assert result.outcome is events.Outcome.FAILED
    assert result.summary.startswith("picture 2 of this message cannot be used: ")
    assert why in result.summary
    assert "hint: " in result.summary
    assert result.summary.isprintable()
    assert [error.code for error in desk.list_events(events.ErrorRaised)] == ["INVALID_IMAGE"]
    assert model.requests == []


async def test_an_old_picture_that_could_not_be_used_does_not_fail_later_runs(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    conversation = (make_picture_result("look", BAD[0][0]), make_picture_result("then without it"))

    result = await agent(ScriptedModel([port.TextPart("ok")])).run(make_task(conversation), make_run_context())

    assert result == engine.RunResult(events.Outcome.SUCCESS, "ok")


def test_a_picture_counts_as_a_part_of_the_context() -> None:
    assert compaction.estimate_tokens([make_picture_result("", PNG, PNG)]) == 2 * port.TOKENS
