"""Ids in two spellings: both ways lose nothing, and no two become one."""

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.core import ids
from switchtower.protocols.relay import names

ANY_ID = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=128)
SHORT_ID = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
NEARLY_OURS = st.from_regex(r"(sess_|appr_)?(r\.)?[A-Za-z0-9._:-]{0,20}", fullmatch=True).filter(bool)
CORE_ID = re.compile(r"(sess|appr)_[A-Za-z0-9._:-]+")


@given(ANY_ID | NEARLY_OURS)
def test_a_run_id_becomes_a_session_s_and_again_itself(run_id: str) -> None:
    try:
        session_id = names.session_of(run_id)
    except names.BadId:
        assert len(run_id.encode()) * 3 > 240
        return
    assert CORE_ID.fullmatch(session_id)
    assert session_id.startswith("sess_")
    assert len(session_id) <= 256
    assert names.run_of(session_id) == run_id


@given(ANY_ID | NEARLY_OURS)
def test_a_request_id_becomes_an_approval_s_and_again_itself(request_id: str) -> None:
    try:
        approval_id = names.approval_of(request_id)
    except names.BadId:
        assert len(request_id.encode()) * 3 > 240
        return
    assert CORE_ID.fullmatch(approval_id)
    assert names.request_of(approval_id) == request_id


@given(st.lists(SHORT_ID | NEARLY_OURS, min_size=2, max_size=2, unique=True))
def test_no_two_ids_become_one(two: list[str]) -> None:
    assert names.session_of(two[0]) != names.session_of(two[1])
    assert names.approval_of(two[0]) != names.approval_of(two[1])


@given(st.uuids())
def test_a_uuid_is_the_same_128_bits_in_the_core_s_spelling(uuid: UUID) -> None:
    approval_id = names.approval_of(str(uuid))
    assert approval_id == ids.from_uuid("appr", uuid)
    assert names.request_of(approval_id) == str(uuid)


@given(st.uuids())
def test_a_uuid_in_another_spelling_comes_back_as_it_was(uuid: UUID) -> None:
    for spelled in (str(uuid).upper(), uuid.hex, f"{{{uuid}}}", uuid.urn):
        assert names.request_of(names.approval_of(spelled)) == spelled


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1))
def test_an_approval_of_ours_is_a_uuid_to_relay(now_ms: int, randomness: int) -> None:
    approval_id = ids.spell("appr", now_ms, randomness)
    request_id = names.request_of(approval_id)
    assert str(UUID(request_id)) == request_id
    assert names.approval_of(request_id) == approval_id


def test_a_session_of_ours_keeps_its_name() -> None:
    session_id = ids.spell("sess", 1_760_000_000_000, 5)
    assert names.session_of(session_id) == session_id == names.run_of(session_id)


@pytest.mark.parametrize("text", ["", "x" * 129, "é" * 128, "\ud800", "😀" * 60], ids=["empty", "long", "wide", "half", "emoji"])
def test_what_cannot_be_an_id_is_refused(text: str) -> None:
    for spell in (names.session_of, names.approval_of):
        with pytest.raises(names.BadId):
            spell(text)


@pytest.mark.parametrize("run_id", ["sess_x\n", "sess_../../etc", "run 1", "sess_r.forged", 'a"b', "sess_é"])
def test_what_only_looks_like_ours_is_spelled_as_foreign(run_id: str) -> None:
    session_id = names.session_of(run_id)
    assert session_id.startswith("sess_r.") or run_id == "sess_../../etc"
    assert not set(session_id) & set('/\n "')
    assert names.run_of(session_id) == run_id


def test_the_run_of_a_session_elsewhere_is_named_after_it() -> None:
    assert names.core_run_of("sess_r.abc") == "run_r.abc"
