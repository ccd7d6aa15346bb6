"""A model asked over HTTP: what it says arrives in parts, and what it is told is what the conversation says."""

from typing import Any

import pytest
from tests.models.parts import READ_FILE, SECRET_KEY, MakeProvider, make_tool_result, make_user_message

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.models import port, remote
from switchtower.testing import model_script as script

DIALECTS = ("openai", "anthropic", "google")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_text_and_thinking_arrive_piece_by_piece_and_the_rest_at_the_end(provide_model: MakeProvider, dialect: str) -> None:
    reply = script.ScriptedReply(
        (
            script.ThinkingStep("let me see", "signed"),
            script.TextStep("Hello big ✓ world"),
            script.CallStep("read_file", {"path": "a.txt"}),
        ),
        script.ScriptedUsage(input=100, output=7),
    )
    provider = await provide_model(reply, dialect=dialect)

    said = await provider.ask(tools=(READ_FILE,))

    assert [part.text for part in said.list_parts(port.ThinkingPart)] == ["let ", "me ", "see"]
    assert [part.text for part in said.list_parts(port.TextPart)] == ["Hello ", "big ", "✓ ", "world"]
    kinds = [type(part) for part in said.parts]
    assert kinds[7:] == [port.ToolCallPart, port.UsagePart] or kinds[7:] == [port.ToolCallPart, port.UsagePart, port.CarryPart]
    assert said.calls == [port.ToolCallPart("read_file", {"path": "a.txt"})]
    assert said.usage == port.UsagePart(100, 7)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_system_prompt_the_tools_and_the_key_go_out(provide_model: MakeProvider, dialect: str) -> None:
    provider = await provide_model(script.reply_text("ok"), dialect=dialect)

    await provider.ask(make_user_message("hi"), system="be brief", tools=(READ_FILE,))

    body = provider.received.body
    if dialect == "openai":
        system, schema = body["messages"][0], body["tools"][0]["function"]["parameters"]
    elif dialect == "anthropic":
        system, schema = body["system"][0]["text"], body["tools"][0]["input_schema"]
    else:
        declared = body["tools"][0]["functionDeclarations"][0]
        system, schema = body["systemInstruction"], declared["parameters_json_schema"]
    assert "be brief" in str(system)
    assert schema["properties"]["path"] == {"type": "string"}
    assert schema["required"] == ["path"]
    assert SECRET_KEY in "".join(provider.received.headers.values())


async def test_a_conversation_is_told_as_it_was_with_our_own_ids_of_calls(provide_model: MakeProvider) -> None:
    reply = script.ScriptedReply(
        (script.TextStep("Two files."), script.CallStep("read_file", {"path": "a"}), script.CallStep("read_file", {"path": "b"}))
    )
    provider = await provide_model(reply, script.reply_text("done"))
    said = await provider.ask(make_user_message("read a and b"), tools=(READ_FILE,))
    first, second = said.message.calls

    await provider.ask(
        make_user_message("read a and b"),
        said.message,
        make_tool_result(first, "A"),
        make_tool_result(second, "no such file", is_error=True),
        make_user_message("go on"),
    )

    call = {"type": "function", "function": {"name": "read_file", "arguments": '{"path":"a"}'}}
    other = {"type": "function", "function": {"name": "read_file", "arguments": '{"path":"b"}'}}
    assert provider.told == [
        {"role": "user", "content": "read a and b"},
        {
            "role": "assistant",
            "content": "Two files.",
            "tool_calls": [{"id": "call_own_1", **call}, {"id": "call_own_2", **other}],
        },
        {"role": "tool", "tool_call_id": "call_own_1", "content": "A"},
        {"role": "tool", "tool_call_id": "call_own_2", "content": "error: no such file"},
        {"role": "user", "content": "go on"},
    ]


