"""Providers that misbehave, over real HTTP: each fault is a trouble that says whether it may pass, and none is a success."""

import asyncio
import email.utils
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import httpx2
import pytest
from tests.models.parts import SECRET_KEY, MakeProvider, make_user_message

from switchtower.models import connection, port, provider_errors
from switchtower.testing import model_script as script

BOTH = pytest.mark.parametrize("dialect", ["openai", "anthropic"])
ALL = pytest.mark.parametrize("dialect", ["openai", "anthropic", "google"])
HASTY = connection.ConnectionTimeouts(connect=1.0, silence=0.2)


@ALL
@pytest.mark.parametrize("status", [408, 409, 500, 502, 503, 504, 529])
async def test_a_servers_own_trouble_may_pass(provide_model: MakeProvider, dialect: str, status: int) -> None:
    provider = await provide_model(script.ScriptedRefusal(status, "try later"), dialect=dialect)

    trouble = await provider.refuse()

    assert (trouble.transient, trouble.status, trouble.overflow) == (True, status, False)
    assert trouble.message.startswith("work: ")
    assert len(provider.server.requests) == 1, "nobody but the caller tries again"


@BOTH
async def test_a_rate_limit_says_how_long_to_wait(provide_model: MakeProvider, dialect: str) -> None:
    in_an_hour = email.utils.format_datetime(datetime.fromtimestamp(time.time() + 3_600, UTC), usegmt=True)
    provider = await provide_model(
        script.refuse_rate_limited("7"),
        script.refuse_rate_limited("1.5"),
        script.refuse_rate_limited(in_an_hour),
        script.refuse_rate_limited(),
        script.refuse_rate_limited("soon"),
        script.refuse_rate_limited("-5"),
        script.refuse_rate_limited("inf"),
        script.ScriptedRefusal(429, headers={"retry-after-ms": "250", "retry-after": "9"}),
        dialect=dialect,
    )

    troubles_seen = [await provider.refuse() for _ in range(8)]

    assert all(trouble.transient and trouble.status == 429 for trouble in troubles_seen)
    waits = [trouble.retry_after for trouble in troubles_seen]
    assert waits[:2] == [7.0, 1.5]
    assert waits[2] is not None
    assert 3_000 <= waits[2] <= 3_600
    assert waits[3:] == [None, None, None, None, 0.25]


async def test_a_date_that_has_passed_is_no_wait(provide_model: MakeProvider) -> None:
    provider = await provide_model(script.refuse_rate_limited("Wed, 21 Oct 2015 07:28:00 GMT"))
    assert (await provider.refuse()).retry_after == 0


async def test_google_says_in_the_body_how_long_to_wait(provide_model: MakeProvider) -> None:
    body = b'{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"34s"}]}}'
    provider = await provide_model(script.ScriptedRefusal(429, body=body), dialect="google")
    trouble = await provider.refuse()
    assert (trouble.transient, trouble.retry_after) == (True, 34.0)


@pytest.mark.parametrize("says", ["true", "false"])
async def test_a_provider_that_says_whether_to_try_again_is_believed(provide_model: MakeProvider, says: str) -> None:
    provider = await provide_model(script.ScriptedRefusal(500, headers={"x-should-retry": says}))
    assert (await provider.refuse()).transient is (says == "true")


@ALL
@pytest.mark.parametrize("politely", [True, False])
async def test_a_stream_that_is_cut_is_never_a_success(provide_model: MakeProvider, dialect: str, politely: bool) -> None:
    provider = await provide_model(
        script.ScriptedReply((script.TextStep("so far so good"), script.CutStep(politely))), dialect=dialect
    )

    trouble = await provider.refuse()

    assert trouble.transient
    assert "connection lost" in trouble.message


@BOTH
@pytest.mark.parametrize("politely", [True, False])
async def test_a_stream_that_is_cut_before_its_first_word_may_pass_too(
    provide_model: MakeProvider, dialect: str, politely: bool
) -> None:
    provider = await provide_model(script.ScriptedReply((script.CutStep(politely),)), dialect=dialect)
    assert (await provider.refuse()).transient


async def test_a_call_in_a_stream_that_is_cut_is_not_made(provide_model: MakeProvider) -> None:
    provider = await provide_model(
        script.ScriptedReply((script.CallStep("run", {"command": "rm -r x"}), script.CutStep(politely=True)))
    )
    heard: list[port.Part] = []

    async def listen() -> None:
        async for part in provider.model.stream(port.CompletionRequest((make_user_message("go"),))):
            heard.append(part)

    with pytest.raises(port.ModelError):
        await listen()
    assert [type(part) for part in heard] == [port.UsagePart], "what was sent is counted, and nothing is called"


@ALL
async def test_a_first_token_that_does_not_come_is_not_waited_for(provide_model: MakeProvider, dialect: str) -> None:
    provider = await provide_model(
        script.ScriptedReply((script.HoldStep(), script.TextStep("late"))), dialect=dialect, patience=HASTY
    )

    async with asyncio.timeout(60):
        trouble = await provider.refuse()

    assert trouble.transient
    assert "in time" in trouble.message
    async with asyncio.timeout(60):
        await provider.received.gone.wait()


