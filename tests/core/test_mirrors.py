"""Sessions that live on another host, as the rules see them: what their host says counts once and in its order."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchtower.core import commands, errors, events
from switchtower.core.fold import decode_snapshot, encode_snapshot, fold_entries, make_card
from switchtower.core.session import Session
from switchtower.testing.session_driver import OWNER, SESSION_ID, SessionDriver

HOST, RUN = "host_1", "run_01"
BY = events.Actor(name=HOST, via="host")


def make_relayed(seq: int) -> events.Relayed:
    return events.Relayed(seq, 1_000 + seq)


def make_opened(seq: int | None = None) -> tuple[events.AnyEvent, ...]:
    program = events.Program(argv=(), command="codex", tool="codex")
    started = events.SessionStarted(
        engine="pty",
        mode="interactive",
        provider="terminal",
        sandbox="local",
        workspace=events.Workspace(root="/there"),
        by=BY,
        attach_token_sha256="",
        program=program,
        host=HOST,
        relayed=make_relayed(seq) if seq is not None else None,
    )
    return (started, events.RunStarted(text="codex", by=BY, purpose=events.Purpose.PROGRAM))


def make_started(seq: int = 1) -> commands.HostReport:
    return commands.HostReport(seq, make_opened(seq))


def make_output(seq: int, text: str = "") -> commands.HostReport:
    return commands.HostReport(seq, (events.ToolProgressed("terminal", text or f"{seq};", relayed=make_relayed(seq)),))


def make_approval(seq: int, approval_id: str = "appr_1") -> commands.HostReport:
    approval = events.Approval(approval_id, "terminal", "terminal", "Proceed?", "Proceed?", {}, 10_000, "")
    return commands.HostReport(seq, (events.ApprovalRequested(approval=approval, relayed=make_relayed(seq)),))


def make_input(seq: int, input_id: str) -> commands.HostReport:
    """As the hub reads it: that the question's own id was typed shows that it was decided."""
    typed = events.TerminalTyped(input_id, "y\n", "", BY, relayed=make_relayed(seq))
    return commands.HostReport(seq, (typed, events.ApprovalWithdrawn(approval_id=input_id, reason="answered on its host")))


def make_decision(seq: int, approval_id: str = "appr_1") -> commands.HostReport:
    decided = events.ApprovalDecided(approval_id, events.Verdict.APPROVE, BY, relayed=make_relayed(seq))
    return commands.HostReport(seq, (decided,))


def make_ended(seq: int, exit_code: int = 0) -> commands.HostReport:
    completed = events.RunCompleted(events.Outcome.SUCCESS, "ended", 0, exit_code=exit_code, relayed=make_relayed(seq))
    return commands.HostReport(seq, (events.ToolFinished("terminal", "terminal", 0, ""), completed))


class MirroredSession(SessionDriver):
    """A session of another host, on our table. Before its first report there is nothing."""

    def __init__(self, *reports: commands.HostReport) -> None:
        super().__init__()
        self.session = Session(id=SESSION_ID)
        self.log, self.entries = [], []
        if reports:
            self.apply_reports(*reports)

    def apply_reports(self, *reports: commands.HostReport, host: str = HOST) -> int:
        command = commands.MirrorRun(
            session_id=SESSION_ID, actor=OWNER, host=host, run_id=RUN, reports=reports, opening=make_opened()
        )
        return int(self.execute(command)["last_seq"])

    def mark(self, *, lost: bool) -> None:
        self.execute(commands.MarkHost(session_id=SESSION_ID, lost=lost))

    @property
    def seqs(self) -> list[int]:
        """The host's own numbers, as we have them."""
        return [event.relayed.seq for event in self.log if event.relayed is not None]

    def list_events(self, event_type: type[Any]) -> list[Any]:
        return [event for event in self.log if isinstance(event, event_type)]


# Taken once, in order


def test_what_a_host_tells_becomes_a_session_that_lives_there() -> None:
    table = MirroredSession()
    assert table.apply_reports(make_started(), make_output(2), make_ended(3, 7)) == 3

    kinds = [type(event) for event in table.log]
    assert kinds == [
        events.SessionStarted,
        events.RunStarted,
        events.ToolProgressed,
        events.ToolFinished,
        events.RunCompleted,
    ]
    assert {entry.run_id for entry in table.entries} == {RUN}
    listed = make_card(table.session)
    assert (listed.host, listed.host_lost, listed.tool, listed.exit_code) == (HOST, False, "codex", 7)
    assert listed.state is events.SessionState.COMPLETED
    assert table.session.relayed_seq == 3