async def test_anthropic_gets_its_signed_thinking_back_and_errors_marked_as_such(provide_model: MakeProvider) -> None:
    reply = script.ScriptedReply(
        (
            script.ThinkingStep("first thought", "sig-1"),
            script.TextStep("I look."),
            script.ThinkingStep("second thought", "sig-2"),
            script.CallStep("read_file", {"path": "a"}),
        )
    )
    provider = await provide_model(reply, script.reply_text("done"), dialect="anthropic")
    said = await provider.ask(make_user_message("read a"), tools=(READ_FILE,))

    await provider.ask(make_user_message("read a"), said.message, make_tool_result(said.message.calls[0], "gone", is_error=True))

    assert provider.told[1]["content"] == [
        {"type": "thinking", "thinking": "first thought", "signature": "sig-1"},
        {"type": "text", "text": "I look."},
        {"type": "thinking", "thinking": "second thought", "signature": "sig-2"},
        {"type": "tool_use", "id": "call_own_1", "name": "read_file", "input": {"path": "a"}},
    ]
    [answer] = provider.told[2]["content"]
    assert (answer["tool_use_id"], answer["is_error"]) == ("call_own_1", True)
    assert answer["content"] == [{"type": "text", "text": "gone"}]


async def test_google_gets_the_signature_of_a_call_back(provide_model: MakeProvider) -> None:
    reply = script.ScriptedReply((script.CallStep("read_file", {"path": "a"}, details={"thought": "signature"}),))
    provider = await provide_model(reply, script.reply_text("done"), dialect="google")
    said = await provider.ask(make_user_message("read a"), tools=(READ_FILE,))

    await provider.ask(make_user_message("read a"), said.message, make_tool_result(said.message.calls[0], "A"))

    [called] = provider.received.body["contents"][1]["parts"]
    assert called["thoughtSignature"]
    assert called["functionCall"]["args"] == {"path": "a"}


@pytest.mark.parametrize(
    "change",
    [
        {"thinking": "a thought with a [redacted] in it"},
        {"text": "[redacted]"},
        {"carry": None},
        {"carry": {"by": "somebody else", "checksum": 1, "pieces": []}},
        {"carry": {"by": 5, "rubbish": [None]}},
    ],
)
async def test_thinking_that_is_not_what_was_signed_is_not_handed_back(
    provide_model: MakeProvider, change: dict[str, Any]
) -> None:
    reply = script.ScriptedReply(
        (script.ThinkingStep("a thought", "sig"), script.TextStep("text"), script.CallStep("read_file", {"path": "a"}))
    )
    provider = await provide_model(reply, script.reply_text("done"), dialect="anthropic")
    said = (await provider.ask(tools=(READ_FILE,))).message
    fields = {name: getattr(said, name) for name in said.__struct_fields__}

    await provider.ask(make_user_message("hello"), engine.Message(**{**fields, **change}), make_tool_result(said.calls[0], "A"))

    kinds = [block["type"] for block in provider.told[1]["content"]]
    assert kinds == ["text", "tool_use"]


async def test_thinking_goes_back_in_the_field_it_came_in_and_never_in_the_text(provide_model: MakeProvider) -> None:
    reply = script.ScriptedReply((script.ThinkingStep("hm"), script.CallStep("read_file", {"path": "a"})))
    for kind, expected in (("deepseek", "hm"), ("ollama", None)):  # Ollama's field has another name than the server's
        provider = await provide_model(reply, script.reply_text("done"), dialect=kind)
        said = (await provider.ask(tools=(READ_FILE,))).message
        await provider.ask(make_user_message("hello"), said, make_tool_result(said.calls[0], "A"))
        assert provider.told[1].get("reasoning_content") == expected
        assert not provider.told[1].get("content")


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ('{"path": "a.txt', "not valid JSON"),
        ("not json at all", "not valid JSON"),
        ('["a.txt"]', "not a JSON object"),
        ('"a.txt"', "not a JSON object"),
        ("null", "not a JSON object"),
        ('{"path": "\\ud800"}', "not valid JSON"),
        ('{"path": NaN}', "not valid JSON"),
        ('{"a":' * 3000 + "1" + "}" * 3000, "nested too deeply"),
    ],
)
async def test_arguments_that_are_no_object_are_a_problem_of_the_call(
    provide_model: MakeProvider, args: str, problem: str
) -> None:
    for dialect in ("openai", "anthropic"):
        provider = await provide_model(script.ScriptedReply((script.CallStep("read_file", args),)), dialect=dialect)

        [call] = (await provider.ask(tools=(READ_FILE,))).calls

        assert (call.tool, call.args) == ("read_file", {})
        assert problem in (call.problem or "")


