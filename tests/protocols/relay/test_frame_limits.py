"""Shortened events keep their number and everything that is short, and fit; shortened results fit and say so."""

from typing import Any

import msgspec
import pytest

from switchtower.protocols.relay import errors, wire_values

LIMIT = 10_000


def make_event(type_: str, **data: Any) -> bytes:
    return msgspec.json.encode({"type": type_, "run_id": "r", "seq": 7, "data": data})


def shorten_frame(frame: bytes) -> dict[str, Any]:
    short = wire_values.shorten_event(frame, LIMIT)
    assert short is not None
    assert len(short) <= LIMIT
    decoded: dict[str, Any] = msgspec.json.decode(short)
    return decoded


@pytest.mark.parametrize(
    "text", ["a" * 50_000, "\x01é𐀀\\" * 9_000, "\x01" * 20_000 + "a" * 20_000, "a" * 9_000 + "\x01" * 20_000]
)
def test_a_long_text_keeps_its_beginning_and_the_event_all_else(text: str) -> None:
    short = shorten_frame(make_event("run.input", text_redacted=text, text_sha256="ab", actor="web"))
    kept = short["data"].pop("text_redacted")
    assert kept.endswith("…")
    assert text.startswith(kept[:-1])
    assert len(kept) > 1_000
    assert short == {
        "type": "run.input",
        "run_id": "r",
        "seq": 7,
        "data": {"text_sha256": "ab", "actor": "web", "truncated": True},
    }


def test_several_long_fields_are_cut_until_all_fit() -> None:
    short = shorten_frame(make_event("x.y", a="a" * 20_000, b={"deep": ["b" * 20_000]}, c=["c" * 5_000] * 4, d=1))
    assert short["data"]["d"] == 1
    assert short["data"]["truncated"] is True


def test_a_screen_is_left_out_and_not_cut() -> None:
    assert wire_values.shorten_event(make_event("run.screen", text="x" * 20_000, cols=80, rows=24), LIMIT) is None


def test_a_question_that_is_not_whole_cannot_be_approved() -> None:
    short = shorten_frame(make_event("run.permission_requested", request_id="q", op_args={"cmd": "x" * 20_000}))
    assert short["data"]["cannot_approve"] == "it is too long to be shown in full at the hub; decide it on its host"


@pytest.mark.parametrize(("keeps_end", "kept"), [(False, "0123"), (True, "9999")])
def test_a_long_result_says_that_it_was_cut(keeps_end: bool, kept: str) -> None:
    text = "".join(f"{number:04}" for number in range(10_000)).replace("0000", "0123", 1)
    result = wire_values.shorten_result({"path": "p", "text": text, "truncated": False}, LIMIT, keeps_end=keeps_end)
    assert len(msgspec.json.encode(result)) <= LIMIT
    assert (result["path"], result["truncated"]) == ("p", True)
    assert result["text"].strip("…").endswith(kept) if keeps_end else result["text"].startswith(kept)


def test_a_short_result_is_passed_as_it_is_and_a_hopeless_one_is_refused() -> None:
    result = {"n": 1}
    assert wire_values.shorten_result(result, LIMIT, keeps_end=False) is result
    with pytest.raises(errors.RelayError, match="the answer has 40,"):
        wire_values.shorten_result("x" * 40_000, LIMIT, keeps_end=False)
