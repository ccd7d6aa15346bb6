"""A flow, as the rules see it: it begins with its session, runs once, and takes no messages."""

from typing import Any

import msgspec
import pytest

from switchtower.core import commands, errors, events, flows
from switchtower.core.decide import decide
from switchtower.core.fold import decode_snapshot, encode_snapshot, fold_entries
from switchtower.core.session import Session
from switchtower.testing.session_driver import OWNER, SESSION_ID, SessionDriver, start_session

FLOW = events.Flow(name="weather", document={"graph": {}}, inputs={"city": "Bern"})


class FlowSessionTable(SessionDriver):
    """A session that is a flow, on the table."""

    def __init__(self, *, mode: str = "interactive", lasting: bool = False) -> None:
        super().__init__()
        self.session = Session(id=SESSION_ID)
        self.log, self.entries = [], []
        flow = msgspec.structs.replace(FLOW, lasting=lasting)
        self.start = msgspec.structs.replace(start_session(SESSION_ID, mode), engine="flow", flow=flow)
        self.run_id = str(self.execute(self.start)["run_id"])


WHOSE: dict[str, Any] = {"session_id": SESSION_ID, "actor": OWNER}
MESSAGES = [
    commands.SendMessage(text="hello", **WHOSE),
    commands.QueueMessage(text="hello", delivery=events.Delivery.STEER, **WHOSE),
    commands.QueueMessage(text="hello", delivery=events.Delivery.FOLLOW_UP, **WHOSE),
]
CHORES = [
    (commands.CompactContext(**WHOSE), errors.RunInProgress, errors.InvalidCommand),
    (commands.RestoreWorkspace(**WHOSE), errors.NothingToRestore, errors.NothingToRestore),
    (commands.RestoreWorkspace(redo=True, **WHOSE), errors.NothingToRestore, errors.NothingToRestore),
]


def test_a_flow_s_run_begins_with_its_session() -> None:
    table = FlowSessionTable()

    assert [type(event) for event in table.log] == [events.SessionStarted, events.RunStarted]
    started, run = table.log
    assert isinstance(started, events.SessionStarted)
    assert isinstance(run, events.RunStarted)
    assert started.flow == FLOW
    assert (run.text, run.purpose, run.by, run.headless) == ("weather", events.Purpose.FLOW, OWNER, False)
    assert table.session.run is not None
    assert (table.session.run.id, table.session.title) == (table.run_id, "weather")


def test_what_was_asked_for_is_handed_to_the_engine_unhidden() -> None:
    decision = decide(Session(id=SESSION_ID), FlowSessionTable().start, now_ms=1, mint=lambda prefix: f"{prefix}_1")

    assert decision.following is not None
    assert decision.following.ephemeral_input == FLOW


def test_a_headless_session_s_flow_is_headless() -> None:
    table = FlowSessionTable(mode="headless")

    assert table.session.run is not None
    assert table.session.run.headless is True


def test_an_agent_s_session_begins_no_flow() -> None:
    assert flows.start_flow(start_session(SESSION_ID), lambda prefix: prefix) is None


@pytest.mark.parametrize("command", MESSAGES)
@pytest.mark.parametrize("is_over", [False, True])
def test_nobody_talks_to_a_flow(command: commands.AnyCommand, is_over: bool) -> None:
    table = FlowSessionTable()
    if is_over:
        table.finish(table.run_id)
    before = list(table.log)

    with pytest.raises(errors.InvalidCommand, match="a flow takes no messages"):
        table.execute(command)
    assert table.log == before


@pytest.mark.parametrize(("command", "under_way", "over"), CHORES)
def test_a_flow_has_nothing_to_compact_or_to_undo(
    command: commands.AnyCommand, under_way: type[errors.CoreError], over: type[errors.CoreError]
) -> None:
    table = FlowSessionTable()
    with pytest.raises(under_way):
        table.execute(command)
    table.finish(table.run_id)
    before = list(table.log)

    with pytest.raises(over):
        table.execute(command)
    assert table.log == before


def test_a_flow_can_be_cancelled() -> None:
    table = FlowSessionTable(lasting=True)

    table.execute(commands.CancelRun(session_id=SESSION_ID, actor=OWNER, reason="enough"))

    assert isinstance(table.log[-1], events.RunCancelRequested)
    assert table.session.can_resume_after_restart is False


@pytest.mark.parametrize("lasting", [False, True])
def test_a_flow_outlives_its_daemon_when_it_waits_for_people_or_agents(lasting: bool) -> None:
    table = FlowSessionTable(lasting=lasting)

    assert table.session.can_resume_after_restart is lasting
    table.request_approval(table.run_id)
    assert table.session.can_resume_after_restart is lasting
    table.finish(table.run_id)
    assert table.session.can_resume_after_restart is False


def test_its_exit_code_is_kept_and_everything_survives_a_snapshot() -> None:
    table = FlowSessionTable(lasting=True)
    table.finish(table.run_id, events.Outcome.FAILED, exit_code=4)

    assert table.session.flow is not None
    assert (table.session.flow.name, table.session.flow.lasting, table.session.flow.exit_code) == ("weather", True, 4)
    assert decode_snapshot(encode_snapshot(table.session)) == table.session
    folded = Session(id=SESSION_ID)
    fold_entries(folded, table.entries)
    assert folded == table.session


@pytest.mark.parametrize(
    ("engine", "flow"), [("flow", None), ("agent", FLOW), ("pty", FLOW), ("", FLOW)], ids=["no flow", "agent", "pty", "none"]
)
def test_the_engine_and_the_flow_belong_together(engine: str, flow: events.Flow | None) -> None:
    with pytest.raises(errors.InvalidCommand, match="belong together"):
        flows.parse_flow(engine, flow)


def test_a_runtime_that_no_system_could_start_is_refused() -> None:
    with pytest.raises(errors.InvalidCommand, match="not one that can be started"):
        flows.parse_flow("flow", msgspec.structs.replace(FLOW, argv=("bin/rt", "a\0b")))


def test_what_is_wanted_is_left_as_it_is() -> None:
    assert flows.parse_flow("flow", FLOW) is FLOW
    assert flows.parse_flow("agent", None) is None