async def test_a_call_without_arguments_has_none(provide_model: MakeProvider) -> None:
    for dialect in ("openai", "anthropic"):
        provider = await provide_model(script.ScriptedReply((script.CallStep("git_status", ""),)), dialect=dialect)
        assert (await provider.ask()).calls == [port.ToolCallPart("git_status", {})]


async def test_a_call_of_an_unknown_tool_passes_and_can_be_told_of(provide_model: MakeProvider) -> None:
    provider = await provide_model(
        script.ScriptedReply((script.CallStep("shell.exec/now!", {"x": 1}),)), script.reply_text("I see")
    )
    said = await provider.ask(tools=(READ_FILE,))
    assert said.calls == [port.ToolCallPart("shell.exec/now!", {"x": 1})]

    await provider.ask(
        make_user_message("hello"), said.message, make_tool_result(said.message.calls[0], "there is no such tool", is_error=True)
    )

    assert provider.told[1]["tool_calls"][0]["function"]["name"] == "shell_exec_now_"


async def test_a_tool_with_a_name_that_providers_refuse_is_offered_under_another(provide_model: MakeProvider) -> None:
    provider = await provide_model(script.ScriptedReply((script.CallStep("files_read", {}),)))
    tool = port.ToolSpec("files.read", "", {"type": "object"})

    said = await provider.ask(tools=(tool,))

    assert provider.received.body["tools"][0]["function"]["name"] == "files_read"
    assert said.calls == [port.ToolCallPart("files.read", {})]


async def test_mistral_gets_ids_of_nine_characters_that_pair_up(provide_model: MakeProvider) -> None:
    provider = await provide_model(script.reply_call("read_file", path="a"), script.reply_text("done"), dialect="mistral")
    said = (await provider.ask()).message

    await provider.ask(make_user_message("hello"), said, make_tool_result(said.calls[0], "A"))

    called = provider.told[1]["tool_calls"][0]["id"]
    assert len(called) == 9
    assert called.isalnum()
    assert provider.told[2]["tool_call_id"] == called


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
async def test_what_providers_refuse_in_a_conversation_does_not_get_out(provide_model: MakeProvider, dialect: str) -> None:
    provider = await provide_model(script.reply_text("ok"), dialect=dialect)
    calls = (events.ToolRequest("call_a", "read_file", {}), events.ToolRequest("call_b", "run", {}))
    lost = engine.Message(role="tool", text="of a call long gone", call_id="call_gone", tool="run")

    await provider.ask(
        lost,
        make_user_message("go"),
        engine.Message(role="assistant", text=" \n", calls=calls),
        engine.Message(role="tool", text="\n", call_id="call_a", tool="read_file"),
        make_user_message("   "),
        engine.Message(role="assistant", text=""),
        make_user_message("still there?"),
    )

    told = str(provider.told)
    assert "long gone" not in told
    assert told.count("call_b") == 2, "a call without a result gets one"
    assert "not run" in told
    assert told.count("(nothing)") == 2, "an empty result and an empty message are said in words"
    assert "'content': ''" not in told
    assert "'text': ''" not in told
    assert "'text': ' \\n'" not in told


async def test_tokens_are_counted_with_what_was_cached(provide_model: MakeProvider) -> None:
    usage = script.ScriptedUsage(input=10, output=4, cache_read=90, cache_write=5)
    for dialect in ("openai", "anthropic"):
        provider = await provide_model(script.reply_text("ok", usage=usage), dialect=dialect)
        said = await provider.ask()
        assert said.usage == port.UsagePart(105, 4, cache_read_tokens=90, cache_write_tokens=5)


