"""pi's session files: what is read from good ones, from old ones and from bad ones; and that ours are read back."""

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocols.pi.reels import READ, make_entries
from tests.protocols.pi.strategies import TEXTS

from switchtower.core import codec, events
from switchtower.core.ports import engine
from switchtower.protocols.pi.sessions import jsonl, transcript

HEADER = {
    "type": "session",
    "version": 3,
    "id": "11111111-2222",
    "timestamp": "2026-02-28T10:00:00.000Z",
    "cwd": "/home/u/project",
}
AT = 1_772_272_800_000


def encode_lines(*entries: Any) -> bytes:
    return b"".join(entry if isinstance(entry, bytes) else json.dumps(entry).encode() + b"\n" for entry in entries)


def make_entry(id_: str, parent: str | None, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "id": id_, "parentId": parent, "timestamp": "2026-02-28T10:00:01.500Z", **fields}


def make_user_entry(id_: str, parent: str | None, text: Any, **fields: Any) -> dict[str, Any]:
    return make_entry(id_, parent, message={"role": "user", "content": text, **fields})


def list_texts(imported: jsonl.ImportedSession) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in imported.messages]


def read(*entries: Any) -> jsonl.ImportedSession:
    return jsonl.read_session_file([encode_lines(HEADER, *entries)])


def test_a_session_is_read_with_its_messages_name_and_model() -> None:
    call = {"type": "toolCall", "id": "toolu_1", "name": "bash", "arguments": {"command": "ls"}}
    assistant = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "I look"}, call],
        "provider": "anthropic",
        "model": "sonnet",
        "stopReason": "toolUse",
        "timestamp": AT + 2_000,
    }
    result = {
        "role": "toolResult",
        "toolCallId": "toolu_1",
        "toolName": "bash",
        "content": [{"type": "text", "text": "a.txt"}],
        "isError": True,
        "timestamp": AT + 3_000,
    }
    picture = [{"type": "text", "text": "hello"}, {"type": "image", "data": "aGk=", "mimeType": "image/png"}]
    imported = read(
        {"type": "model_change", "id": "a", "parentId": None, "timestamp": "x", "provider": "openai", "modelId": "gpt"},
        {"type": "thinking_level_change", "id": "b", "parentId": "a", "timestamp": "x", "thinkingLevel": "high"},
        make_user_entry("c", "b", picture),
        make_entry("d", "c", message=assistant),
        make_entry("e", "d", message=result),
        {"type": "session_info", "id": "f", "parentId": "e", "timestamp": "x", "name": "Mine"},
        {"type": "label", "id": "g", "parentId": "f", "timestamp": "x", "targetId": "c", "label": "here"},
    )
    assert imported == jsonl.ImportedSession(
        session_id="11111111-2222",
        name="Mine",
        cwd="/home/u/project",
        created_at_ms=AT,
        messages=(
            events.MessageImported(role="user", text="hello", at_ms=AT + 1_500, images=(events.Image("image/png", "aGk="),)),
            events.MessageImported(
                role="assistant",
                text="I look",
                at_ms=AT + 2_000,
                thinking="Hm",
                calls=(events.ToolRequest(call_id="toolu_1", tool="bash", args={"command": "ls"}),),
                origin={"provider": "anthropic", "model": "sonnet", "stopReason": "toolUse"},
            ),
            events.MessageImported(role="tool", text="a.txt", at_ms=AT + 3_000, call_id="toolu_1", tool="bash", is_error=True),
        ),
        skipped=0,
        provider="anthropic",
        model="sonnet",
        thinking="high",
    )


def test_the_conversation_is_the_path_from_the_last_entry_to_the_root() -> None:
    imported = read(
        make_user_entry("a", None, "one"),
        make_user_entry("b", "a", "left"),
        make_user_entry("c", "a", "right"),
        make_user_entry("d", "c", "on"),
    )
    assert list_texts(imported) == [("user", "one"), ("user", "right"), ("user", "on")]


