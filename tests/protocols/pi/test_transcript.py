"""The conversation as it stands, what a fork takes along, and a session's figures."""

import itertools
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocols.pi.reels import CAST, OWNER, READ, START_MS, STARTED, SUCCESS, USAGE, encode_entries, make_entries
from tests.protocols.pi.strategies import ANY_EVENT, ONE_OF_EACH

from switchtower.core import events
from switchtower.core.conversation import Conversation
from switchtower.core.ports import engine, journal
from switchtower.core.session import MessageCounts, Run, Session, UsageTotals
from switchtower.protocols.pi import event_messages
from switchtower.protocols.pi.sessions import info, transcript

FINISHED = events.ToolFinished("call_1", "read_file", 1, "contents")
TWO_RUNS = (
    STARTED,
    events.PromptExpanded("hello, and what is in the file", sources=("a.txt",)),
    events.TextDelta("I look"),
    events.MessageCompleted("asst_1", "I look", thinking="Hm", calls=(READ,)),
    USAGE,
    events.ToolCalled("call_1", "read_file", {"path": "a.txt"}),
    FINISHED,
    events.MessageDelivered("msg_1", "and hurry"),
    events.MessageCompleted("asst_2", "Done"),
    USAGE,
    SUCCESS,
    events.RunStarted(text="thanks", by=OWNER, images=(events.Image("image/png", "aGk="),)),
    events.MessageCompleted("asst_3", "Welcome"),
    SUCCESS,
)


def list_texts(messages: list[event_messages.Message]) -> list[str]:
    """The text of each message; of a summary, its own."""
    encoded = json.loads(msgspec.json.encode(messages))
    return [message["summary"] if "summary" in message else message["content"][0].get("text", "") for message in encoded]