@pytest.mark.parametrize(
    "again",
    [
        (make_started(),),
        (make_output(2),),
        (make_started(), make_output(2)),
        (make_output(2), make_output(2), make_started()),
        (),
    ],
    ids=["begin", "middle", "all", "disordered", "nothing"],
)
def test_what_was_told_before_is_not_taken_twice(again: tuple[commands.HostReport, ...]) -> None:
    table = MirroredSession(make_started(), make_output(2))
    before = len(table.log)
    assert table.apply_reports(*again) == 2
    assert len(table.log) == before


def test_a_batch_that_overlaps_is_taken_from_where_it_is_new() -> None:
    table = MirroredSession(make_started(), make_output(2), make_output(3))
    assert table.apply_reports(make_output(2), make_output(3), make_output(4), make_output(4), make_output(5)) == 5
    assert table.seqs == [1, 2, 3, 4, 5]


def test_a_batch_of_old_news_for_a_session_that_does_not_exist_begins_none() -> None:
    table = MirroredSession()
    assert table.apply_reports() == 0
    assert table.session.seq == 0


def test_a_hole_is_passed_over_and_what_was_in_it_comes_too_late() -> None:
    table = MirroredSession(make_started(), make_output(5))
    assert table.apply_reports(make_output(3)) == 5
    assert table.seqs == [1, 5]


# Whose it is


def test_another_host_cannot_tell_of_it() -> None:
    table = MirroredSession(make_started())
    before = len(table.log)
    with pytest.raises(errors.NotSessionHost):
        table.apply_reports(make_output(2), host="host_2")
    assert len(table.log) == before


@pytest.mark.parametrize("reports", [(make_started(),), (make_output(99),), ()], ids=["begin", "middle", "nothing"])
def test_no_host_can_tell_of_a_session_that_lives_here(reports: tuple[commands.HostReport, ...]) -> None:
    table = SessionDriver()
    command = commands.MirrorRun(
        session_id=SESSION_ID, actor=OWNER, host=HOST, run_id=RUN, reports=reports, opening=make_opened()
    )
    with pytest.raises(errors.NotSessionHost):
        table.execute(command)
    assert len(table.log) == 1


# Beginnings and ends


def test_without_its_beginning_a_session_begins_as_the_hub_thinks_best() -> None:
    table = MirroredSession(make_output(5))
    assert [type(event) for event in table.log] == [events.SessionStarted, events.RunStarted, events.ToolProgressed]
    assert table.seqs == [5]
    assert table.session.host == HOST


def test_a_beginning_that_comes_late_is_only_noted() -> None:
    table = MirroredSession(make_output(5))
    assert table.apply_reports(make_started(6), make_output(7)) == 7
    assert table.seqs == [5, 6, 7]
    assert len(table.list_events(events.SessionStarted)) == 1
    assert table.list_events(events.HostEventReceived) == [events.HostEventReceived(type="", data={}, relayed=make_relayed(6))]


def test_a_second_beginning_in_the_same_batch_is_only_noted() -> None:
    table = MirroredSession(make_started(1), make_started(2), make_output(3))
    assert len(table.list_events(events.SessionStarted)) == 1
    assert table.seqs == [1, 2, 3]


@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "two batches"])
def test_a_second_end_is_only_noted(at_once: bool) -> None:
    table = MirroredSession(make_started())
    if at_once:
        table.apply_reports(make_ended(2), make_ended(3, 9))
    else:
        table.apply_reports(make_ended(2))
        table.apply_reports(make_ended(3, 9))
    assert [event.exit_code for event in table.list_events(events.RunCompleted)] == [0]
    assert table.seqs == [1, 2, 3]
    assert make_card(table.session).exit_code == 0


def test_what_is_said_after_the_end_is_taken_and_changes_nothing_of_it() -> None:
    table = MirroredSession(make_started(), make_ended(2))
    assert table.apply_reports(make_output(3), make_approval(4)) == 4
    assert table.seqs == [1, 2, 3, 4]
    assert table.session.run is None
    assert table.session.state is events.SessionState.COMPLETED
    assert make_card(table.session).pending_approval_id is None


# Questions


def test_a_question_is_open_until_its_host_says_otherwise() -> None:
    table = MirroredSession(make_started(), make_approval(2))
    assert make_card(table.session).pending_approval_id == "appr_1"
    table.apply_reports(make_decision(3))
    assert make_card(table.session).pending_approval_id is None
    assert table.session.state is events.SessionState.RUNNING


@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "two batches"])
def test_that_a_question_s_own_id_was_typed_closes_it(at_once: bool) -> None:
    table = MirroredSession(make_started())
    if at_once:
        table.apply_reports(make_approval(2), make_input(3, "appr_1"))
    else:
        table.apply_reports(make_approval(2))
        table.apply_reports(make_input(3, "appr_1"))
    assert [event.approval_id for event in table.list_events(events.ApprovalWithdrawn)] == ["appr_1"]
    assert make_card(table.session).pending_approval_id is None