@pytest.mark.parametrize("version", [1, None])
def test_an_old_file_is_a_list_and_its_header_knows_the_model(version: int | None) -> None:
    header = {key: value for key, value in HEADER.items() if key != "version"} | ({"version": version} if version else {})
    old = [
        {"type": "message", "timestamp": "2026-02-28T10:00:01Z", "message": {"role": "user", "content": text}}
        for text in ("one", "two", "three")
    ]
    compaction = {"type": "compaction", "timestamp": "x", "summary": "So far", "firstKeptEntryIndex": 2, "tokensBefore": 9}
    imported = jsonl.read_session_file(
        [encode_lines(header | {"provider": "openai", "modelId": "gpt", "thinkingLevel": "low"}, *old, compaction, old[0])]
    )
    assert [text for _, text in list_texts(imported)] == [f"{engine.SUMMARY_HEADING}\n\nSo far", "two", "three", "one"]
    assert (imported.provider, imported.model, imported.thinking) == ("openai", "gpt", "low")


def test_version_two_calls_custom_messages_by_their_old_name() -> None:
    data = encode_lines(HEADER | {"version": 2}, make_entry("a", None, message={"role": "hookMessage", "content": "from a hook"}))
    assert list_texts(jsonl.read_session_file([data])) == [("user", "from a hook")]


def test_the_last_compaction_counts_and_keeps_from_the_entry_it_names() -> None:
    compaction = {"type": "compaction", "timestamp": "x", "tokensBefore": 9}
    imported = read(
        make_user_entry("a", None, "one"),
        compaction | {"id": "b", "parentId": "a", "summary": "First", "firstKeptEntryId": "a"},
        make_user_entry("c", "b", "two"),
        {"type": "label", "id": "d", "parentId": "c", "timestamp": "x"},
        make_user_entry("e", "d", "three"),
        compaction | {"id": "f", "parentId": "e", "summary": "Second", "firstKeptEntryId": "d"},
        make_user_entry("g", "f", "four"),
    )
    assert [text for _, text in list_texts(imported)] == [f"{engine.SUMMARY_HEADING}\n\nSecond", "three", "four"]
    gone = read(
        make_user_entry("a", None, "one"), compaction | {"id": "b", "parentId": "a", "summary": "S", "firstKeptEntryId": "zzz"}
    )
    assert [text for _, text in list_texts(gone)] == [f"{engine.SUMMARY_HEADING}\n\nS"]


def test_what_only_pi_knows_becomes_what_the_model_was_told_there() -> None:
    bash = {"role": "bashExecution", "command": "ls", "output": "a.txt", "exitCode": 0, "cancelled": False}
    imported = read(
        make_entry("a", None, message=bash),
        make_entry("b", "a", message=bash | {"excludeFromContext": True}),
        {"type": "custom_message", "id": "c", "parentId": "b", "timestamp": "x", "content": "from an extension"},
        {"type": "branch_summary", "id": "d", "parentId": "c", "timestamp": "x", "summary": "A branch", "fromId": "a"},
        {"type": "custom", "id": "e", "parentId": "d", "timestamp": "x", "data": {"secret": 1}},
    )
    assert [text for _, text in list_texts(imported)] == [
        "I ran `ls`:\n\na.txt\n\nExit code: 0",
        "",  # for clients alone
        "from an extension",
        f"{engine.SUMMARY_HEADING}\n\nA branch",
    ]
    assert imported.skipped == 0


def test_results_of_calls_that_nobody_made_are_left_out() -> None:
    call = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {}}
    result = {"role": "toolResult", "toolCallId": "c1", "toolName": "bash", "content": []}
    broken_off = {"role": "assistant", "content": [{"type": "text", "text": "I was"}, call], "stopReason": "aborted"}
    imported = read(make_entry("a", None, message=broken_off), make_entry("b", "a", message=result))
    assert list_texts(imported) == [("assistant", "I was")]
    assert imported.messages[0].calls == ()
    assert imported.skipped == 1
    whole = {"role": "assistant", "content": [call], "stopReason": "toolUse"}
    twice = read(make_entry("a", None, message=whole), make_entry("b", "a", message=result), make_entry("c", "b", message=result))
    assert [message.role for message in twice.messages] == ["assistant", "tool"]


