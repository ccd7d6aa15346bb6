"""Ids in two spellings: both ways lose nothing, and no two become one."""

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.core import ids
from switchtower.protocols.relay import wire_values

ANY_ID = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=128)
SHORT_ID = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
NEARLY_OURS = st.from_regex(r"(sess_|appr_)?(r\.)?[A-Za-z0-9._:-]{0,20}", fullmatch=True).filter(bool)
CORE_ID = re.compile(r"(sess|appr)_[A-Za-z0-9._:-]+")


@given(ANY_ID | NEARLY_OURS)
def test_a_run_id_becomes_a_session_s_and_again_itself(run_id: str) -> None:
    try:
        session_id = wire_values.parse_run_id(run_id)
    except wire_values.InvalidRelayId:
        assert len(run_id.encode()) * 3 > 240
        return
    assert CORE_ID.fullmatch(session_id)
    assert session_id.startswith("sess_")
    assert len(session_id) <= 256
    assert wire_values.format_run_id(session_id) == run_id


@given(ANY_ID | NEARLY_OURS)
def test_a_request_id_becomes_an_approval_s_and_again_itself(request_id: str) -> None:
    try:
        approval_id = wire_values.parse_request_id(request_id)
    except wire_values.InvalidRelayId:
        assert len(request_id.encode()) * 3 > 240
        return
    assert CORE_ID.fullmatch(approval_id)
    assert wire_values.format_request_id(approval_id) == request_id


@given(st.lists(SHORT_ID | NEARLY_OURS, min_size=2, max_size=2, unique=True))
def test_no_two_ids_become_one(two: list[str]) -> None:
    assert wire_values.parse_run_id(two[0]) != wire_values.parse_run_id(two[1])
    assert wire_values.parse_request_id(two[0]) != wire_values.parse_request_id(two[1])


@given(st.uuids())
def test_a_uuid_is_the_same_128_bits_in_the_core_s_spelling(uuid: UUID) -> None:
    approval_id = wire_values.parse_request_id(str(uuid))
    assert approval_id == ids.parse_uuid("appr", uuid)
    assert wire_values.format_request_id(approval_id) == str(uuid)


@given(st.uuids())
def test_a_uuid_in_another_spelling_comes_back_as_it_was(uuid: UUID) -> None:
    for spelled in (str(uuid).upper(), uuid.hex, f"{{{uuid}}}", uuid.urn):
        assert wire_values.format_request_id(wire_values.parse_request_id(spelled)) == spelled


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1))
def test_an_approval_of_ours_is_a_uuid_to_relay(now_ms: int, randomness: int) -> None:
    approval_id = ids.format_id("appr", now_ms, randomness)
    request_id = wire_values.format_request_id(approval_id)
    assert str(UUID(request_id)) == request_id
    assert wire_values.parse_request_id(request_id) == approval_id


def test_a_session_of_ours_keeps_its_name() -> None:
    session_id = ids.format_id("sess", 1_760_000_000_000, 5)
    assert wire_values.parse_run_id(session_id) == session_id == wire_values.format_run_id(session_id)


@pytest.mark.parametrize("text", ["", "x" * 129, "é" * 128, "\ud800", "😀" * 60], ids=["empty", "long", "wide", "half", "emoji"])
def test_what_cannot_be_an_id_is_refused(text: str) -> None:
    for spell in (wire_values.parse_run_id, wire_values.parse_request_id):
        with pytest.raises(wire_values.InvalidRelayId):
            spell(text)


@pytest.mark.parametrize("run_id", ["sess_x\n", "sess_../../etc", "run 1", "sess_r.forged", 'a"b', "sess_é"])
def test_what_only_looks_like_ours_is_spelled_as_foreign(run_id: str) -> None:
    session_id = wire_values.parse_run_id(run_id)
    assert session_id.startswith("sess_r.") or run_id == "sess_../../etc"
    assert not set(session_id) & set('/\n "')
    assert wire_values.format_run_id(session_id) == run_id


def test_the_run_of_a_session_elsewhere_is_named_after_it() -> None:
    assert wire_values.make_core_run_id("sess_r.abc") == "run_r.abc"