@ALL
async def test_a_stream_that_falls_silent_is_given_up(provide_model: MakeProvider, dialect: str) -> None:
    provider = await provide_model(
        script.ScriptedReply((script.TextStep("one two"), script.HoldStep())), dialect=dialect, patience=HASTY
    )

    async with asyncio.timeout(60):
        trouble = await provider.refuse()

    assert trouble.transient
    async with asyncio.timeout(60):
        await provider.received.gone.wait()


@BOTH
async def test_signs_of_life_are_waited_for(provide_model: MakeProvider, dialect: str) -> None:
    signs = [step for _ in range(4) for step in (script.PauseStep(0.1), script.PingStep())]
    provider = await provide_model(script.ScriptedReply((*signs, script.TextStep("at last"))), dialect=dialect, patience=HASTY)

    assert (await provider.ask()).text == "at last"


async def test_an_entry_may_ask_for_more_patience(provide_model: MakeProvider) -> None:
    slow = script.ScriptedReply((script.PauseStep(0.5), script.TextStep("at last")))
    provider = await provide_model(slow, patience=HASTY, timeout=30)
    assert (await provider.ask()).text == "at last"


@pytest.mark.parametrize(
    ("dialect", "refusal"),
    [
        ("openai", script.refuse_overflow()),
        ("openai", script.ScriptedRefusal(400, "the request exceeds the available context size", "exceed_context_size_error")),
        (
            "openai",
            script.ScriptedRefusal(400, "Prompt contains 40000 tokens, too large for a model with 32768 maximum context length"),
        ),
        (
            "openai",
            script.ScriptedRefusal(400, "This model's maximum prompt length is 131072 but the request contains 140000 tokens"),
        ),
        ("openai", script.ScriptedRefusal(400, "Please reduce the length of the messages or completion")),
        ("openai", script.ScriptedRefusal(400, "context window exceeds limit (2013)")),
        ("openai", script.ScriptedRefusal(422, "inputs tokens + max_new_tokens must be <= 4096")),
        ("openai", script.ScriptedRefusal(413, "Payload Too Large")),
        ("openai", script.ScriptedRefusal(500, "input is too long: context size exceeded")),
        (
            "openai",
            script.ScriptedRefusal(429, "Request too large: Limit 30000, Requested 40000. The input tokens must be reduced"),
        ),
        ("anthropic", script.ScriptedRefusal(400, "prompt is too long: 210000 tokens > 200000 maximum", "invalid_request_error")),
        (
            "anthropic",
            script.ScriptedRefusal(400, "input length and `max_tokens` exceed context limit: 199000", "invalid_request_error"),
        ),
        ("anthropic", script.ScriptedRefusal(413, "Request exceeds the maximum size", "request_too_large")),
        (
            "google",
            script.ScriptedRefusal(
                400, "The input token count (9) exceeds the maximum number of tokens allowed (8)", code="INVALID_ARGUMENT"
            ),
        ),
    ],
)
async def test_a_conversation_that_is_too_long_is_told_apart(
    provide_model: MakeProvider, dialect: str, refusal: script.ScriptedRefusal
) -> None:
    provider = await provide_model(refusal, dialect=dialect)
    trouble = await provider.refuse()
    assert (trouble.overflow, trouble.transient) == (True, False)


async def test_a_context_that_fills_up_while_the_model_speaks_is_too_long_too(provide_model: MakeProvider) -> None:
    provider = await provide_model(script.reply_text("and then", finish="model_context_window_exceeded"), dialect="anthropic")
    assert (await provider.refuse()).overflow


@BOTH
async def test_a_refused_key_names_the_variable_and_never_the_key(provide_model: MakeProvider, dialect: str) -> None:
    provider = await provide_model(
        script.ScriptedRefusal(401, f"Incorrect API key provided: {SECRET_KEY}", "authentication_error"), dialect=dialect
    )

    trouble = await provider.refuse()

    assert (trouble.transient, trouble.status) == (False, 401)
    assert trouble.message == "work: API key refused; hint: check `WORK_KEY`"


async def test_a_key_that_google_calls_invalid_is_a_refused_key(provide_model: MakeProvider) -> None:
    error = '{"code":400,"message":"API key not valid","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}'
    provider = await provide_model(script.ScriptedRefusal(400, body=f'{{"error":{error}}}'.encode()), dialect="google")
    trouble = await provider.refuse()
    assert not trouble.transient
    assert "WORK_KEY" in trouble.message


async def test_what_a_provider_says_is_quoted_without_secrets_and_not_for_ever(provide_model: MakeProvider) -> None:
    said = f"bad   header\n Authorization: Bearer {SECRET_KEY} and sk-proj-abcdefghijklmnopqrstuvwx " + "blah " * 1000
    provider = await provide_model(script.ScriptedRefusal(400, said))

    trouble = await provider.refuse()

    assert not trouble.transient
    assert "bad header" in trouble.message
    assert "sk-" not in trouble.message
    assert len(trouble.message) <= provider_errors.LONGEST
    assert "\n" not in trouble.message
    assert trouble.__cause__ is None


