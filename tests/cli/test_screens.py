"""Where a command writes what the model says: a pipe gets each message once, however often its call failed."""

import pytest

from switchtower.cli.event_printer import ProgressOutput, TranscriptOutput


def test_a_pipe_gets_a_message_once_although_its_first_call_was_cut(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    screen = ProgressOutput()
    screen.write_answer("Hello, wor")
    screen.withdraw_answer()
    screen.write_answer("Hello, ")
    screen.write_answer("world.")
    screen.end_answer()

    assert capfdbinary.readouterr().out == b"Hello, world.\n"


def test_a_message_without_an_end_is_written_as_far_as_it_got(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    screen = ProgressOutput()
    screen.write_answer("so far")
    screen.end_answer()

    assert capfdbinary.readouterr().out == b"so far\n"


def test_a_transcript_marks_what_is_void(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    screen = TranscriptOutput()
    screen.write_answer("Hel")
    screen.withdraw_answer()
    screen.withdraw_answer()
    screen.write_answer("Hello")
    screen.end_answer()

    assert capfdbinary.readouterr().out == b"Hel\n(the model call failed: the text above is void)\nHello\n"