def test_bad_lines_are_skipped_and_counted() -> None:
    imported = read(
        b"not json\n",
        b"\x00\xff\xfe\n",
        b"[1, 2]\n",
        b'"text"\n',
        b"\n   \n",
        b"[" * 100_000 + b"\n",
        {"type": 5, "id": "x"},
        {"type": "message", "message": {"role": "user", "content": "no id"}},
        make_user_entry("a", None, "good"),
        make_entry("b", "a", message="no message"),
        make_entry("c", "b", message={"role": "king", "content": "?"}),
        make_entry("d", "c", message={"role": "toolResult", "toolCallId": 7}),
        make_entry("e", "d"),
    )
    assert list_texts(imported) == [("user", "good")]
    assert imported.skipped == 11


def test_parents_that_form_a_ring_end_where_it_closes() -> None:
    ring = read(make_user_entry("a", "c", "one"), make_user_entry("b", "a", "two"), make_user_entry("c", "b", "three"))
    assert [text for _, text in list_texts(ring)] == ["one", "two", "three"]
    assert list_texts(read(make_user_entry("a", "a", "mine"))) == [("user", "mine")]
    assert list_texts(read(make_user_entry("b", "lost", "orphan"))) == [("user", "orphan")]


def test_a_long_conversation_is_no_problem_of_depth() -> None:
    chain = [make_user_entry(str(number), str(number - 1) if number else None, f"m{number}") for number in range(15_000)]
    assert len(read(*chain).messages) == 15_000


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "header"),
        (b"\n\n", "header"),
        (b"\x89PNG\r\n\x1a\n" + bytes(1_000), "not JSON"),
        (b'{"type":"message","id":"a"}\n', "header"),
        (b'{"type":"session"}\n', "header"),
        (b'{"type":"session","id":5}\n', "header"),
        (b"[" * 1_000_000, "not JSON"),
        (b'{"type":"session","id":"a","version":4}\n', "version"),
        (b'{"type":"session","id":"a","version":"3"}\n', "version"),
        (b'{"type":"session","id":"a","version":[]}\n', "version"),
        (b'{"type":"session","id":"a","version":1e400}\n', "JSON|version"),
    ],
)
def test_what_is_no_session_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(jsonl.NotASessionFile, match=reason):
        jsonl.read_session_file([data])


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(jsonl.NotASessionFile, match="larger than 100000 bytes"):
        jsonl.read_session_file(
            itertools.chain([encode_lines(HEADER)], itertools.repeat(b"x" * 1_000)), jsonl.SessionFileLimits(file_bytes=100_000)
        )


def test_an_overlong_line_is_skipped_and_what_follows_is_read() -> None:
    data = encode_lines(
        HEADER, make_user_entry("a", None, "one"), make_user_entry("b", "a", "x" * 2_000), make_user_entry("c", "a", "two")
    )
    for size in (7, 500, len(data)):
        imported = jsonl.read_session_file(
            [data[at : at + size] for at in range(0, len(data), size)], jsonl.SessionFileLimits(line_bytes=1_000)
        )
        assert [text for _, text in list_texts(imported)] == ["one", "two"]
        assert imported.skipped == 1


@pytest.mark.parametrize(
    ("limits", "reason"),
    [(jsonl.SessionFileLimits(messages=2), "more than 2 messages"), (jsonl.SessionFileLimits(entries=2), "more than 2 entries")],
)
def test_too_much_of_anything_is_refused(limits: jsonl.SessionFileLimits, reason: str) -> None:
    data = encode_lines(HEADER, make_user_entry("a", None, "1"), make_user_entry("b", "a", "2"), make_user_entry("c", "b", "3"))
    with pytest.raises(jsonl.NotASessionFile, match=reason):
        jsonl.read_session_file([data], limits)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "id", "content", "role"]), inner, max_size=3)
    ),
    max_leaves=8,
)
ROLES = st.sampled_from(["user", "assistant", "toolResult", "bashExecution", "custom", "branchSummary"])
CONTENT = ANY_JSON | st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "thinking", "toolCall", "image"])},
        optional=dict.fromkeys(("text", "thinking", "id", "name", "arguments", "data", "mimeType"), ANY_JSON),
    ),
    max_size=3,
)
MESSAGES = st.fixed_dictionaries(
    {"role": ROLES | ANY_JSON},
    optional={
        "content": CONTENT,
        **dict.fromkeys(("timestamp", "toolCallId", "toolName", "command", "output", "summary", "stopReason"), ANY_JSON),
    },
)
TYPES = st.sampled_from(["message", "compaction", "session_info", "model_change", "custom_message", "branch_summary"])
IDS = st.sampled_from(["a", "b", "c", "d"])
ENTRIES = st.fixed_dictionaries(
    {"type": TYPES},
    optional={
        "id": IDS | ANY_JSON,
        "parentId": IDS | ANY_JSON,
        "message": MESSAGES | ANY_JSON,
        **dict.fromkeys(("timestamp", "summary", "name", "content", "firstKeptEntryId", "provider", "modelId"), ANY_JSON),
    },
)


