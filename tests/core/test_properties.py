"""Whatever is asked in whatever order: seq stays dense, the first decision wins, and a replay gives the same session."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from switchtower.core import commands, errors, events, states
from switchtower.core.fold import decode_snapshot, encode_snapshot, fold_entries
from switchtower.core.session import Session
from switchtower.testing.session_driver import OWNER, SESSION_ID, SessionDriver

verdicts = st.sampled_from(list(events.Verdict))
outcomes = st.sampled_from(list(events.Outcome))


class AnySession(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = SessionDriver()
        self.approvals: list[str] = []
        self.snapshot: tuple[int, bytes] | None = None

    @property
    def run_id(self) -> str:
        return self.table.session.run.id if self.table.session.run else "run_none"

    @rule(text=st.text(min_size=1, max_size=20))
    def send(self, text: str) -> None:
        active = self.table.session.run is not None
        try:
            self.table.send(text)
            assert not active
        except errors.RunInProgress:
            assert active

    @precondition(lambda self: self.table.session.run)
    @rule(text=st.text(max_size=10), thinking=st.booleans())
    def stream(self, text: str, thinking: bool) -> None:
        self.table.emit(self.run_id, events.ThinkingDelta(text) if thinking else events.TextDelta(text))

    @precondition(lambda self: self.table.session.run)
    @rule(call=st.integers(1, 3), finish=st.booleans())
    def tool(self, call: int, finish: bool) -> None:
        call_id = f"call_{call}"
        if finish:
            self.table.emit(self.run_id, events.ToolFinished(call_id=call_id, tool="run", duration_ms=1, text=""))
        else:
            self.table.emit(self.run_id, events.ToolCalled(call_id=call_id, tool="run", args={}))

    @precondition(lambda self: self.table.session.run)
    @rule(call=st.integers(1, 3), fingerprint=st.sampled_from("ab"))
    def ask(self, call: int, fingerprint: str) -> None:
        self.approvals.append(self.table.request_approval(self.run_id, call_id=f"call_{call}", fingerprint=fingerprint))

    @precondition(lambda self: self.approvals)
    @rule(verdict=verdicts, pick=st.randoms(use_true_random=False))
    def settle(self, verdict: events.Verdict, pick) -> None:  # type: ignore[no-untyped-def]
        approval_id = pick.choice(self.approvals)
        pending = self.table.session.run is not None and approval_id in self.table.session.run.pending
        try:
            self.table.decide_approval(approval_id, verdict)
            assert pending
        except errors.ApprovalClosed:
            assert not pending

    @precondition(lambda self: self.approvals)
    @rule(pick=st.randoms(use_true_random=False))
    def expire(self, pick) -> None:  # type: ignore[no-untyped-def]
        self.table.execute(commands.ExpireApproval(session_id=SESSION_ID, approval_id=pick.choice(self.approvals)))

    @rule()
    def cancel(self) -> None:
        active = self.table.session.run is not None
        try:
            self.table.execute(commands.CancelRun(session_id=SESSION_ID, actor=OWNER))
            assert active
        except errors.NoActiveRun:
            assert not active

    @rule(text=st.text(min_size=1, max_size=10), delivery=st.sampled_from(list(events.Delivery)))
    def queue(self, text: str, delivery: events.Delivery) -> None:
        active = self.table.session.run is not None
        outcome = self.table.queue(text, delivery)
        assert ("run_id" not in outcome) == active

    @precondition(lambda self: self.table.session.queue)
    @rule()
    def take_up(self) -> None:
        message_id, queued = next(iter(self.table.session.queue.items()))
        self.table.emit(self.run_id, events.MessageDelivered(message_id, queued.text))

    @precondition(lambda self: self.table.session.run)
    @rule(tree=st.sampled_from("abc"), when=st.sampled_from(["before", "after"]))
    def checkpoint(self, tree: str, when: str) -> None:
        run = self.table.session.run
        if run is not None and run.purpose is events.Purpose.WORK and (when == "after") == (run.checkpoint is not None):
            self.table.emit(run.id, events.CheckpointTaken(when, tree))

    @rule(redo=st.booleans())
    def restore(self, redo: bool) -> None:
        session = self.table.session
        changes = session.undone if redo else session.done
        try:
            run_id = self.table.execute(commands.RestoreWorkspace(session_id=SESSION_ID, actor=OWNER, redo=redo))["run_id"]
        except errors.NothingToRestore:
            assert not changes
        except errors.RunInProgress:
            assert session.run is not None
        else:
            change = changes[-1]
            self.table.emit(run_id, events.WorkspaceRestored("redo" if redo else "undo", change.run_id, change.after or "z"))

    @invariant()
    def a_queue_waits_for_a_run(self) -> None:
        assert self.table.session.run is not None or not self.table.session.queue

    @invariant()
    def no_change_is_both_done_and_undone(self) -> None:
        runs = [change.run_id for change in (*self.table.session.done, *self.table.session.undone)]
        assert len(runs) == len(set(runs))

    @precondition(lambda self: self.table.session.run)
    @rule(outcome=outcomes)
    def finish(self, outcome: events.Outcome) -> None:
        self.table.finish(self.run_id, outcome)

    @precondition(lambda self: self.table.session.run)
    @rule()
    def interrupt(self) -> None:
        self.table.execute(commands.InterruptRun(session_id=SESSION_ID, run_id=self.run_id, reason="a crash"))

    @rule()
    def take_snapshot(self) -> None:
        self.snapshot = (self.table.session.seq, encode_snapshot(self.table.session))

    @invariant()
    def seq_is_dense(self) -> None:
        assert [entry.seq for entry in self.table.entries] == list(range(1, len(self.table.entries) + 1))
        assert self.table.session.seq == len(self.table.entries)

    @invariant()
    def each_question_is_closed_at_most_once(self) -> None:
        closing = (events.ApprovalDecided, events.ApprovalExpired, events.ApprovalWithdrawn)
        closed = Counter(event.approval_id for event in self.table.log if isinstance(event, closing))
        assert all(count == 1 for count in closed.values())

    @invariant()
    def a_run_is_active_exactly_in_the_active_states(self) -> None:
        session = self.table.session
        assert (session.run is not None) == (session.state in states.ACTIVE)
        waiting = session.run is not None and bool(session.run.pending)
        assert waiting == (session.state is events.SessionState.AWAITING_APPROVAL)

    @invariant()
    def what_a_run_opened_is_closed_when_it_ends(self) -> None:
        if self.table.session.run is None:
            assert self.table.session.pending_approval is None

    @invariant()
    def replay_gives_the_same_session(self) -> None:
        replayed = Session(id=SESSION_ID)
        fold_entries(replayed, self.table.entries)
        assert encode_snapshot(replayed) == encode_snapshot(self.table.session)

    @invariant()
    def a_snapshot_and_the_tail_give_the_same_session(self) -> None:
        if self.snapshot is not None:
            seq, snapshot = self.snapshot
            loaded = decode_snapshot(snapshot)
            fold_entries(loaded, self.table.entries[seq:])
            assert encode_snapshot(loaded) == encode_snapshot(self.table.session)


AnySession.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnySession = AnySession.TestCase
