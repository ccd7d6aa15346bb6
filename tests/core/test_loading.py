"""Sessions at hand, versions that a protocol counts for itself, and conversations that were begun elsewhere."""

import pytest
from msgspec.structs import replace

from switchtower.core import commands, errors, events
from switchtower.core.fold import decode_snapshot, encode_snapshot, make_card
from switchtower.testing.session_driver import OWNER, SESSION_ID, SessionDriver, start_session

COUNTING = events.Actor(name="owner", via="pi", counts=True)


def make_message(role: str, text: str) -> events.MessageImported:
    return events.MessageImported(role, text, at_ms=5)


def test_a_session_is_loaded_and_unloaded_and_its_card_says_so() -> None:
    table = SessionDriver()
    assert make_card(table.session).loaded is None

    table.execute(commands.LoadSession(session_id=SESSION_ID, actor=OWNER))
    assert make_card(table.session).loaded is True

    table.execute(commands.UnloadSession(session_id=SESSION_ID, actor=OWNER))
    assert make_card(table.session).loaded is False


def test_to_load_what_is_loaded_changes_nothing() -> None:
    table = SessionDriver()
    table.execute(commands.LoadSession(session_id=SESSION_ID, actor=OWNER))
    table.execute(commands.RecordOutcome(session_id=SESSION_ID, actor=COUNTING, name="set_model", advances=True))
    before = table.session.seq

    table.execute(commands.LoadSession(session_id=SESSION_ID, actor=OWNER))

    assert (table.session.seq, table.session.version) == (before, 1)


def test_loading_counts_versions_from_0_again() -> None:
    table = SessionDriver()
    table.execute(commands.RecordOutcome(session_id=SESSION_ID, actor=COUNTING, name="set_model", advances=True))

    table.execute(commands.LoadSession(session_id=SESSION_ID, actor=OWNER))

    assert table.session.version == 0


def test_a_protocol_that_counts_is_counted_by_its_own_word_only() -> None:
    table = SessionDriver()
    table.execute(commands.SendMessage(session_id=SESSION_ID, actor=COUNTING, text="hello"))
    table.execute(commands.QueueMessage(session_id=SESSION_ID, actor=COUNTING, text="more", delivery=events.Delivery.STEER))
    table.execute(commands.ConfigureSession(session_id=SESSION_ID, actor=COUNTING, thinking="low"))
    assert table.session.version == 0

    outcome = table.execute(commands.RecordOutcome(session_id=SESSION_ID, actor=COUNTING, name="prompt", advances=True))
    assert outcome["version"] == table.session.version == 1

    outcome = table.execute(commands.RecordOutcome(session_id=SESSION_ID, actor=COUNTING, name="prompt", advances=False))
    assert outcome["version"] == table.session.version == 1


def test_everybody_elses_changes_count_as_they_are_accepted() -> None:
    table = SessionDriver()
    table.send()

    assert table.session.version == 1


def test_a_run_has_the_id_that_its_asker_minted() -> None:
    table = SessionDriver()

    assert table.send(run_id="run_mine") == "run_mine"
    assert table.session.run is not None
    assert table.session.run.id == "run_mine"


def test_a_session_begins_with_what_was_said_elsewhere() -> None:
    table = SessionDriver(session_id="sess_other")
    start = start_session("sess_other", "interactive")
    table.session = type(table.session)(id="sess_other")

    conversation = (make_message("user", "fix the tests"), make_message("assistant", "done"))
    table.execute(
        commands.StartSession(
            session_id="sess_other",
            actor=OWNER,
            engine=start.engine,
            mode=start.mode,
            provider=start.provider,
            sandbox=start.sandbox,
            workspace=start.workspace,
            attach_token_sha256="",
            loaded=True,
            parent="sess_parent",
            conversation=conversation,
        )
    )

    session = table.session
    assert (session.counts.user, session.counts.assistant, session.counts.messages) == (1, 1, 2)
    assert (session.title, session.last_assistant_text, session.parent, session.loaded) == (
        "fix the tests",
        "done",
        "sess_parent",
        True,
    )


