"""Events of the journal, and those that this version does not know."""

from switchtower.core import codec, events
from switchtower.core.fold import fold
from switchtower.core.session import Session


def test_what_a_newer_version_wrote_is_a_warning_and_not_the_end() -> None:
    event = codec.decode("sky.fell", b'{"how": "slowly"}')
    assert isinstance(event, events.WarningRaised)
    assert event.code == codec.UNKNOWN_EVENT_CODE
    assert "sky.fell" in event.message


def test_fields_that_a_newer_version_added_are_passed_over() -> None:
    event = codec.decode(events.WarningRaised.kind, b'{"code": "A", "message": "b", "mood": "grim"}')
    assert event == events.WarningRaised(code="A", message="b")


def test_an_unknown_event_takes_its_place_in_the_sequence() -> None:
    session = Session(id="sess_1")
    fold(session, 1, 5, None, codec.decode("sky.fell", b"{}"))
    assert session.seq == 1
