"""What an extension asks, as the desk sees it, and what comes back."""

import asyncio
from typing import Any

import pytest
from tests.extensions.parts import DialogResponder

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.extensions import port, ui
from switchtower.extensions.port import InterviewQuestion

NOW = 1_000_000


def make_ui(person: DialogResponder, *, timeout: float = 60.0, headless: bool = False) -> ui.RunContextUi:
    return ui.RunContextUi(person.consult, lambda: NOW, timeout=timeout, headless=headless)


async def test_a_select_hands_back_the_option_that_was_chosen() -> None:
    person = DialogResponder({"value": "b"})

    assert await make_ui(person).select("Which?", ["a", "b"]) == "b"

    assert person.asked == [events.Dialog("", "select", "Which?", NOW + 60_000, options=("a", "b"))]


async def test_a_confirm_shows_its_message_and_hands_back_a_boolean() -> None:
    person = DialogResponder({"confirmed": False})

    assert await make_ui(person).confirm("Sure?", "It cannot be undone") is False

    assert person.asked == [events.Dialog("", "confirm", "Sure?", NOW + 60_000, message="It cannot be undone")]


async def test_an_input_and_an_editor_hand_back_text_even_an_empty_one() -> None:
    person = DialogResponder({"value": ""}, {"value": "two\nlines"})

    assert await make_ui(person).input("Name?", "Ada") == ""
    assert await make_ui(person).editor("Edit", "one", timeout=2.5) == "two\nlines"

    assert person.asked == [
        events.Dialog("", "input", "Name?", NOW + 60_000, placeholder="Ada"),
        events.Dialog("", "editor", "Edit", NOW + 2_500, prefill="one"),
    ]


async def test_an_interview_tells_its_questions_plainly_and_hands_back_checked_answers() -> None:
    person = DialogResponder({"responses": {"name": "Ada", "else": 1}})

    answers = await make_ui(person).interview("About you", [InterviewQuestion("name", "text", "Who?", required=True)])

    assert answers == {"name": "Ada"}
    [asked] = person.asked
    assert asked.questions == ({"id": "name", "type": "text", "question": "Who?", "required": True},)


async def test_an_interview_is_held_again_and_says_what_was_wrong() -> None:
    person = DialogResponder({"responses": {}}, {"responses": {"name": "Ada"}})

    answers = await make_ui(person).interview("About you", [{"id": "name", "type": "text", "question": "Who?", "required": True}])

    assert answers == {"name": "Ada"}
    assert [dialog.message for dialog in person.asked] == ["", "Please answer again: “Who?” needs an answer"]


async def test_an_interview_that_is_never_answered_as_asked_fails() -> None:
    person = DialogResponder(*[{"responses": {"name": 7}}] * ui.MOST_ATTEMPTS)

    with pytest.raises(port.DialogFailed, match="“About you” was not answered as asked: the answer to “Who\\?” is not a text"):
        await make_ui(person).interview("About you", [InterviewQuestion("name", "text", "Who?")])

    assert len(person.asked) == ui.MOST_ATTEMPTS


@pytest.mark.parametrize(
    ("reason", "error", "message"),
    [
        ("dismissed", port.DialogDismissed, "“Which?” was dismissed"),
        ("expired", port.DialogFailed, "“Which?” was not answered: nobody did within 60 s"),
        ("the run ended: cancelled", port.DialogFailed, "“Which?” was not answered: the run ended: cancelled"),
    ],
)
async def test_without_an_answer_the_extension_receives_an_error(
    reason: str, error: type[port.ExtensionError], message: str
) -> None:
    with pytest.raises(port.ExtensionError) as raised:
        await make_ui(DialogResponder(engine.DialogAnswer(None, reason))).select("Which?", ["a"])

    assert (type(raised.value), str(raised.value)) == (error, message)


async def test_where_nobody_is_there_a_dialog_fails_at_once_and_is_not_opened() -> None:
    person = DialogResponder()

    with pytest.raises(port.DialogFailed, match="nobody is there to answer in a headless session"):
        await make_ui(person, headless=True).confirm("Sure?", "")

    assert person.asked == []


async def test_an_option_that_was_struck_out_on_the_way_is_no_answer() -> None:
    with pytest.raises(port.DialogFailed, match="none of its options"):
        await make_ui(DialogResponder({"value": "[redacted]"})).select("Which?", ["sk-secret"])


async def test_two_questions_at_once_are_asked_one_after_the_other() -> None:
    open_now: list[str] = []
    most_open = 0

    async def consult(dialog: events.Dialog) -> engine.DialogAnswer:
        nonlocal most_open
        open_now.append(dialog.title)
        most_open = max(most_open, len(open_now))
        for _ in range(3):
            await asyncio.sleep(0)
        open_now.remove(dialog.title)
        return engine.DialogAnswer({"value": dialog.title})

    asking = ui.RunContextUi(consult, lambda: NOW, timeout=1, headless=False)

    assert await asyncio.gather(asking.input("one"), asking.input("two"), asking.input("three")) == ["one", "two", "three"]
    assert most_open == 1


async def test_half_a_character_is_not_carried_into_the_journal() -> None:
    person = DialogResponder({"value": "?"})

    await make_ui(person).select("Which \ud800?", ["\udfff"])

    assert (person.asked[0].title, person.asked[0].options) == ("Which ??", ("?",))


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("select", ("Which?", [])),
        ("select", ("Which?", ["a", "a"])),
        ("select", ("Which?", ["a", 7])),
        ("select", ("Which?", ["a", "  "])),
        ("select", ("Which?", [str(number) for number in range(201)])),
        ("select", ("", ["a"])),
        ("input", (None,)),
        ("input", ("x" * 1_001,)),
        ("input", ("x", 7)),
        ("editor", ("x", "y" * (ui.LONGEST_TEXT + 1))),
        ("interview", ("x", [])),
    ],
)
async def test_what_cannot_be_shown_is_the_extensions_mistake(method: str, arguments: tuple[Any, ...]) -> None:
    person = DialogResponder()

    with pytest.raises(ValueError):
        await getattr(make_ui(person), method)(*arguments)

    assert person.asked == []


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), ui.LONGEST_TIMEOUT + 1])
async def test_a_timeout_is_a_time_that_passes(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        await make_ui(DialogResponder()).input("Name?", timeout=timeout)
