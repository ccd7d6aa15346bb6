"""What a fork begins with: what was said up to a message of a person, with no call left without its result."""

import pytest

from switchtower.core import errors, events, forks
from switchtower.testing.sessions import Table

CALL = events.ToolRequest("call_1", "run", {"command": "ls"})


def two_turns() -> Table:
    table = Table()
    run = table.send("first")
    table.tell(run, events.MessageCompleted("msg_1", "I look", thinking="hm", calls=(CALL,)))
    table.tell(run, events.ToolCalled("call_1", "run", {"command": "ls"}))
    table.tell(run, events.ToolFinished("call_1", "run", 1, "a.txt"))
    table.tell(run, events.MessageCompleted("msg_2", "there is a.txt"))
    table.finish(run)
    table.send("second")
    return table


def forked(table: Table, before_seq: int | None = None) -> tuple[list[tuple[str, str]], forks.Fork]:
    fork = forks.Fork(before_seq)
    for start in range(0, len(table.entries), 3):
        if not fork.reached:
            fork.read(table.entries[start : start + 3])
    return [(message.role, message.text) for message in fork.conversation()], fork


def seq_of(table: Table, text: str) -> int:
    [found] = [seq for seq, event in enumerate(table.log, 1) if isinstance(event, events.RunStarted) and event.text == text]
    return found


def test_without_a_place_it_begins_with_all_that_was_said() -> None:
    told, fork = forked(two_turns())
    assert told == [
        ("user", "first"),
        ("assistant", "I look"),
        ("tool", "a.txt"),
        ("assistant", "there is a.txt"),
        ("user", "second"),
    ]
    assert fork.text is None
    calling = fork.conversation()[1]
    assert (calling.thinking, calling.calls, calling.at_ms) == ("hm", (CALL,), 1_000)


def test_it_stops_before_the_message_and_tells_its_text() -> None:
    table = two_turns()
    told, fork = forked(table, seq_of(table, "second"))
    assert told[-1] == ("assistant", "there is a.txt")
    assert fork.text == "second"


@pytest.mark.parametrize("seq", [1, 4, 1_000])
def test_only_a_message_of_a_person_is_a_place_to_fork_at(seq: int) -> None:
    with pytest.raises(errors.InvalidCommand, match="no message of a person"):
        forked(two_turns(), seq)


def test_a_call_that_has_no_result_yet_is_not_taken_along() -> None:
    table = Table()
    run = table.send("first")
    table.tell(run, events.MessageCompleted("msg_1", "I look", calls=(CALL,)))
    told, _ = forked(table)
    assert told == [("user", "first")]


def test_a_fork_is_as_careful_as_its_parent() -> None:
    table = Table()
    table.session.policy, table.session.thinking = "read-only", "high"
    table.session.preset = events.Preset("review", "user", "/home/review.toml")
    from switchtower.testing.sessions import start_session

    command = forks.like(start_session("sess_2"), table.session)
    assert (command.policy, command.thinking, command.parent) == ("read-only", "high", table.session.id)
    assert command.resolved_preset == table.session.preset
