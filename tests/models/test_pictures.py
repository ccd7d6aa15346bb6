"""Pictures on their way to a provider: what the server really receives."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.parts import MakeProvider, make_user_message

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.models import port, request_encoder
from switchtower.testing import model_script as script

DATA = base64.b64encode(b"\x89PNG and so on").decode()
PNG, JPEG = events.Image("image/png", DATA), events.Image("image/jpeg", DATA)
BROKEN = events.Image("image/png", "no base64")


def make_picture_result(text: str, *images: events.Image) -> engine.Message:
    return engine.Message(role="user", text=text, images=images)


def list_carried_parts(dialect: str, body: dict[str, Any]) -> list[Any]:
    """The parts of the last message, as this API spells them."""
    if dialect == "google":
        parts: list[Any] = body["contents"][-1]["parts"]
    else:
        parts = body["messages"][-1]["content"]
    return parts


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        (
            "openai",
            [
                {"type": "text", "text": "what is this?"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
                {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{DATA}"}},
            ],
        ),
        (
            "anthropic",
            [
                {"type": "text", "text": "what is this?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
                {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": DATA}},
            ],
        ),
        (
            "google",
            [
                {"text": "what is this?"},
                {"inlineData": {"mime_type": "image/png", "data": DATA}},
                {"inlineData": {"mime_type": "image/jpeg", "data": DATA}},
            ],
        ),
    ],
)
async def test_the_request_carries_them_behind_the_text(provide_model: MakeProvider, dialect: str, expected: list[Any]) -> None:
    provider = await provide_model(script.reply_text("a picture"), dialect=dialect)

    said = await provider.ask(make_picture_result("what is this?", PNG, JPEG))

    assert said.text == "a picture"
    told = [
        {key: value for key, value in part.items() if key != "cache_control"}
        for part in list_carried_parts(dialect, provider.received.body)
    ]
    assert told == expected


async def test_a_message_of_pictures_alone_says_no_words(provide_model: MakeProvider) -> None:
    provider = await provide_model(script.reply_text("ok"))

    await provider.ask(make_picture_result("  ", PNG))

    assert [part["type"] for part in provider.told[-1]["content"]] == ["image_url"]


async def test_pictures_stay_in_the_conversation(provide_model: MakeProvider) -> None:
    provider = await provide_model(script.reply_text("ok"))

    await provider.ask(
        make_picture_result("look", PNG), engine.Message(role="assistant", text="seen"), make_user_message("and now?")
    )

    first, *_, last = provider.told
    assert [part["type"] for part in first["content"]] == ["text", "image_url"]
    assert last == {"role": "user", "content": "and now?"}


async def test_an_old_picture_that_nobody_can_read_is_told_in_words(provide_model: MakeProvider) -> None:
    provider = await provide_model(script.reply_text("ok"))

    await provider.ask(make_picture_result("look", BROKEN, PNG))

    told = provider.told[-1]["content"]
    assert [part.get("text") for part in told] == ["look", request_encoder.UNREADABLE_PICTURE, None]


async def test_where_nobody_counts_a_picture_is_estimated(provide_model: MakeProvider) -> None:
    provider = await provide_model(
        script.ScriptedReply((script.TextStep("ok"),), script.ScriptedUsage(input=0, output=0)),
        script.ScriptedReply((script.TextStep("ok"),), script.ScriptedUsage(input=0, output=0)),
    )

    with_picture = await provider.ask(make_picture_result("look", PNG))
    without = await provider.ask(make_user_message("look"))

    assert with_picture.usage.input_tokens - without.usage.input_tokens == port.TOKENS


@given(st.binary(min_size=1, max_size=200), st.sampled_from(port.MEDIA_TYPES))
def test_any_bytes_come_through_as_they_are(content: bytes, media_type: str) -> None:
    image = events.Image(media_type, base64.b64encode(content).decode())

    assert port.find_image_problem(image) is None
    assert port.decode_image(image) == content


@given(st.text(max_size=200), st.text(max_size=200))
def test_whatever_is_sent_is_a_picture_or_has_a_printable_problem(media_type: str, data: str) -> None:
    problem = port.find_image_problem(events.Image(media_type, data))

    assert problem is None or problem.isprintable()
