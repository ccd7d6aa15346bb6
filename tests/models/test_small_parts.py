"""The small pure parts: addresses, halves of characters, and what a provider wants handed back."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.models import providers, remote, request_encoder


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1:11434", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080/v1"),
        (":8080", "http://127.0.0.1:8080/v1"),
        ("gpu.local", "http://gpu.local:11434/v1"),
        ("http://gpu.local", "http://gpu.local:80/v1"),
        ("https://ollama.example.com", "https://ollama.example.com:443/v1"),
        ("https://example.com/ollama/", "https://example.com:443/ollama"),
        ("[::1]:9999", "http://[::1]:9999/v1"),
        ("::1", "http://[::1]:11434/v1"),
        ("gpu.local:not-a-port", "http://gpu.local:11434/v1"),
        (' "gpu.local" ', "http://gpu.local:11434/v1"),
    ],
)
def test_ollamas_variable_is_read_as_ollama_reads_it(host: str, url: str) -> None:
    address = providers.parse_ollama_host(host)
    assert providers.find_address_problem(address) is None
    assert providers.normalize_address(address, "ollama") == url


@given(st.text(max_size=40))
def test_no_host_makes_it_crash(host: str) -> None:
    address = providers.parse_ollama_host(host)
    if providers.find_address_problem(address) is None:
        providers.normalize_address(address, "ollama")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost:8000",
        "ftp://host/",
        "http://",
        "http://[::1",
        "http://host:99999",
        "https://user:pw@host/v1",
        "http://a b/",
    ],
)
def test_what_is_no_address_is_found_out_and_not_repeated(address: str) -> None:
    problem = providers.find_address_problem(address)
    assert problem is not None
    assert "pw" not in problem


def test_a_local_server_gets_the_path_that_people_forget() -> None:
    assert providers.normalize_address("http://127.0.0.1:8000/", "vllm") == "http://127.0.0.1:8000/v1"
    assert providers.normalize_address("http://127.0.0.1:8000/api/", "vllm") == "http://127.0.0.1:8000/api"
    assert providers.normalize_address("https://api.example.com/", "openai-compatible") == "https://api.example.com"


@pytest.mark.parametrize(
    ("address", "here"),
    [("http://localhost:1", True), ("http://127.8.8.8", True), ("http://[::1]:1/v1", True), ("http://10.0.0.1", False)],
)
def test_this_machine_is_known(address: str, here: bool) -> None:
    assert providers.is_loopback(address) is here


@given(st.lists(st.text(st.characters(), max_size=5), max_size=8))
def test_mended_text_can_always_be_written_down_and_whole_text_is_untouched(pieces: list[str]) -> None:
    mender = remote.SurrogateRepairer()
    mended = [*(mender.feed(piece) for piece in pieces), mender.close()]
    "".join(mended).encode()
    if not mender.changed:
        assert "".join(mended) == "".join(pieces)


@given(st.text(), st.data())
def test_any_text_cut_into_utf16_units_comes_together_again(text: str, data: st.DataObject) -> None:
    units = text.encode("utf-16-le")
    pieces = [units[start : start + 2].decode("utf-16-le", "surrogatepass") for start in range(0, len(units), 2)]
    mender = remote.SurrogateRepairer()
    assert "".join(mender.feed(piece) for piece in pieces) + mender.close() == text


CALLS = (events.ToolRequest("call_1", "run", {}), events.ToolRequest("call_2", "run", {}))
PIECES = [
    request_encoder.CarryPiece("thinking", 3, {"signature": "s1"}),
    request_encoder.CarryPiece("text", 2),
    request_encoder.CarryPiece("call", 0, {"details": {"x": 1}}),
    request_encoder.CarryPiece("thinking", 1, {"id": "r"}),
    request_encoder.CarryPiece("call"),
]


def make_message(data: dict[str, Any] | None, *, text: str = "ab", thinking: str = "xyz!") -> engine.Message:
    return engine.Message(role="assistant", text=text, calls=CALLS, thinking=thinking, carry=data)


def test_a_carry_gives_the_parts_back_in_their_order_and_repeats_no_text() -> None:
    data = request_encoder.pack_carry("anthropic m", "ab", "xyz!", PIECES)
    assert data is not None
    assert "xyz" not in str(data)
    stored = msgspec.json.decode(msgspec.json.encode(data))

    assert list(request_encoder.iterate_parts(make_message(stored), "anthropic m")) == [
        request_encoder.CarriedPart("thinking", "xyz", extras={"signature": "s1"}),
        request_encoder.CarriedPart("text", "ab"),
        request_encoder.CarriedPart("call", call=0, extras={"details": {"x": 1}}),
        request_encoder.CarriedPart("thinking", "!", extras={"id": "r"}),
        request_encoder.CarriedPart("call", call=1),
    ]


PLAIN = [
    request_encoder.CarriedPart("text", "ab"),
    request_encoder.CarriedPart("call", call=0),
    request_encoder.CarriedPart("call", call=1),
]


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"by": "another m"},
        request_encoder.pack_carry("anthropic another", "ab", "xyz!", PIECES),
        request_encoder.pack_carry("another m", "ab", "xyz!", PIECES),
        {"by": "anthropic m", "checksum": "x", "pieces": []},
        {"by": "anthropic m", "checksum": 1, "pieces": [["call"]]},
        {"by": "anthropic m", "checksum": 1, "pieces": [["file", -5], ["call"], ["call"]]},
        {"by": "anthropic m", "checksum": 1, "pieces": {"a": 1}},
        {"by": ["anthropic m"], "checksum": None},
    ],
)
def test_a_carry_of_others_or_of_nobody_is_left_aside(data: dict[str, Any] | None) -> None:
    assert list(request_encoder.iterate_parts(make_message(data), "anthropic m")) == PLAIN


def test_when_a_text_has_changed_only_the_marks_of_calls_go_back() -> None:
    data = request_encoder.pack_carry("anthropic m", "ab", "xyz!", PIECES)

    parts = list(request_encoder.iterate_parts(make_message(data, thinking="x[redacted]!"), "anthropic m"))

    assert parts == [
        request_encoder.CarriedPart("text", "ab"),
        request_encoder.CarriedPart("call", call=0, extras={"details": {"x": 1}}),
        request_encoder.CarriedPart("call", call=1),
    ]


def test_nothing_worth_keeping_makes_no_carry() -> None:
    assert (
        request_encoder.pack_carry("by", "ab", "", [request_encoder.CarryPiece("text", 2), request_encoder.CarryPiece("call")])
        is None
    )
    assert request_encoder.pack_carry("by", "", "", [request_encoder.CarryPiece("call", 0, {"details": {"x": object()}})]) is None
    assert (
        request_encoder.pack_carry(
            "by", "", "", [request_encoder.CarryPiece("thinking", 0, {"signature": "s" * request_encoder.LONGEST})]
        )
        is None
    )
