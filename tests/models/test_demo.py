"""The demo model: what it understands, and that it needs nothing but the conversation."""

import asyncio
from itertools import pairwise

import pytest

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.models import demo, port


def make_user_message(text: str) -> engine.Message:
    return engine.Message(role="user", text=text)


def ask_demo(*conversation: engine.Message, system: str = "") -> port.CompletionRequest:
    return port.CompletionRequest(conversation, system=system)


async def reply(*conversation: engine.Message, system: str = "") -> list[port.Part]:
    return [part async for part in demo.DemoModel(0).stream(ask_demo(*conversation, system=system))]


def join_text(parts: list[port.Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, port.TextPart))


def join_thinking(parts: list[port.Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, port.ThinkingPart))


def list_calls(parts: list[port.Part]) -> list[port.ToolCallPart]:
    return [part for part in parts if isinstance(part, port.ToolCallPart)]


async def run_whole(request: str, results: dict[str, tuple[str, bool]]) -> tuple[list[port.ToolCallPart], list[str]]:
    """Plays the engine: answers every call from a table by tool, until the model calls for nothing more."""
    conversation = [make_user_message(request)]
    calls: list[port.ToolCallPart] = []
    texts: list[str] = []
    while True:
        parts = await reply(*conversation)
        texts.append(join_text(parts))
        if not list_calls(parts):
            return calls, texts
        requests_made = tuple(
            events.ToolRequest(call_id=f"call_{len(calls) + number}", tool=call.tool, args=call.args)
            for number, call in enumerate(list_calls(parts), start=1)
        )
        calls += list_calls(parts)
        conversation.append(engine.Message(role="assistant", text=texts[-1], calls=requests_made))
        for made in requests_made:
            text, is_error = results[made.tool]
            conversation.append(engine.Message(role="tool", text=text, call_id=made.call_id, tool=made.tool, is_error=is_error))


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("list src", port.ToolCallPart("list_dir", {"path": "src"})),
        ("ask: Which one?", port.ToolCallPart("ask_user", {"question": "Which one?"})),
        (
            "ask: Which? | red | dark green",
            port.ToolCallPart("ask_user", {"question": "Which?", "options": ["red", "dark green"]}),
        ),
        ("list", port.ToolCallPart("list_dir", {"path": "."})),
        ("Read README.md", port.ToolCallPart("read_file", {"path": "README.md"})),
        ("  READ `my notes.txt`", port.ToolCallPart("read_file", {"path": "my notes.txt"})),
        ("write notes.txt: hello: world", port.ToolCallPart("write_file", {"path": "notes.txt", "content": "hello: world"})),
        ('write "a b.txt":', port.ToolCallPart("write_file", {"path": "a b.txt", "content": ""})),
        ("run: make test | tail -1", port.ToolCallPart("run", {"command": "make test | tail -1"})),
        ("search TODO", port.ToolCallPart("search", {"pattern": "TODO"})),
        ('search "def main" in src', port.ToolCallPart("search", {"pattern": "def main", "path": "src"})),
        ("edit a.py: x = 1 => x = 2", port.ToolCallPart("edit_file", {"path": "a.py", "old": "x = 1", "new": "x = 2"})),
        ("edit `my file`: gone => ", port.ToolCallPart("edit_file", {"path": "my file", "old": "gone", "new": ""})),
        ("git status", port.ToolCallPart("git_status", {})),
        ("Git  Diff", port.ToolCallPart("git_diff", {})),
        ("commit: Fix: the thing", port.ToolCallPart("git_commit", {"message": "Fix: the thing"})),
    ],
)
async def test_an_explicit_request_becomes_a_call(line: str, call: port.ToolCallPart) -> None:
    parts = await reply(make_user_message(line))

    assert list_calls(parts) == [call]
    assert isinstance(parts[0], port.ThinkingPart)
    assert "demo model" in join_text(parts)


@pytest.mark.parametrize(
    "request_text",
    [
        "hello",
        "",
        "read the manual",
        "please read README.md",
        "run tests",
        "count on me",
        "say:",
        "git push",
        "search the web",
        "read all:",
    ],
)
async def test_anything_else_is_a_failed_call_that_lists_what_is_understood(request_text: str) -> None:
    with pytest.raises(port.ModelError) as refused:
        await reply(make_user_message(request_text))

    assert refused.value.message == demo.NOT_UNDERSTOOD
    assert "`read PATH`" in refused.value.message
    assert not refused.value.transient


async def test_a_count_streams_exactly_its_numbers_one_a_delta() -> None:
    parts = await reply(make_user_message("count 1000"))

    assert join_text(parts) == " ".join(str(number) for number in range(1, 1001))
    assert sum(isinstance(part, port.TextPart) for part in parts) == 1000


async def test_say_streams_exactly_its_text_word_by_word() -> None:
    parts = await reply(make_user_message("say: two  words\tand ✓"))

    assert [part.text for part in parts if isinstance(part, port.TextPart)] == ["two  ", "words\t", "and ", "✓"]


async def test_think_streams_its_text_as_thinking() -> None:
    parts = await reply(make_user_message("think: what is red"))

    assert join_thinking(parts).endswith("what is red")
    assert join_text(parts) == demo.CLOSING


