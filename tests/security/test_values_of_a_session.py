"""A value that was hidden once in a session stays hidden there, also without what gave it away."""

import pytest

from switchtower.core import events, redact
from switchtower.core.redact.stream import MOST_FOUND

VALUE = "Xk29-fQz7-Lm3p"


def make_session() -> redact.Redactor:
    return redact.Redactor(["daemon-value-1234"]).for_session("sess_1")


def test_a_value_is_hidden_again_without_its_name() -> None:
    redactor = make_session()
    assert redactor.redact_text(f"what is {VALUE} for?") == f"what is {VALUE} for?"
    assert redactor.redact_text(f"DB_PASSWORD={VALUE}\n") == "DB_PASSWORD=[redacted]\n"
    assert redactor.redact_text(f"the model says {VALUE}.") == "the model says [redacted]."
    assert redactor.redact_text('{"x": "' + VALUE + '"}') == '{"x": "[redacted]"}'


@pytest.mark.parametrize("size", [1, 3, 50])
def test_a_stream_teaches_the_others(size: int) -> None:
    redactor = make_session()
    output, answer = redactor.open_stream(), redactor.open_stream()
    answer.feed("so ")
    text = f"token: {VALUE}\n"
    for at in range(0, len(text), size):
        output.feed(text[at : at + size])
    output.close()
    said = f"it is {VALUE} then"
    assert (
        "".join(answer.feed(said[at : at + size]) for at in range(0, len(said), size)) + answer.close() == "it is [redacted] then"
    )


def test_what_a_question_or_a_value_hides_is_learned() -> None:
    redactor = make_session()
    redactor.redact_event(events.ToolCalled("call_1", "run", {"command": f"TOKEN={VALUE} make"}))
    assert VALUE not in redactor.redact_text(f"echo {VALUE}")
    other = make_session()
    other.redact_value({"client_secret": VALUE})
    assert VALUE not in other.redact_text(f"echo {VALUE}")


def test_another_session_does_not_know_it() -> None:
    daemon = redact.Redactor()
    daemon.for_session("sess_1").redact_text(f"password={VALUE}")
    assert daemon.for_session("sess_2").redact_text(f"see {VALUE}") == f"see {VALUE}"
    assert daemon.redact_text(f"see {VALUE}") == f"see {VALUE}"
    assert daemon.for_session("sess_1").redact_text(f"see {VALUE}") == "see [redacted]"


def test_a_value_of_the_daemon_that_is_added_later_is_hidden_in_every_session() -> None:
    daemon = redact.Redactor()
    redactor = daemon.for_session("sess_1")
    daemon.add_secret("later-value-1234")
    assert redactor.redact_text("see later-value-1234") == "see [redacted]"


@pytest.mark.parametrize(
    "line",
    [
        "password=swordfish",
        "password: hunter2",
        "password=123456789",
        "token=550e8400-e29b-41d4-a716-446655440000",
        'password = "let me in please"',
        "secret=aaaaaaaa1",
        "secret: da39a3ee5e6b4b0d3255bfef95601890afd80709",
    ],
)
def test_words_numbers_and_identities_are_not_learned(line: str) -> None:
    redactor = make_session()
    assert "[redacted]" in redactor.redact_text(line)
    value = line.replace(": ", "=").partition("=")[2].strip(' "')
    assert redactor.redact_text(f"see {value} here") == f"see {value} here"


def test_a_session_remembers_a_bounded_number_of_values() -> None:
    redactor = make_session()
    values = [f"Xk29-fQz7-{number:04d}" for number in range(MOST_FOUND + 5)]
    for value in values:
        redactor.redact_text(f"password={value}")
    assert redactor.redact_text(values[-1]) == "[redacted]"
    assert redactor.redact_text(values[0]) == values[0]
    assert redactor.redact_text("daemon-value-1234") == "[redacted]"