@BOTH
async def test_an_unknown_model_is_a_mistake_with_a_hint(provide_model: MakeProvider, dialect: str) -> None:
    provider = await provide_model(
        script.ScriptedRefusal(404, "model: scripted", "not_found_error", "model_not_found"), dialect=dialect
    )
    trouble = await provider.refuse()
    assert not trouble.transient
    assert "`scripted`" in trouble.message


async def test_no_quota_is_not_a_rate_limit(provide_model: MakeProvider) -> None:
    provider = await provide_model(
        script.ScriptedRefusal(429, "You exceeded your quota", "insufficient_quota", "insufficient_quota")
    )
    trouble = await provider.refuse()
    assert not trouble.transient
    assert "billing" in trouble.message


@BOTH
async def test_an_error_told_in_the_stream_may_pass(provide_model: MakeProvider, dialect: str) -> None:
    failing = script.ScriptedReply((script.TextStep("well"), script.FailStep("overloaded_error", "Overloaded")))
    provider = await provide_model(failing, dialect=dialect)
    assert (await provider.refuse()).transient


async def test_a_filtered_answer_is_no_answer(provide_model: MakeProvider) -> None:
    for dialect, finish in (("openai", "content_filter"), ("anthropic", "refusal"), ("google", "SAFETY")):
        provider = await provide_model(script.reply_text("I", finish=finish), dialect=dialect)
        trouble = await provider.refuse()
        assert not trouble.transient
        assert "filter" in trouble.message


@BOTH
@pytest.mark.parametrize(
    "rubbish",
    [
        b"data: {not json}\n\n",
        b"data: \xff\xfe\x00\n\n",
        b'data: {"choices": 5}\n\n',
        b'data: {"choices": [{"delta": "text"}]}\n\n',
        b'data: ["a", "list"]\n\n',
        b'data: {"type": "content_block_delta", "index": 99, "delta": {"type": "nonsense"}}\n\n',
        b"event: nonsense\ndata: 7\n\n",
        b"\x00\x01\x02\x03" * 1000,
    ],
)
async def test_rubbish_in_the_stream_is_never_a_crash(provide_model: MakeProvider, dialect: str, rubbish: bytes) -> None:
    """It is trouble, or it is passed over; anything but a `ModelTrouble` fails here."""
    provider = await provide_model(
        script.ScriptedReply((script.RawStep(rubbish), script.TextStep("hello"), script.CutStep())), dialect=dialect
    )
    assert (await provider.refuse()).transient


@ALL
@pytest.mark.parametrize("body", [b"", b"not json", b"[1]", b'"text"', b"{}", b"<html>Bad Gateway</html>", b"\xff\xfe"])
async def test_an_error_without_sense_is_still_understood_by_its_status(
    provide_model: MakeProvider, dialect: str, body: bytes
) -> None:
    provider = await provide_model(script.ScriptedRefusal(502, body=body), dialect=dialect)
    trouble = await provider.refuse()
    assert (trouble.transient, trouble.status) == (True, 502)
    assert "html" not in trouble.message


async def test_a_refusal_as_long_as_a_book_is_not_read_to_its_end(provide_model: MakeProvider) -> None:
    for dialect in ("openai", "anthropic", "google"):
        provider = await provide_model(
            script.ScriptedRefusal(500, body=b"x" * (connection.LONGEST_REFUSAL * 20)), dialect=dialect
        )
        trouble = await provider.refuse()
        assert (trouble.transient, trouble.status) == (True, 500)
        assert len(trouble.message) <= provider_errors.LONGEST


async def test_of_a_refusal_only_so_much_is_taken_from_the_wire() -> None:
    class Endless(httpx2.AsyncByteStream):
        taken = 0

        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                self.taken += 1000
                yield b"x" * 1000

    stream = Endless()
    response = httpx2.Response(500, stream=stream)
    await connection.limit_response(response)
    assert len(await response.aread()) == connection.LONGEST_REFUSAL
    assert stream.taken <= connection.LONGEST_REFUSAL + 1000


async def test_a_line_without_end_is_not_gathered(provide_model: MakeProvider) -> None:
    endless = script.RawStep(b"data: " + b"x" * (connection.LONGEST_LINE + 1))
    provider = await provide_model(script.ScriptedReply((script.TextStep("hello"), endless, script.HoldStep())))
    async with asyncio.timeout(60):
        assert (await provider.refuse()).transient


async def test_a_server_that_is_not_there_may_come_back(provide_model: MakeProvider) -> None:
    provider = await provide_model()
    await provider.server.__aexit__()

    trouble = await provider.refuse()

    assert trouble.transient
    assert f"cannot connect to {provider.server.url}" in trouble.message
