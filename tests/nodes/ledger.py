"""What clients were told and promised by any node, and whether the one log that all nodes share agrees with it.

Every event is held against what anybody saw at that place before; everything else is looked at in the end, in the database.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.crash import story
from tests.crash.tower_process import AnyPushFrame, decode
from tests.nodes.fleet import TIMEOUT, ProcessCluster

from switchtower.core import events
from switchtower.protocols.push import encoder
from switchtower.stores.postgres.journal import PostgresJournal

MOST = 100_000
ENDED = {"success": "completed", "failed": "failed", "cancelled": "cancelled", "denied": "cancelled"}


@dataclass
class ClusterCommand:
    """One thing that a client has asked for, and what it may do to the world."""

    id: str
    session_id: str
    text: str
    plan: str
    file: Path | None = None
    run_id: str | None = None
    """Set once a node has acknowledged it."""
    acknowledged: bool = False

    def count_effects(self) -> int:
        """How often it has happened."""
        return self.file.read_text().count(self.id) if self.file is not None and self.file.exists() else 0


class ClusterOracle:
    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.logs: dict[str, dict[int, bytes]] = {}
        """Every event that any client has received, byte by byte."""
        self.sessions: set[str] = set()
        """Acknowledged ones."""
        self.messages: dict[str, ClusterCommand] = {}
        self.decisions: dict[str, str] = {}
        """Acknowledged ones, by approval."""
        self.attempted: set[str] = set()
        """Approvals that any client has tried to decide, with or without an answer."""
        self.asked: set[str] = set()
        """Approvals that any client has seen."""
        self.seen: Counter[str] = Counter()
        """How often each kind of thing was met, so that a test can tell that it tested something."""
        self.stories: dict[str, dict[str, story.LoggedRun]] = {}
        self._acknowledgements = 0
        self._more = asyncio.Event()

    # As it happens

    def record_event(self, line: bytes, frame: AnyPushFrame) -> None:
        known = self.logs.setdefault(frame.sessionId, {}).setdefault(frame.seq, line)
        assert known == line, f"the same seq was told twice, and differently:\n{known!r}\n{line!r}"
        if frame.type == "approval_required":
            self.asked.add(frame.content["approvalId"])

    def note(self, session_id: str, plan: str, request: str) -> ClusterCommand:
        """A message that will be sent, with a number of its own."""
        number = f"msg_{len(self.messages) + 1}"
        file = self.workspace / f"{number}.txt"
        asked = request.format(file=file.name, number=number)
        message = ClusterCommand(number, session_id, f"{asked}\n({number})", plan, file if number in asked else None)
        self.messages[number] = message
        return message

    def record_sent(self, message: ClusterCommand, run_id: str) -> None:
        assert message.run_id in (None, run_id), f"{message} has two outcomes: {run_id}"
        message.run_id = run_id
        self.record_accepted(message)

    def record_accepted(self, message: ClusterCommand) -> None:
        message.acknowledged = True
        self._count_acknowledged()

    def record_started(self, session_id: str) -> None:
        self.sessions.add(session_id)
        self._count_acknowledged()

    def record_decision(self, approval_id: str, decision: str) -> None:
        assert approval_id not in self.decisions, f"{approval_id} was decided twice"
        self.decisions[approval_id] = decision
        self._count_acknowledged()

    def _count_acknowledged(self) -> None:
        self._acknowledgements += 1
        self._more.set()

    async def wait_for_progress(self, count: int) -> None:
        """Waits for so many more acknowledgements: the tower works, whatever happens to some of it."""
        wanted = self._acknowledgements + count
        try:
            async with asyncio.timeout(TIMEOUT):
                while self._acknowledgements < wanted:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError("nobody is served any more") from None

    # In the end

    async def check_density(self, process_cluster: ProcessCluster) -> None:
        """Cheaply, of all sessions at once: each log is 1, 2, 3 … up to its head."""
        query = (
            "SELECT session_id, head, sum(count), max(seq), min(seq - count + 1) FROM homes JOIN events USING (sid)"
            " GROUP BY session_id, head"
        )
        for session_id, head, count, last, first in await process_cluster.ask_database(query):
            assert (count, last, first) == (head, head, 1), f"the log of {session_id} has a hole"

    async def check(self, process_cluster: ProcessCluster, *, settled: bool = True) -> None:
        """`settled`: nothing is under way any more."""
        await self.check_density(process_cluster)
        journal = PostgresJournal(process_cluster.dsn)
        await journal.open()
        try:
            cards = await journal.list_cards(limit=MOST)
            states = {card.session_id: card.state for card in cards}
            assert self.sessions | self.logs.keys() <= states.keys(), "a session that was acknowledged is gone"
            for session_id in states:
                await self._check_log(journal, session_id, states[session_id], settled=settled)
        finally:
            await journal.close()
        runs = {run_id: run for runs in self.stories.values() for run_id, run in runs.items()}
        assert len(runs) == sum(map(len, self.stories.values())), "a run is in two sessions"
        for message in self.messages.values():
            self._check_message(message)
        for approval_id, decision in self.decisions.items():
            closed = [run.closed[approval_id] for run in runs.values() if approval_id in run.closed]
            assert closed == [decision], f"the acknowledged decision of {approval_id} is in the log exactly once: {closed}"
        self._check_untouched(runs)

    async def _check_log(self, journal: PostgresJournal, session_id: str, state: events.SessionState, *, settled: bool) -> None:
        entries = await journal.read(session_id, 0, MOST)
        while more := await journal.read(session_id, entries[-1].seq, MOST):
            entries += more
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1)), f"seq of {session_id} has a hole"
        lines = encoder.encode_batch(session_id, entries)
        for seq, line in self.logs.get(session_id, {}).items():
            assert seq <= len(lines), f"seq {seq} of {session_id} was seen and is gone: {line!r}"
            assert lines[seq - 1] == line, f"seq {seq} of {session_id} was seen and is another now"
        runs = self.stories[session_id] = story.read([decode(line) for line in lines])
        last = next(reversed(runs.values()), None)
        if settled and last is not None:
            sent = [message for message in self.messages.values() if message.session_id == session_id]
            assert last.outcome is not None, f"{session_id} is not settled: {list(runs.values())[-3:]}, of {sent[-3:]}"
            assert state.value == ENDED[last.outcome]

    def _check_message(self, message: ClusterCommand) -> None:
        told = self.stories.get(message.session_id, {})
        runs = [run for run in told.values() if run.text == message.text]
        assert len(runs) <= 1, f"{message} was run twice"
        run = runs[0] if runs else None
        if message.acknowledged:
            assert run is not None, f"{message} was acknowledged and is gone"
            assert message.run_id in (None, run.id)
        happened = message.count_effects()
        assert happened <= 1, f"{message} took effect {happened} times"
        if happened:
            assert run is not None, f"{message} took effect without a run"
            assert run.approved, f"{message} took effect without a recorded approval"
        if message.file is not None and run is not None and run.outcome == "success" and run.approved:
            assert happened == 1, f"{message} is said to have succeeded and did nothing"

    def _check_untouched(self, runs: dict[str, story.LoggedRun]) -> None:
        """What nobody has decided is not decided, and what somebody has seen of it is not forgotten."""
        asked = {approval_id for run in runs.values() for approval_id in run.asked}
        assert self.asked <= asked, "a question that was seen is gone"
        elsewhere = {message.text for message in self.messages.values() if message.run_id is None}
        for run in runs.values():
            for approval_id, how in run.closed.items():
                if approval_id not in self.attempted and run.text not in elsewhere:
                    assert how == "withdrawn", f"nobody has decided {approval_id}"