def test_messages_are_what_was_said_with_each_ones_usage() -> None:
    messages = json.loads(msgspec.json.encode(transcript.read_messages(make_entries(TWO_RUNS), CAST)))
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "toolResult",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert messages[0] == {"role": "user", "content": [{"type": "text", "text": "hello"}], "timestamp": START_MS + 1}
    assert messages[1] == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm"},
            {"type": "text", "text": "I look"},
            {"type": "toolCall", "id": "call_1", "name": "read_file", "arguments": {"path": "a.txt"}},
        ],
        "api": "openai-completions",
        "provider": "openai",
        "model": "gpt-6.1-terra-0901",
        "usage": {
            "input": 40,
            "output": 20,
            "cacheRead": 60,
            "cacheWrite": 0,
            "totalTokens": 120,
            "cost": {"input": 0.0, "output": 0.0, "cacheRead": 0.0, "cacheWrite": 0.0, "total": 0.25},
        },
        "stopReason": "toolUse",
        "timestamp": START_MS + 3,
    }
    assert messages[2] == {
        "role": "toolResult",
        "toolCallId": "call_1",
        "toolName": "read_file",
        "content": [{"type": "text", "text": "contents"}],
        "isError": False,
        "timestamp": START_MS + 7,
    }
    assert messages[5]["content"][1] == {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    assert (messages[6]["model"], messages[6]["usage"]["output"]) == (CAST.model, 0)


def test_the_usage_of_a_call_that_said_nothing_is_no_messages() -> None:
    said = events.MessageCompleted("asst_1", "", calls=(READ,))
    messages = transcript.read_messages(make_entries((STARTED, said, FINISHED, events.CompactionStarted("threshold"), USAGE)))
    assert [message.usage.output for message in messages if isinstance(message, event_messages.Assistant)] == [0]
    twice = transcript.read_messages(make_entries((STARTED, said, USAGE, msgspec.structs.replace(USAGE, output_tokens=7))))
    assert [message.usage.output for message in twice if isinstance(message, event_messages.Assistant)] == [20]


def test_an_expansion_belongs_to_the_users_last_message() -> None:
    expanded = events.PromptExpanded("hello, and more")
    conversation = transcript.read_imported(make_entries((STARTED, events.MessageCompleted("asst_1", "Hi"), expanded)))
    assert [(message.role, message.text) for message in conversation] == [("user", "hello, and more"), ("assistant", "Hi")]


def test_a_cleared_conversation_begins_anew_with_what_is_imported() -> None:
    imported = events.MessageImported(role="user", text="once", at_ms=5)
    entries = make_entries((*TWO_RUNS, events.ConversationCleared(OWNER), imported))
    assert list_texts(transcript.read_messages(entries)) == ["once"]
    assert transcript.read_messages(entries)[0].timestamp == 5
    assert transcript.list_fork_points(entries) == [event_messages.ForkPoint("e16", "once")]
    assert transcript.find_last_assistant_text(entries) is None


@pytest.mark.parametrize(("kept", "first_kept"), [(0, "e15"), (1, "e13"), (3, "e9"), (4, "e8"), (99, "e1")])
def test_a_summary_takes_the_place_of_what_it_stands_for(kept: int, first_kept: str) -> None:
    compacted = events.ContextCompacted("threshold", "So far", kept, tokens_before=900, tokens_after=10)
    read = transcript.PiTranscript()
    for entry in make_entries((*TWO_RUNS, compacted)):
        read.add(entry)
    said = ["hello", "", "contents", "and hurry", "Done", "thanks", "Welcome"]
    left = {0: [], 1: said[-1:], 3: said[-3:], 4: said[-4:], 99: said}[kept]
    assert list_texts(read.list_messages()) == ["So far", *left]
    assert read.list_messages()[0] == event_messages.CompactionSummary("So far", 900, START_MS + 15)
    assert read.list_imported()[0].text == f"{engine.SUMMARY_HEADING}\n\nSo far"
    assert read.compaction == event_messages.CompactionResult("So far", first_kept, 900)
    assert [point.text for point in read.points] == ["hello", "and hurry", "thanks"]


def test_fork_points_are_the_users_messages_as_they_were_typed() -> None:
    assert transcript.list_fork_points(make_entries(TWO_RUNS)) == [
        event_messages.ForkPoint("e1", "hello"),
        event_messages.ForkPoint("e8", "and hurry"),
        event_messages.ForkPoint("e12", "thanks"),
    ]


def test_a_fork_takes_everything_before_its_message_as_the_model_knew_it() -> None:
    conversation, text = transcript.split_at_message(make_entries(TWO_RUNS), "e8")
    assert text == "and hurry"
    assert tuple(msgspec.structs.replace(message, usage=None, origin=None) for message in conversation) == (
        events.MessageImported(role="user", text="hello, and what is in the file", at_ms=START_MS + 1),
        events.MessageImported(role="assistant", text="I look", at_ms=START_MS + 3, thinking="Hm", calls=(READ,)),
        events.MessageImported(role="tool", text="contents", at_ms=START_MS + 7, call_id="call_1", tool="read_file"),
    )
    assert transcript.split_at_message(make_entries(TWO_RUNS), "e1") == ((), "hello")


@pytest.mark.parametrize("wanted", ["", "e", "e4", "e99", "e-1", "x1", "1", "e1 ", "e²", "e" + "9" * 5_000, "e01x"])
def test_only_a_users_message_can_be_forked_from(wanted: str) -> None:
    with pytest.raises(transcript.UnknownEntry, match="Invalid entry ID for forking"):
        transcript.split_at_message(make_entries(TWO_RUNS), wanted)


def test_an_imported_conversation_reads_as_the_one_it_came_from() -> None:
    entries = make_entries(TWO_RUNS)
    again = make_entries(transcript.read_imported(entries))
    assert transcript.read_imported(again) == transcript.read_imported(entries)
    assert list_texts(transcript.read_messages(again))[1:] == list_texts(transcript.read_messages(entries))[1:]


def test_the_text_of_an_entry_is_trimmed_and_only_the_assistants() -> None:
    said = (
        events.MessageCompleted("asst_1", " Done\n"),
        events.MessageImported(role="assistant", text="\tonce", at_ms=5),
        events.MessageImported(role="user", text="asked", at_ms=5),
        events.TextDelta("Do"),
    )
    assert [transcript.extract_assistant_text(entry) for entry in make_entries(said)] == ["Done", "once", "", ""]
    assert transcript.find_last_assistant_text(make_entries(said[:1])) == "Done"


def test_the_last_assistant_text_is_the_last_that_has_one() -> None:
    assert transcript.find_last_assistant_text(make_entries(TWO_RUNS)) == "Welcome"
    silent = events.MessageCompleted("asst_4", "", calls=(READ,))
    assert transcript.find_last_assistant_text(make_entries((*TWO_RUNS, silent))) == "Welcome"
    assert transcript.find_last_assistant_text([]) is None


def test_a_session_says_who_speaks_until_a_call_of_the_model_does() -> None:
    started = events.SessionStarted(
        engine="agent",
        mode="interactive",
        provider="anthropic",
        model="sonnet",
        sandbox="local",
        workspace=events.Workspace("/work"),
        by=OWNER,
        attach_token_sha256="",
    )
    said = events.MessageCompleted("asst_1", "Hi")
    configured = events.SessionConfigured(OWNER, provider="openai")
    messages = transcript.read_messages(make_entries((started, said, configured, said)))
    assert [(message.provider, message.model) for message in messages if isinstance(message, event_messages.Assistant)] == [
        ("anthropic", "sonnet"),
        ("openai", "openai"),
    ]


@settings(max_examples=50, deadline=None)
@given(st.lists(ANY_EVENT, max_size=40))
def test_any_journal_has_a_transcript_that_can_be_sent(happened: list[events.AnyEvent]) -> None:
    entries = make_entries(happened)
    msgspec.json.encode(transcript.read_messages(entries))
    for point in transcript.list_fork_points(entries):
        assert transcript.split_at_message(entries, point.entryId)[1] == point.text


TELLING = [
    event
    for event in ONE_OF_EACH
    if isinstance(
        event,
        events.SessionConfigured
        | events.RunStarted
        | events.ShellFinished
        | events.MessageDelivered
        | events.PromptExpanded
        | events.MessageCompleted
        | events.UsageReported
        | events.RetryScheduled
        | events.RunCompleted
        | events.ToolFinished
        | events.MessageImported
        | events.ConversationCleared
        | events.ContextCompacted,
    )
]


def test_whatever_comes_after_what_there_is_a_transcript() -> None:
    for three in itertools.product(TELLING, repeat=3):
        entries = make_entries(three)
        transcript.read_messages(entries)
        for point in transcript.list_fork_points(entries):
            assert transcript.split_at_message(entries, point.entryId)[1] == point.text


def test_usage_that_is_told_after_the_conversation_was_cleared_belongs_to_nothing() -> None:
    cleared = make_entries((STARTED, events.MessageCompleted("asst_1", "Hi"), events.ConversationCleared(OWNER), USAGE))
    assert transcript.read_messages(cleared) == []


def make_session(**changes: object) -> Session:
    started = Session(id="sess_1", title="Mine", created_at_ms=1_772_272_800_000)
    for name, value in changes.items():
        setattr(started, name, value)
    return started


def test_session_info_has_only_what_is_known() -> None:
    assert json.loads(msgspec.json.encode(info.make_session_info(make_session(title=""), None))) == {
        "sessionId": "sess_1",
        "thinkingLevel": "off",
        "isStreaming": False,
        "messageCount": 0,
        "createdAt": "2026-02-28T10:00:00.000Z",
    }
    counts = MessageCounts(user=1, assistant=2, tool_calls=1, tool_results=1)
    known = info.make_session_info(make_session(counts=counts, thinking="high"), None, "/s/sess_1.jsonl")
    assert (known.sessionName, known.sessionFile, known.thinkingLevel, known.messageCount) == (
        "Mine",
        "/s/sess_1.jsonl",
        "high",
        4,
    )


@pytest.mark.parametrize(("purpose", "streams"), [(events.Purpose.WORK, True), (events.Purpose.COMPACT, False)])
def test_only_work_of_the_agent_counts_as_streaming(purpose: events.Purpose, streams: bool) -> None:
    run = Run(id="run_1", started_at_ms=1, headless=False, purpose=purpose)
    assert info.make_session_info(make_session(run=run), None).isStreaming is streams


def test_stats_add_up_as_pis_clients_add_them() -> None:
    usage = UsageTotals(calls=2, input_tokens=1_000, output_tokens=50, cache_read_tokens=700, cache_write_tokens=100, cost=0.5)
    counts = MessageCounts(user=1, assistant=2, tool_calls=3, tool_results=3)
    told = info.make_session_stats(make_session(usage=usage, counts=counts), "/s/x.jsonl")
    assert json.loads(msgspec.json.encode(told)) == {
        "sessionFile": "/s/x.jsonl",
        "sessionId": "sess_1",
        "userMessages": 1,
        "assistantMessages": 2,
        "toolCalls": 3,
        "toolResults": 3,
        "totalMessages": 6,
        "tokens": {"input": 200, "output": 50, "cacheRead": 700, "cacheWrite": 100, "total": 1_050},
        "cost": 0.5,
    }


def test_the_use_of_a_context_is_known_once_its_window_is() -> None:
    assert info.make_context_usage(make_session()) is None
    assert info.make_context_usage(make_session(), 2_000) == event_messages.ContextUsage(None, 2_000, None)
    assert info.make_context_usage(make_session(context_tokens=500, context_window=1_000), 2_000) == event_messages.ContextUsage(
        500, 1_000, 50.0
    )


def test_a_stored_session_has_one_path_under_both_names() -> None:
    card = journal.Card(
        session_id="sess_1",
        state=events.SessionState.IDLE,
        created_at_ms=0,
        updated_at_ms=0,
        workspace=events.Workspace("/work"),
        provider="demo",
        engine="agent",
        messages=42,
        alias="s1",
    )
    assert json.loads(
        msgspec.json.encode(info.make_stored_session_info(card, "/s/sess_1.jsonl", name="s1", file_exists=False))
    ) == {
        "sessionId": "s1",
        "sessionFile": "/s/sess_1.jsonl",
        "sessionPath": "/s/sess_1.jsonl",
        "cwd": "/work",
        "createdAt": "1970-01-01T00:00:00.000Z",
        "fileExists": False,
        "messageCount": 42,
    }


def test_moments_beyond_the_calendar_are_told_as_its_end() -> None:
    assert info.format_iso_time(10**18) == "9999-12-31T23:59:59.999Z"
    assert info.format_iso_time(-5) == "1970-01-01T00:00:00.000Z"


def test_a_fork_takes_along_what_people_ran_themselves_and_told_the_model() -> None:
    ran = (
        events.ShellStarted("sh_1", "make test", OWNER),
        events.ShellFinished("sh_1", 2, "1 failed"),
        events.ShellStarted("sh_2", "cat notes", OWNER, told=False),
        events.ShellFinished("sh_2", 0, "private"),
    )
    entries = make_entries((STARTED, events.MessageCompleted("asst_1", "Done"), SUCCESS, *ran, STARTED))

    taken = [message.text for message in transcript.read_imported(entries) if message.text]

    assert len(taken) == 4
    assert "make test" in taken[2]
    assert "1 failed" in taken[2]
    assert not any("private" in text for text in taken)
    assert [type(message) for message in transcript.read_messages(entries)][2:4] == [event_messages.BashExecution] * 2
    assert transcript.read_messages(entries)[2] == event_messages.BashExecution(
        command="make test", output="1 failed", exitCode=2, cancelled=False, truncated=False, timestamp=START_MS + 5
    )
    assert transcript.read_messages(entries)[3].excludeFromContext is True


FAILURE = events.ErrorRaised("PROVIDER_FAILED", "the key is wrong")


@pytest.mark.requirement("pi:messages:failed")
@pytest.mark.parametrize(
    ("ending", "stopped", "error"),
    [
        ((FAILURE, events.RunCompleted(events.Outcome.FAILED, "It failed", 1)), "error", "the key is wrong"),
        ((events.RunCompleted(events.Outcome.FAILED, "It failed", 1),), "error", "It failed"),
        ((events.RunCompleted(events.Outcome.CANCELLED, "The run was cancelled", 130),), "aborted", "The run was cancelled"),
        (
            (
                events.ErrorRaised(events.RUN_INTERRUPTED, "the daemon ended"),
                events.RunCompleted(events.Outcome.FAILED, "Interrupted", 1),
            ),
            "aborted",
            "the daemon ended",
        ),
    ],
)
@pytest.mark.parametrize("said", ["", "Half a"])
def test_a_run_that_did_not_succeed_leaves_a_message_that_says_so_as_it_was_told_live(
    ending: tuple[events.AnyEvent, ...], stopped: str, error: str, said: str
) -> None:
    cut = (events.TextDelta(said), events.MessageCompleted("asst_1", said, cut_short=True)) if said else ()
    happened = (STARTED, *cut, *ending)
    last = json.loads(msgspec.json.encode(transcript.read_messages(make_entries(happened), CAST)))[-1]
    assert (last["stopReason"], last["errorMessage"]) == (stopped, error)
    assert [block["text"] for block in last["content"]] == ([said] if said else [])
    assert last == encode_entries(*happened)[-1]["messages"][-1]
    model = Conversation()
    for entry in make_entries(happened):
        model.add_entry(entry)
    assert [message.text for message in model.messages] == [STARTED.text, *([said] if said else [])]
    taken = transcript.read_imported(make_entries(happened))
    assert [message.text for message in taken] == [STARTED.text, said]
    again = json.loads(msgspec.json.encode(transcript.read_messages(make_entries(taken), CAST)))[-1]
    assert again == last, "a fork keeps it"


def test_a_new_conversation_forgets_what_people_ran_before() -> None:
    entries = make_entries(
        (
            events.ShellStarted("sh_1", "make test", OWNER),
            events.ShellFinished("sh_1", 0, "ok"),
            events.ConversationCleared(OWNER),
            STARTED,
        )
    )

    assert len(transcript.read_imported(entries)) == 1
