"""What a fork begins with: what was said up to a message of a person, with no call left without its result."""

import pytest

from switchtower.core import conversation, errors, events
from switchtower.testing.session_driver import SessionDriver

CALL = events.ToolRequest("call_1", "run", {"command": "ls"})


def make_two_turns() -> SessionDriver:
    table = SessionDriver()
    run = table.send("first")
    table.emit(run, events.MessageCompleted("msg_1", "I look", thinking="hm", calls=(CALL,)))
    table.emit(run, events.ToolCalled("call_1", "run", {"command": "ls"}))
    table.emit(run, events.ToolFinished("call_1", "run", 1, "a.txt"))
    table.emit(run, events.MessageCompleted("msg_2", "there is a.txt"))
    table.finish(run)
    table.send("second")
    return table


def fork_session(
    table: SessionDriver, before_seq: int | None = None
) -> tuple[list[tuple[str, str]], conversation.ConversationFork]:
    fork = conversation.ConversationFork(before_seq)
    for start in range(0, len(table.entries), 3):
        if not fork.reached:
            fork.add_entries(table.entries[start : start + 3])
    return [(message.role, message.text) for message in fork.build_conversation()], fork


def find_seq(table: SessionDriver, text: str) -> int:
    [found] = [seq for seq, event in enumerate(table.log, 1) if isinstance(event, events.RunStarted) and event.text == text]
    return found


def test_without_a_place_it_begins_with_all_that_was_said() -> None:
    told, fork = fork_session(make_two_turns())
    assert told == [
        ("user", "first"),
        ("assistant", "I look"),
        ("tool", "a.txt"),
        ("assistant", "there is a.txt"),
        ("user", "second"),
    ]
    assert fork.text is None
    calling = fork.build_conversation()[1]
    assert (calling.thinking, calling.calls, calling.at_ms) == ("hm", (CALL,), 1_000)


def test_it_stops_before_the_message_and_tells_its_text() -> None:
    table = make_two_turns()
    told, fork = fork_session(table, find_seq(table, "second"))
    assert told[-1] == ("assistant", "there is a.txt")
    assert fork.text == "second"


@pytest.mark.parametrize("seq", [1, 4, 1_000])
def test_only_a_message_of_a_person_is_a_place_to_fork_at(seq: int) -> None:
    with pytest.raises(errors.InvalidCommand, match="no message of a person"):
        fork_session(make_two_turns(), seq)


def test_a_call_that_has_no_result_yet_is_not_taken_along() -> None:
    table = SessionDriver()
    run = table.send("first")
    table.emit(run, events.MessageCompleted("msg_1", "I look", calls=(CALL,)))
    told, _ = fork_session(table)
    assert told == [("user", "first")]


def test_a_fork_is_as_careful_as_its_parent() -> None:
    table = SessionDriver()
    table.session.policy, table.session.thinking = "read-only", "high"
    table.session.preset = events.Preset("review", "user", "/home/review.toml")
    from switchtower.testing.session_driver import start_session

    command = conversation.inherit_settings(start_session("sess_2"), table.session)
    assert (command.policy, command.thinking, command.parent) == ("read-only", "high", table.session.id)
    assert command.resolved_preset == table.session.preset