async def test_a_configured_price_makes_the_cost(provide_model: MakeProvider) -> None:
    provider = await provide_model(
        script.reply_text("ok", usage=script.ScriptedUsage(1_000_000, 500_000)), price_in=2.0, price_out=8.0
    )

    assert (await provider.ask()).usage.cost == pytest.approx(6.0)


async def test_a_server_that_does_not_count_is_estimated(provide_model: MakeProvider) -> None:
    provider = await provide_model(script.reply_text("four" * 10, usage=None))

    usage = (await provider.ask(make_user_message("x" * 400), system="y" * 40)).usage

    assert usage == port.UsagePart(110, 10, is_estimate=True)


@pytest.mark.parametrize(
    ("asked", "sent"), [("off", "none"), ("minimal", "minimal"), ("low", "low"), ("xhigh", "xhigh"), (None, "medium")]
)
async def test_the_level_of_thinking_is_asked_for(provide_model: MakeProvider, asked: str | None, sent: str) -> None:
    provider = await provide_model(script.reply_text("ok"), thinking="medium")

    await provider.ask(thinking=asked)

    assert provider.received.body["reasoning_effort"] == sent


async def test_a_model_that_is_not_known_to_think_is_not_asked_to(provide_model: MakeProvider) -> None:
    provider = await provide_model(script.reply_text("ok"), dialect="openai-compatible")

    await provider.ask(thinking="high")

    assert "reasoning_effort" not in provider.received.body


async def test_a_level_that_does_not_exist_is_trouble_before_anything_is_sent(provide_model: MakeProvider) -> None:
    provider = await provide_model(script.reply_text("ok"))

    trouble = await provider.refuse(thinking="enormous")

    assert not trouble.transient
    assert provider.server.requests == []


async def test_anthropic_is_asked_to_cache_the_conversation(provide_model: MakeProvider) -> None:
    provider = await provide_model(script.reply_text("ok"), dialect="anthropic")
    await provider.ask(system="be brief")
    assert provider.received.body["cache_control"]["type"] == "ephemeral"


async def test_configured_headers_go_out(provide_model: MakeProvider) -> None:
    for dialect in DIALECTS:
        provider = await provide_model(script.reply_text("ok"), dialect=dialect, headers={"X-Team": "tower"})
        await provider.ask()
        assert provider.received.headers["x-team"] == "tower"


async def test_an_answer_cut_at_the_models_limit_says_so(provide_model: MakeProvider) -> None:
    for dialect, finish in (("openai", "length"), ("anthropic", "max_tokens"), ("google", "MAX_TOKENS")):
        provider = await provide_model(script.reply_text("and so", finish=finish), dialect=dialect)
        said = await provider.ask()
        assert (said.text, said.list_parts(port.EndingPart)) == ("and so", [port.EndingPart("length")])


async def test_a_call_cut_at_the_models_limit_is_not_run(provide_model: MakeProvider) -> None:
    cut = script.ScriptedReply((script.CallStep("write_file", '{"path": "a", "content": "abc'),), finish="length")
    provider = await provide_model(cut)

    [call] = (await provider.ask()).calls

    assert "limit" in (call.problem or "")
    assert call.args == {}


async def test_ten_megabytes_arrive_whole(provide_model: MakeProvider) -> None:
    for dialect in ("openai", "anthropic"):
        provider = await provide_model(script.reply_flood(10_000_000), dialect=dialect)
        assert len((await provider.ask()).text) == 10_000_000


async def test_a_message_without_end_is_ended(provide_model: MakeProvider) -> None:
    provider = await provide_model(script.reply_flood(remote.LONGEST_MESSAGE + 1, piece=1_000_000))

    trouble = await provider.refuse()

    assert not trouble.transient
    assert "answer longer than" in trouble.message


async def test_a_character_cut_between_two_pieces_is_one_character(provide_model: MakeProvider) -> None:
    def chunk(escaped: str) -> script.RawStep:
        choice = f'{{"index":0,"delta":{{"content":"{escaped}"}},"finish_reason":null}}'
        frame = f'{{"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{choice}]}}'
        return script.RawStep(f"data: {frame}\n\n".encode())

    provider = await provide_model(
        script.ScriptedReply((chunk("a\\ud83d"), chunk("\\ude00b"), chunk("\\ud83d"), chunk("c\\udc00")))
    )

    text = (await provider.ask()).text

    assert text == "a😀b�c�"


