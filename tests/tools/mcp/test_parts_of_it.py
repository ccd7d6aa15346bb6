"""The small parts that need no server: names, lines, results, and what loading this room costs."""

import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.tools.mcp import process, tool_list, tools


@given(st.lists(st.tuples(st.text(max_size=80), st.text(max_size=80)), max_size=40))
def test_every_tool_has_a_usable_name_of_its_own_and_keeps_it(tools: list[tuple[str, str]]) -> None:
    names = tool_list.ToolNames()
    given_out = {tool: names.assign_name(*tool) for tool in tools}
    assert len(set(given_out.values())) == len(given_out)
    assert not set(given_out.values()) & tool_list.RESERVED_NAMES
    for tool, name in given_out.items():
        assert 0 < len(name) <= 64
        assert all(character.isascii() and (character.isalnum() or character in "_-") for character in name)
        assert names.assign_name(*tool) == name


def test_a_plain_name_stays_plain_and_a_taken_one_is_told_apart() -> None:
    names = tool_list.ToolNames()
    assert names.assign_name("git-hub", "list_issues") == "git-hub_list_issues"
    assert names.assign_name("a", "b_c") == "a_b_c"
    other = names.assign_name("a_b", "c")
    assert other.startswith("a_b_c_")
    assert names.assign_name("read", "file").startswith("read_file_")
    long = [names.assign_name("server", "t" * 100 + str(number)) for number in range(2)]
    assert len(set(long)) == 2


@given(
    st.lists(st.tuples(st.sampled_from([b"a", b"\xff", b"\r", b"\n"]), st.integers(0, 30_000)), max_size=5),
    st.lists(st.integers(0, 100_000), max_size=5),
)
def test_lines_are_the_same_however_they_arrive(runs: list[tuple[bytes, int]], cuts: list[int]) -> None:
    stream = b"\n".join(byte * count for byte, count in runs) + b"\n"
    whole = process.LineBuffer(10_000).feed(stream)
    pieces = process.LineBuffer(10_000)
    edges = [0, *sorted(cuts), len(stream)]
    arrived = [line for start, end in pairwise(edges) for line in pieces.feed(stream[start:end])]
    assert [(type(line), bytes(line)) for line in arrived] == [(type(line), bytes(line)) for line in whole]
    assert all(len(line) <= 10_000 for line in whole)


def test_of_a_line_that_is_too_long_both_ends_are_kept() -> None:
    lines = process.LineBuffer(100_000)
    found = []
    for chunk in (b"short\n{front", *[b"x" * 60_000] * 20, b"behind}\nnext\n"):
        found += lines.feed(chunk)
    short, long, following = found
    assert (short, following) == (b"short", b"next")
    assert isinstance(long, process.OverlongLine)
    assert long.startswith(b"{front")
    assert long.endswith(b"behind}")
    assert len(long) == 2 * process.KEEP_OF_LONG


def test_no_entry_can_pretend_to_be_of_another_daemon() -> None:
    lie = {"TOWER_DAEMON": "another", "A": "b"}
    assert process.build_server_environment({"PATH": "/bin"}, lie) == {"PATH": "/bin", "A": "b"}
    assert process.build_server_environment({"TOWER_DAEMON": "ours"}, lie) == {"TOWER_DAEMON": "ours", "A": "b"}


def make_output(*content: dict[str, Any], **more: Any) -> Any:
    import mcp_types

    return tools.convert_result(mcp_types.CallToolResult.model_validate({"content": [*content], **more}))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "text", "text": "words"}, "words"),
        ({"type": "image", "data": "AAAA", "mimeType": "image/png"}, "[image, image/png, 3 bytes, not shown]"),
        ({"type": "audio", "data": "AA==", "mimeType": "audio/wav"}, "[audio, audio/wav, 1 bytes, not shown]"),
        ({"type": "resource_link", "name": "n", "uri": "file:///x"}, "[resource_link, n, file:///x]"),
        ({"type": "resource", "resource": {"uri": "file:///x", "text": "inside"}}, "[resource, file:///x]\ninside"),
        ({"type": "resource", "resource": {"uri": "file:///x", "blob": "AAAA"}}, "[resource, file:///x, 3 bytes, not shown]"),
    ],
)
def test_each_kind_of_part_has_words_for_a_model(part: dict[str, Any], words: str) -> None:
    got = make_output({"type": "text", "text": "before"}, part)
    assert got.text == f"before\n{words}"
    assert got.result == {"content": [{"type": "text", "text": "before"}, part], "isError": False}


def test_structured_content_is_read_when_there_is_nothing_else() -> None:
    assert make_output(structuredContent={"x": [1, None]}).text == '{"x": [1, null]}'
    assert make_output({"type": "text", "text": "words"}, structuredContent={"x": 1}).text == "words"
    assert make_output().text == ""


def test_an_error_says_what_it_is() -> None:
    failed = make_output({"type": "text", "text": "it broke\n" + "x" * 1000}, isError=True)
    assert failed.is_error
    assert failed.error.message.startswith("it broke")
    assert len(failed.error.message) == 500
    assert failed.result["isError"] is True
    silent = make_output(isError=True)
    assert silent.text == silent.error.message == "the tool failed and did not say why"


def test_what_is_too_big_is_left_out_and_says_so() -> None:
    got = make_output(
        {"type": "resource", "resource": {"uri": "file:///x", "text": "t" * 300_000}},
        {"type": "text", "text": "\n" * 100_000},
        structuredContent={"x": "s" * 300_000},
        _meta={"x": "m" * 300_000},
    )
    assert len(got.text) < 70_000
    resource, text, structured, meta = got.result["content"]
    assert resource["text"] == "[resource, file:///x: left out, as it is longer than 256 KiB]"
    assert "bytes left out" in text["text"]
    assert structured["text"] == "[`structuredContent` was left out: it is longer than 256 KiB]"
    assert meta["text"] == "[`_meta` was left out: it is longer than 256 KiB]"
    assert set(got.result) == {"content", "isError"}


def test_a_result_of_many_large_parts_is_bounded() -> None:
    got = make_output(*({"type": "text", "text": "t" * 60_000} for _ in range(100)))
    assert 10 < len(got.result["content"]) < 20
    assert got.result["content"][-1]["text"].endswith("more parts were left out]")


def test_loading_this_room_does_not_load_the_sdk() -> None:
    program = "import sys; from switchtower.tools import mcp; print({'mcp', 'httpx2', 'pydantic', 'anyio'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "set()\n"