def test_a_guess_without_such_a_question_is_left_out() -> None:
    table = MirroredSession(make_started(), make_input(2, "input_7"))
    assert table.list_events(events.ApprovalWithdrawn) == []
    assert table.seqs == [1, 2]


@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "two batches"])
def test_a_guess_after_the_decision_was_told_is_left_out(at_once: bool) -> None:
    table = MirroredSession(make_started())
    if at_once:
        table.apply_reports(make_approval(2), make_decision(3), make_input(4, "appr_1"))
    else:
        table.apply_reports(make_approval(2))
        table.apply_reports(make_decision(3))
        table.apply_reports(make_input(4, "appr_1"))
    assert table.list_events(events.ApprovalWithdrawn) == []
    assert table.seqs == [1, 2, 3, 4]


def make_waiting(seq: int, approval_id: str = "appr_1") -> commands.HostReport:
    """As the hub reads it: a program that waits for a decision has asked for one, whether that was told or not."""
    shown = events.PromptShown("permission", "Proceed?", approval_id, relayed=make_relayed(seq))
    approval = events.Approval(approval_id, "terminal", "terminal", "Proceed?", "Proceed?", {}, 10_000, "")
    return commands.HostReport(seq, (shown, events.ApprovalRequested(approval=approval)))


def test_a_question_that_was_asked_is_not_guessed_a_second_time() -> None:
    table = MirroredSession(make_started(), make_approval(2), make_waiting(3))
    table.apply_reports(make_waiting(4))
    assert len(table.list_events(events.ApprovalRequested)) == 1
    assert table.seqs == [1, 2, 3, 4]

    guessed = MirroredSession(make_started(), make_waiting(2))
    assert make_card(guessed.session).pending_approval_id == "appr_1"


def test_what_a_host_says_of_a_question_that_we_do_not_know_is_passed_on_all_the_same() -> None:
    table = MirroredSession(make_started(), make_decision(2, "appr_9"))
    assert len(table.list_events(events.ApprovalDecided)) == 1
    assert table.session.relayed_seq == 2


@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "two batches"])
def test_a_question_does_not_outlive_its_run(at_once: bool) -> None:
    table = MirroredSession(make_started(), make_approval(2, "appr_1"), make_approval(3, "appr_2"), make_decision(4, "appr_1"))
    if at_once:
        table.apply_reports(make_approval(5, "appr_3"), make_ended(6))
    else:
        table.apply_reports(make_approval(5, "appr_3"))
        table.apply_reports(make_ended(6))
    assert [event.approval_id for event in table.list_events(events.ApprovalWithdrawn)] == ["appr_2", "appr_3"]
    assert isinstance(table.log[-1], events.RunCompleted)
    assert table.seqs == [1, 2, 3, 4, 5, 6]


# Hosts that go and come


def test_a_host_that_is_lost_and_back_is_told_once_each() -> None:
    table = MirroredSession(make_started())
    table.mark(lost=False)
    assert table.list_events(events.HostReturned) == []
    table.mark(lost=True)
    table.mark(lost=True)
    assert make_card(table.session).host_lost
    table.mark(lost=False)
    table.mark(lost=False)
    assert table.log[-2:] == [events.HostLost(host=HOST), events.HostReturned(host=HOST)]
    assert not make_card(table.session).host_lost


def test_a_lost_host_that_speaks_is_back_before_what_it_says() -> None:
    table = MirroredSession(make_started())
    table.mark(lost=True)
    table.apply_reports(make_started())
    assert make_card(table.session).host_lost, "old news is no sign of life from the session"
    table.apply_reports(make_output(2), make_output(3))
    assert [type(event) for event in table.log[-3:]] == [events.HostReturned, events.ToolProgressed, events.ToolProgressed]
    assert not make_card(table.session).host_lost


def test_a_session_that_has_ended_cannot_be_lost() -> None:
    table = MirroredSession(make_started(), make_ended(2))
    before = len(table.log)
    table.mark(lost=True)
    assert len(table.log) == before


def test_a_session_that_ends_with_its_host_s_return_is_not_lost() -> None:
    table = MirroredSession(make_started())
    table.mark(lost=True)
    table.apply_reports(make_ended(2))
    assert not make_card(table.session).host_lost


def test_a_session_that_lives_here_has_no_host_to_lose() -> None:
    table = SessionDriver()
    table.send()
    before = len(table.log)
    table.execute(commands.MarkHost(session_id=SESSION_ID, lost=True))
    assert len(table.log) == before