async def test_connections_are_used_again(provide_model: MakeProvider) -> None:
    provider = await provide_model(*[script.reply_text("ok")] * 5)
    for _ in range(5):
        await provider.ask()
    assert provider.server.connections == 1


async def test_a_model_knows_its_names(provide_model: MakeProvider) -> None:
    provider = await provide_model(script.reply_text("ok"), context_window=32_000)
    assert (provider.model.provider, provider.model.name, provider.model.context_window) == ("work", "scripted", 32_000)
    assert SECRET_KEY not in repr(provider)


async def test_a_server_on_this_machine_is_not_asked_through_a_proxy(
    provide_model: MakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    provider = await provide_model(script.reply_text("ok"))
    assert (await provider.ask()).text == "ok"


async def test_only_openai_hears_of_an_organisation_there(provide_model: MakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-mine")
    provider = await provide_model(script.reply_text("ok"), dialect="groq")
    await provider.ask()
    assert "mine" not in str(provider.received.headers)


@pytest.mark.parametrize(
    ("dialect", "field"), [("openai", "max_completion_tokens"), ("openai-compatible", "max_tokens"), ("anthropic", "max_tokens")]
)
async def test_the_length_of_an_answer_is_limited_at_the_provider(provide_model: MakeProvider, dialect: str, field: str) -> None:
    provider = await provide_model(script.reply_text("ok"), dialect=dialect)
    await provider.ask(max_output_tokens=50)
    assert provider.received.body[field] == 50


async def test_google_is_sent_the_limit_of_an_answer_too(provide_model: MakeProvider) -> None:
    provider = await provide_model(script.reply_text("ok"), dialect="google")
    await provider.ask(max_output_tokens=50)
    assert provider.received.body["generationConfig"]["maxOutputTokens"] == 50


@pytest.mark.parametrize(
    ("complaint", "then"),
    [
        ("max_tokens: 500000 > 64000, which is the maximum allowed number of output tokens", 64_000),
        ("max_tokens is too large: 500000. This model supports at most 16384 completion tokens", 16_384),
        ("max_tokens is not right", 4_096),
    ],
)
async def test_a_limit_that_is_too_large_for_the_model_is_lowered(provide_model: MakeProvider, complaint: str, then: int) -> None:
    provider = await provide_model(
        script.ScriptedRefusal(400, complaint), script.reply_text("ok"), script.reply_text("ok"), dialect="anthropic"
    )
    assert (await provider.ask(max_output_tokens=500_000)).text == "ok"
    assert provider.received.body["max_tokens"] == then
    await provider.ask(max_output_tokens=500_000)
    assert [request.body["max_tokens"] for request in provider.server.requests] == [500_000, then, then]


async def test_a_refusal_for_another_reason_is_not_answered_with_a_lower_limit(provide_model: MakeProvider) -> None:
    provider = await provide_model(script.ScriptedRefusal(400, "messages: at least one message is required"))
    await provider.refuse(max_output_tokens=500_000)
    assert len(provider.server.requests) == 1


async def test_what_a_cut_stream_took_is_estimated_and_priced(provide_model: MakeProvider) -> None:
    provider = await provide_model(
        script.ScriptedReply((script.TextStep("so far so good"), script.CutStep())), price_in=1, price_out=1_000_000
    )
    parts: list[port.Part] = []

    async def listen() -> None:
        async for part in provider.model.stream(port.CompletionRequest((make_user_message("go"),))):
            parts.append(part)

    with pytest.raises(port.ModelError):
        await listen()
    [usage] = [part for part in parts if isinstance(part, port.UsagePart)]
    assert (usage.is_estimate, usage.output_tokens, usage.cost) == (True, 4, pytest.approx(4, abs=0.01))