def test_what_a_session_took_from_its_preset_is_there_after_a_load_from_a_snapshot() -> None:
    taken = events.Preset("review", "user", "/home/review.toml", "You are a reviewer.", {"it": {"command": "it"}})
    start = replace(start_session("sess_other"), preset="review", resolved_preset=taken)
    table = SessionDriver(session_id="sess_other")
    table.session = type(table.session)(id="sess_other")
    table.execute(start)

    assert table.session.preset == taken
    assert decode_snapshot(encode_snapshot(table.session)).preset == taken


def test_a_new_conversation_counts_from_nothing_and_the_journal_keeps_the_old_one() -> None:
    table = SessionDriver()
    run_id = table.send("hello")
    table.emit(run_id, events.MessageCompleted("m1", "hi", calls=(events.ToolRequest("c1", "read_file", {}),)))
    table.emit(run_id, events.ToolFinished("c1", "read_file", 1, "text"))
    table.execute(commands.FinishRun(session_id=SESSION_ID, run_id=run_id, outcome=events.Outcome.SUCCESS, summary="done"))
    counts = table.session.counts
    assert (counts.user, counts.assistant, counts.tool_calls, counts.tool_results) == (1, 1, 1, 1)
    entries = len(table.entries)

    table.execute(commands.ReplaceConversation(session_id=SESSION_ID, actor=OWNER, conversation=(make_message("user", "anew"),)))

    assert table.session.counts.messages == 1
    assert table.session.clearings == 1
    assert table.session.conversation_from == entries + 1


def test_a_conversation_is_not_exchanged_under_a_run() -> None:
    table = SessionDriver()
    table.send()

    with pytest.raises(errors.RunInProgress):
        table.execute(commands.ReplaceConversation(session_id=SESSION_ID, actor=OWNER))


def test_how_the_last_run_ended_is_known_afterwards_and_after_a_restart() -> None:
    table = SessionDriver()
    run_id = table.send()
    table.emit(run_id, events.ErrorRaised("MODEL_ERROR", "the key was refused"))
    table.execute(commands.FinishRun(session_id=SESSION_ID, run_id=run_id, outcome=events.Outcome.FAILED, summary="failed"))

    last = decode_snapshot(encode_snapshot(table.session)).last_run

    assert last is not None
    assert (last.id, last.outcome, last.failure) == (run_id, events.Outcome.FAILED, "the key was refused")


def test_a_step_is_stopped_only_in_a_run() -> None:
    table = SessionDriver()
    before = len(table.log)
    table.execute(commands.StopStep(session_id=SESSION_ID, actor=OWNER, step="retry"))
    assert len(table.log) == before

    table.send()
    table.execute(commands.StopStep(session_id=SESSION_ID, actor=OWNER, step="retry"))
    assert table.log[-1] == events.StepStopped("retry", OWNER)


def test_what_a_session_does_by_itself_can_be_turned_off_and_on() -> None:
    table = SessionDriver()
    table.execute(commands.ConfigureSession(session_id=SESSION_ID, actor=OWNER, auto_compact=False, auto_retry=False))
    assert (table.session.auto_compact, table.session.auto_retry) == (False, False)

    table.execute(commands.ConfigureSession(session_id=SESSION_ID, actor=OWNER, auto_retry=True))
    assert (table.session.auto_compact, table.session.auto_retry) == (False, True)


def test_a_message_that_a_run_was_already_sent_is_ignored() -> None:
    table = SessionDriver()
    first = table.execute(commands.SendMessage(session_id=SESSION_ID, actor=OWNER, text="hi", client_message_id="m1"))
    seq = table.session.seq

    again = table.execute(commands.SendMessage(session_id=SESSION_ID, actor=OWNER, text="hi", client_message_id="m1"))
    assert again == {"duplicate": True}
    assert table.session.seq == seq

    run_id = str(first["run_id"])
    table.execute(commands.FinishRun(session_id=SESSION_ID, run_id=run_id, outcome=events.Outcome.SUCCESS, summary="done"))
    assert table.execute(commands.SendMessage(session_id=SESSION_ID, actor=OWNER, text="hi", client_message_id="m1")) == again

    table.execute(commands.SendMessage(session_id=SESSION_ID, actor=OWNER, text="hi", client_message_id="m2"))
    with pytest.raises(errors.RunInProgress):
        table.execute(commands.SendMessage(session_id=SESSION_ID, actor=OWNER, text="hi", client_message_id="m1"))