# Who decides what

ITS_HOSTS: list[commands.AnyCommand] = [
    commands.SendMessage(session_id=SESSION_ID, actor=OWNER, text="x"),
    commands.QueueMessage(session_id=SESSION_ID, actor=OWNER, text="x", delivery=events.Delivery.STEER),
    commands.TypeInput(session_id=SESSION_ID, actor=OWNER, input_id="i", text="x", sha256=""),
    commands.TypeKeys(session_id=SESSION_ID, actor=OWNER, text="x"),
    commands.ResizeTerminal(session_id=SESSION_ID, actor=OWNER, cols=80, rows=24),
    commands.CancelRun(session_id=SESSION_ID, actor=OWNER),
    commands.DecideApproval(session_id=SESSION_ID, actor=OWNER, approval_id="appr_1", verdict=events.Verdict.APPROVE),
    commands.ExpireApproval(session_id=SESSION_ID, approval_id="appr_1"),
    commands.WithdrawApproval(session_id=SESSION_ID, approval_id="appr_1", reason=""),
    commands.StartRemoteCall(session_id=SESSION_ID, actor=OWNER, errand_id="r", tool="t", args={}),
    commands.FinishRemoteCall(session_id=SESSION_ID, errand_id="r", ok=True, duration_ms=0),
    commands.FinishRun(session_id=SESSION_ID, run_id=RUN, outcome=events.Outcome.SUCCESS, summary=""),
    commands.InterruptRun(session_id=SESSION_ID, run_id=RUN, reason=""),
    commands.RunShell(session_id=SESSION_ID, actor=OWNER, shell_id="sh_1", command="ls"),
]


@pytest.mark.parametrize("command", ITS_HOSTS, ids=lambda command: type(command).__name__)
def test_what_is_its_host_s_to_decide_is_refused_with_the_host_s_name(command: commands.AnyCommand) -> None:
    table = MirroredSession(make_started(), make_approval(2))
    before = len(table.log)
    with pytest.raises(errors.SessionOnOtherHost) as refused:
        table.execute(command)
    assert refused.value.detail == HOST
    assert len(table.log) == before


@pytest.mark.parametrize(
    "command",
    [
        commands.ConfigureSession(session_id=SESSION_ID, actor=OWNER, title="theirs"),
        commands.MarkHost(session_id=SESSION_ID, lost=True),
    ],
    ids=lambda command: type(command).__name__,
)
def test_our_own_picture_of_it_is_ours(command: commands.AnyCommand) -> None:
    table = MirroredSession(make_started())
    before = len(table.log)
    table.execute(command)
    assert len(table.log) == before + 1
    assert table.session.relayed_seq == 1, "what we do ourselves has none of the host's numbers"


# Whatever arrives

WHOLE = [
    make_started(1),
    make_output(2),
    make_approval(3, "appr_3"),
    make_input(4, "appr_3"),
    make_output(5),
    make_started(6),
    make_approval(7, "appr_7"),
    make_decision(8, "appr_7"),
    make_input(9, "appr_7"),
    make_approval(10, "appr_10"),
    make_ended(11),
    make_output(12),
    make_ended(13),
]


@st.composite
def deliveries(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Stretches of the whole, duplicated and overlapping, cut anywhere; none leaves a hole."""
    stretches: list[tuple[int, int]] = []
    reached = 0
    while reached < len(WHOLE):
        first = draw(st.integers(0, reached))
        last = draw(st.integers(first, len(WHOLE)))
        stretches.append((first, last))
        if draw(st.booleans()):
            stretches.append((first, last))
        reached = max(reached, last)
        if len(stretches) > 30:
            stretches.append((reached, len(WHOLE)))
            break
    return stretches


@given(stretches=deliveries(), losses=st.sets(st.integers(0, 30)))
def test_whatever_arrives_each_of_the_host_s_numbers_is_there_once_and_in_order(
    stretches: list[tuple[int, int]], losses: set[int]
) -> None:
    table = MirroredSession()
    for number, (first, last) in enumerate(stretches):
        assert table.apply_reports(*WHOLE[first:last]) == table.session.relayed_seq
        if number in losses and table.session.seq:
            table.mark(lost=True)

    assert table.seqs == list(range(1, len(WHOLE) + 1))
    ours = (events.HostLost, events.HostReturned)
    at_once = MirroredSession(*WHOLE)
    assert [event for event in table.log if not isinstance(event, ours)] == at_once.log
    replayed = Session(id=SESSION_ID)
    fold_entries(replayed, table.entries)
    assert replayed == table.session == decode_snapshot(encode_snapshot(table.session))