async def test_several_lines_are_several_steps_each_with_its_own_call() -> None:
    request = "Please do this.\nwrite a.txt: one\ncount 3\nread a.txt\nrun: exit 3\nsay: bye"
    results = {"write_file": ("created `a.txt`", False), "read_file": ("one\ntwo\n", False), "run": ("[exit code 3]", True)}

    calls, texts = await run_whole(request, results)

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
    _, texts = await run_whole(request_text, dict.fromkeys(["list_dir", "read_file", "write_file", "run"], result))

    assert texts[-1].splitlines() == [remark, demo.CLOSING]


async def test_read_all_makes_its_calls_in_one_message_and_remarks_on_each_result() -> None:
    parts = await reply(make_user_message("read all: a.txt 'b c.txt' d\nsay: bye"))
    assert list_calls(parts) == [port.ToolCallPart("read_file", {"path": path}) for path in ("a.txt", "b c.txt", "d")]

    calls, texts = await run_whole("read all: a b\nlist\nsay: bye", {"read_file": ("x", False), "list_dir": ("", True)})

    assert [call.tool for call in calls] == ["read_file", "read_file", "list_dir"]
    assert texts[1].splitlines() == [*["The file has 1 line; the first is: x"] * 2, "I will list `.`."]
    assert texts[2].splitlines()[1:] == ["bye", demo.CLOSING]


async def test_a_message_that_steers_is_followed_from_its_own_beginning() -> None:
    called = engine.Message(role="assistant", text="", calls=(events.ToolRequest("call_1", "run", {}),))
    done = engine.Message(role="tool", text="ok", call_id="call_1", tool="run")

    parts = await reply(make_user_message("run: make\nrun: more"), called, done, make_user_message("read a\nread b"))

    assert list_calls(parts) == [port.ToolCallPart("read_file", {"path": "a"})]


async def test_asked_to_summarise_it_says_what_was_asked_and_done() -> None:
    called = engine.Message(role="assistant", text="", calls=(events.ToolRequest("call_1", "run", {}),))
    conversation = (make_user_message("run: make"), called, engine.Message(role="tool", text="ok", call_id="call_1", tool="run"))

    parts = await reply(*conversation, make_user_message("Please sum it up. run: rm x"), system="You summarise conversations.")

    assert list_calls(parts) == []
    assert join_text(parts).splitlines() == [
        "Summary by the demo model of 3 messages.",
        "The user asked: run: make",
        "Tools used: run (1)",
    ]
    alone = await reply(make_user_message("one\ntwo"), system="You summarise briefly.")
    assert join_text(alone) == "Summary by the demo model of 2 lines."


async def test_it_counts_roughly_and_costs_nothing() -> None:
    parts = await reply(make_user_message("say: " + "word " * 100), system="x" * 400)

    assert isinstance(parts[-1], port.UsagePart)
    said = len(join_text(parts)) + len(join_thinking(parts))
    assert parts[-1] == port.UsagePart((505 + 400) // 4, said // 4, cost=0.0)


def test_it_knows_what_it_is() -> None:
    model = demo.DemoModel()
    assert (model.provider, model.name, model.context_window) == ("demo", "demo", 128_000)


async def test_the_same_conversation_always_gets_the_same_reply() -> None:
    conversation = [
        make_user_message("read a\nread b"),
        engine.Message(role="assistant", text="", calls=(events.ToolRequest("call_1", "read_file", {}),)),
    ]
    conversation.append(engine.Message(role="tool", text="x", call_id="call_1", tool="read_file"))

    assert await reply(*conversation) == await reply(*conversation)
    assert list_calls(await reply(*conversation)) == [port.ToolCallPart("read_file", {"path": "b"})]


async def test_only_the_last_user_message_counts() -> None:
    parts = await reply(
        make_user_message("run: rm x"), engine.Message(role="assistant", text="done"), make_user_message("say: hi")
    )

    assert join_text(parts) == "hi"
    assert list_calls(parts) == []


async def test_a_long_stream_without_delay_lets_others_run() -> None:
    turns_of_others: list[int] = []
    streamed = 0

    async def other() -> None:
        while True:
            turns_of_others.append(streamed)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    async for _ in demo.DemoModel(0).stream(ask_demo(make_user_message("count 500"))):
        streamed += 1
    task.cancel()

    assert max(later - earlier for earlier, later in pairwise(turns_of_others)) <= 20


async def test_a_delay_stands_between_words() -> None:
    stream = demo.DemoModel(3600).stream(ask_demo(make_user_message("say: a b")))
    await anext(stream)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await anext(stream)


async def test_it_says_how_many_pictures_it_was_shown_once() -> None:
    picture = events.Image("image/png", "AAAA")
    message = engine.Message(role="user", text="read a.txt", images=(picture,))
    parts = await reply(message)
    assert join_text(parts).startswith("I was shown 1 picture, which I cannot see.\n")

    request = events.ToolRequest(call_id="call_1", tool="read_file", args={"path": "a.txt"})
    answered = engine.Message(role="assistant", text="", calls=(request,))
    result = engine.Message(role="tool", text="x", call_id="call_1", tool="read_file")
    assert "picture" not in join_text(await reply(message, answered, result))