@settings(max_examples=80, deadline=None)
@given(st.lists(ENTRIES, max_size=8), st.integers(1, 3))
def test_whatever_stands_in_a_file_what_is_imported_can_be_journalled(entries: list[Any], version: int) -> None:
    imported = jsonl.read_session_file([encode_lines(HEADER | {"version": version}, *entries)])
    for message in imported.messages:
        codec.encode(message)
    assert imported.skipped <= len(entries)


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(1, 20))
def test_any_bytes_are_a_session_or_refused_however_they_are_cut(data: bytes, size: int) -> None:
    whole = encode_lines(HEADER, make_user_entry("a", None, "hé"), data, b"\n", make_user_entry("b", "a", "two"))
    cut = [whole[at : at + size] for at in range(0, len(whole), size)]
    assert jsonl.read_session_file(cut) == jsonl.read_session_file([whole])
    with pytest.raises(jsonl.NotASessionFile):
        jsonl.read_session_file([b"#", data])


@given(st.lists(TEXTS.filter(bool), min_size=1, max_size=6), st.none() | TEXTS.filter(bool))
def test_what_is_exported_is_read_back(texts: list[str], name: str | None) -> None:
    told = [
        events.MessageImported(role="user", text=texts[0], at_ms=AT, images=(events.Image("image/png", "aGk="),)),
        events.MessageImported(role="assistant", text="", at_ms=AT + 1, thinking="Hm", calls=(READ,)),
        events.MessageImported(role="tool", text=texts[-1], at_ms=AT + 2, call_id="call_1", tool="read_file", is_error=True),
        *(events.MessageImported(role="assistant", text=text, at_ms=AT + 3) for text in texts),
    ]
    messages = transcript.read_messages(make_entries(told))
    written = list(jsonl.export_jsonl("sess_1", "/work", AT, messages, name=name))
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in written)
    imported = jsonl.read_session_file(written)
    assert [msgspec.structs.replace(message, usage=None, origin=None) for message in imported.messages] == told
    again = transcript.read_messages(make_entries(imported.messages))
    assert jsonl.read_session_file(jsonl.export_jsonl("sess_1", "/work", AT, again)).messages == imported.messages
    assert (imported.session_id, imported.cwd, imported.created_at_ms, imported.name) == ("sess_1", "/work", AT, name)
    assert imported.skipped == 0


def test_an_exported_file_has_pis_shape() -> None:
    messages = transcript.read_messages(make_entries([events.MessageImported(role="user", text="hi", at_ms=AT)]))
    assert [json.loads(line) for line in jsonl.export_jsonl("sess_1", "/work", AT, messages, name="Mine")] == [
        {"type": "session", "version": 3, "id": "sess_1", "timestamp": "2026-02-28T10:00:00.000Z", "cwd": "/work"},
        {
            "type": "message",
            "id": "00000001",
            "parentId": None,
            "timestamp": "2026-02-28T10:00:00.000Z",
            "message": {"role": "user", "content": [{"type": "text", "text": "hi"}], "timestamp": AT},
        },
        {
            "type": "session_info",
            "id": "00000000",
            "parentId": "00000001",
            "timestamp": "2026-02-28T10:00:00.000Z",
            "name": "Mine",
        },
    ]
