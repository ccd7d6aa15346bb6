"""The demo model: what it understands, and that it needs nothing but the conversation."""

import asyncio
from itertools import pairwise

import pytest

from switchtower.core import engine, errors, events
from switchtower.models import demo, port, registry


def user(text: str) -> engine.Message:
    return engine.Message(role="user", text=text)


async def reply(*conversation: engine.Message) -> list[port.Part]:
    return [part async for part in demo.DemoModel(0).stream(conversation, ())]


def text_of(parts: list[port.Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, port.TextDelta))


def thinking_of(parts: list[port.Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, port.ThinkingDelta))


def calls_of(parts: list[port.Part]) -> list[port.ToolCall]:
    return [part for part in parts if isinstance(part, port.ToolCall)]


async def whole_run(request: str, results: dict[str, tuple[str, bool]]) -> tuple[list[port.ToolCall], list[str]]:
    """Plays the engine: answers every call from a table by tool, until the model calls for nothing more."""
    conversation = [user(request)]
    calls: list[port.ToolCall] = []
    texts: list[str] = []
    while True:
        parts = await reply(*conversation)
        texts.append(text_of(parts))
        if not calls_of(parts):
            return calls, texts
        [call] = calls_of(parts)
        calls.append(call)
        request_made = events.ToolRequest(call_id=f"call_{len(calls)}", tool=call.tool, args=call.args)
        conversation.append(engine.Message(role="assistant", text=texts[-1], calls=(request_made,)))
        text, is_error = results[call.tool]
        conversation.append(
            engine.Message(role="tool", text=text, call_id=request_made.call_id, tool=call.tool, is_error=is_error)
        )


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("list src", port.ToolCall("list_dir", {"path": "src"})),
        ("list", port.ToolCall("list_dir", {"path": "."})),
        ("Read README.md", port.ToolCall("read_file", {"path": "README.md"})),
        ("  READ `my notes.txt`", port.ToolCall("read_file", {"path": "my notes.txt"})),
        ("write notes.txt: hello: world", port.ToolCall("write_file", {"path": "notes.txt", "content": "hello: world"})),
        ('write "a b.txt":', port.ToolCall("write_file", {"path": "a b.txt", "content": ""})),
        ("run: make test | tail -1", port.ToolCall("run", {"command": "make test | tail -1"})),
    ],
)
async def test_an_explicit_request_becomes_a_call(line: str, call: port.ToolCall) -> None:
    parts = await reply(user(line))

    assert calls_of(parts) == [call]
    assert isinstance(parts[0], port.ThinkingDelta)
    assert "demo model" in text_of(parts)


@pytest.mark.parametrize(
    "request_text", ["hello", "", "read the manual", "please read README.md", "run tests", "count on me", "say:"]
)
async def test_anything_else_gets_an_honest_answer(request_text: str) -> None:
    parts = await reply(user(request_text))

    assert text_of(parts).startswith("I am Switchtower's demo model")
    assert "`read PATH`" in text_of(parts)
    assert calls_of(parts) == []


async def test_a_count_streams_exactly_its_numbers_one_a_delta() -> None:
    parts = await reply(user("count 1000"))

    assert text_of(parts) == " ".join(str(number) for number in range(1, 1001))
    assert sum(isinstance(part, port.TextDelta) for part in parts) == 1000


async def test_say_streams_exactly_its_text_word_by_word() -> None:
    parts = await reply(user("say: two  words\tand ✓"))

    assert [part.text for part in parts if isinstance(part, port.TextDelta)] == ["two  ", "words\t", "and ", "✓"]


async def test_think_streams_its_text_as_thinking() -> None:
    parts = await reply(user("think: what is red"))

    assert thinking_of(parts).endswith("what is red")
    assert text_of(parts) == demo.CLOSING


async def test_several_lines_are_several_steps_each_with_its_own_call() -> None:
    request = "Please do this.\nwrite a.txt: one\ncount 3\nread a.txt\nrun: exit 3\nsay: bye"
    results = {"write_file": ("created `a.txt`", False), "read_file": ("one\ntwo\n", False), "run": ("[exit code 3]", True)}

    calls, texts = await whole_run(request, results)

    assert [call.tool for call in calls] == ["write_file", "read_file", "run"]
    assert texts[1].splitlines() == ["It says: created `a.txt`", "1 2 3", "I will read `a.txt`."]
    assert texts[2].splitlines() == ["The file has 2 lines; the first is: one", "I will run `exit 3`."]
    assert texts[3].splitlines() == ["That did not work: [exit code 3]", "bye", demo.CLOSING]


@pytest.mark.parametrize(
    ("request_text", "result", "remark"),
    [
        ("list", ("a.txt\nsrc/", False), "The folder has 2 entries: a.txt, src/"),
        ("read a.txt", ("", False), "The file is empty."),
        ("read a.txt", ("`a.txt` does not exist", True), "That did not work: `a.txt` does not exist"),
        ("write a.txt: x", ("denied: not now", True), "That did not work: denied: not now"),
        ("run: make", ("x" * 900 + "\n[exit code 0]", False), f"It says: … {'x' * 186} [exit code 0]"),
    ],
)
async def test_each_result_gets_a_remark(request_text: str, result: tuple[str, bool], remark: str) -> None:
    _, texts = await whole_run(request_text, dict.fromkeys(["list_dir", "read_file", "write_file", "run"], result))

    assert texts[-1].splitlines() == [remark, demo.CLOSING]


async def test_the_same_conversation_always_gets_the_same_reply() -> None:
    conversation = [
        user("read a\nread b"),
        engine.Message(role="assistant", text="", calls=(events.ToolRequest("call_1", "read_file", {}),)),
    ]
    conversation.append(engine.Message(role="tool", text="x", call_id="call_1", tool="read_file"))

    assert await reply(*conversation) == await reply(*conversation)
    assert calls_of(await reply(*conversation)) == [port.ToolCall("read_file", {"path": "b"})]


async def test_only_the_last_user_message_counts() -> None:
    parts = await reply(user("run: rm x"), engine.Message(role="assistant", text="done"), user("say: hi"))

    assert text_of(parts) == "hi"
    assert calls_of(parts) == []


async def test_a_long_stream_without_delay_lets_others_run() -> None:
    turns_of_others: list[int] = []
    streamed = 0

    async def other() -> None:
        while True:
            turns_of_others.append(streamed)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    async for _ in demo.DemoModel(0).stream([user("count 500")], ()):
        streamed += 1
    task.cancel()

    assert max(later - earlier for earlier, later in pairwise(turns_of_others)) <= 20


async def test_a_delay_stands_between_words() -> None:
    stream = demo.DemoModel(3600).stream([user("say: a b")], ())
    await anext(stream)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await anext(stream)


async def test_the_registry_opens_the_demo_model_and_refuses_others_with_a_hint() -> None:
    model = registry.open_model("demo", None, demo_delay=0)
    parts = [part async for part in model.stream([user("say: hi")], ())]
    assert text_of(parts) == "hi"

    with pytest.raises(errors.ProviderNotConfigured) as refusal:
        registry.open_model("ollama", "llama3")
    assert "ollama" in refusal.value.message
    assert refusal.value.hint is not None
    assert "`demo`" in refusal.value.hint
