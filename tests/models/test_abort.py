"""A model's stream that nobody wants any more: the provider sees the connection close, at once."""

import asyncio
from contextlib import aclosing

import pytest
from tests.models.parts import MakeProvider, make_user_message

from switchtower.models import port
from switchtower.testing import model_script as script

REQUEST = port.CompletionRequest((make_user_message("go"),))
DIALECTS = pytest.mark.parametrize("dialect", ["openai", "anthropic", "google"])


@DIALECTS
async def test_closing_the_stream_between_two_parts_closes_the_connection(provide_model: MakeProvider, dialect: str) -> None:
    provider = await provide_model(script.ScriptedReply((script.TextStep("one two"), script.HoldStep())), dialect=dialect)

    async with aclosing(provider.model.stream(REQUEST)) as parts:  # type: ignore[type-var]
        assert await anext(parts) == port.TextPart("one ")

    async with asyncio.timeout(60):
        await provider.received.gone.wait()


@DIALECTS
async def test_cancelling_who_waits_for_a_part_closes_the_connection(provide_model: MakeProvider, dialect: str) -> None:
    provider = await provide_model(script.ScriptedReply((script.TextStep("one two"), script.HoldStep())), dialect=dialect)
    heard: list[port.Part] = []
    two = asyncio.Event()

    async def listen() -> None:
        async for part in provider.model.stream(REQUEST):
            heard.append(part)
            if len(heard) == 2:
                two.set()

    listening = asyncio.create_task(listen())
    async with asyncio.timeout(60):
        await two.wait()
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening

    async with asyncio.timeout(60):
        await provider.received.gone.wait()


@DIALECTS
async def test_cancelling_before_the_first_part_closes_the_connection(provide_model: MakeProvider, dialect: str) -> None:
    provider = await provide_model(script.ScriptedReply((script.HoldStep(),)), dialect=dialect)
    stream = provider.model.stream(REQUEST)
    waiting = asyncio.ensure_future(anext(aiter(stream)))
    async with asyncio.timeout(60):
        received = await provider.server.wait_for_request()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    async with asyncio.timeout(60):
        await received.gone.wait()


async def test_after_an_abort_the_model_serves_the_next(provide_model: MakeProvider) -> None:
    provider = await provide_model(
        script.ScriptedReply((script.TextStep("one two"), script.HoldStep())), script.reply_text("fresh")
    )
    async with aclosing(provider.model.stream(REQUEST)) as parts:  # type: ignore[type-var]
        await anext(parts)

    assert (await provider.ask()).text == "fresh"
    assert provider.catalog.list_breakers()["work"].failures == 0


async def test_many_streams_at_once_do_not_mix(provide_model: MakeProvider) -> None:
    texts = [f"number {number} " + "word " * 50 for number in range(20)]
    provider = await provide_model(*[script.reply_text(text) for text in texts])

    said = await asyncio.gather(*(provider.ask() for _ in texts))

    assert sorted(one.text for one in said) == sorted(texts)
