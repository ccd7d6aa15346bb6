"""Drives a session without an event loop, for tests of rules: commands in, events folded, as a lane does it.

Entries, cards, receipts and appends for tests of journals."""

from collections.abc import Sequence
from typing import Any

from switchtower.core import codec, commands, events
from switchtower.core.codec import encode
from switchtower.core.decide import decide
from switchtower.core.fold import fold
from switchtower.core.ports import journal
from switchtower.core.rules import Decision
from switchtower.core.session import Session

NOON = 1_760_000_000_000


def make_card(session_id: str, state: events.SessionState = events.SessionState.IDLE, updated_at_ms: int = NOON) -> journal.Card:
    return journal.Card(
        session_id=session_id,
        state=state,
        created_at_ms=NOON,
        updated_at_ms=updated_at_ms,
        workspace=events.Workspace(root="/work/space", branch="main"),
        provider="demo",
        engine="agent",
        title="Ünïcode, too",
    )


def make_delta(seq: int, ts_ms: int = NOON) -> journal.Entry:
    """Returns an entry that retention may remove."""
    return journal.Entry(seq, ts_ms, "run_1", events.TextDelta.kind, codec.encode(events.TextDelta(text=f"word {seq}")))


def make_warning(seq: int, ts_ms: int = NOON) -> journal.Entry:
    """Returns an entry that retention never removes."""
    data = codec.encode(events.WarningRaised(code="CODE", message=f"number {seq}"))
    return journal.Entry(seq, ts_ms, None, events.WarningRaised.kind, data)


def make_deltas(first: int, last: int, ts_ms: int = NOON) -> list[journal.Entry]:
    return [make_delta(seq, ts_ms) for seq in range(first, last + 1)]


def make_receipt(key: str, scope: str = "sess_a", *, expires_at_ms: int = NOON + 1_000, run: str = "run_1") -> journal.Receipt:
    return journal.Receipt(
        scope=scope, key=key, fingerprint=f"sha of {run}", outcome={"runId": run, "accepted": True}, expires_at_ms=expires_at_ms
    )


def make_append(
    session_id: str, entries: Sequence[journal.Entry], *, epoch: int = 1, snapshot: bytes | None = None
) -> journal.Append:
    """Returns an append with the card that a first entry needs."""
    is_first = bool(entries) and entries[0].seq == 1
    return journal.Append(
        session_id=session_id, epoch=epoch, entries=entries, card=make_card(session_id) if is_first else None, snapshot=snapshot
    )


async def read_seqs(store: journal.Journal, session_id: str) -> list[int]:
    return [entry.seq for entry in await store.read(session_id, 0, 100_000)]


OWNER = events.Actor(name="owner", via="cli")
SESSION_ID = "sess_01"


class SessionDriver:
    """One session: every decision is folded at once, and kept."""

    def __init__(self, *, mode: str = "interactive", session_id: str = SESSION_ID) -> None:
        self.session = Session(id=session_id)
        self.now_ms = 1_000
        self.log: list[events.AnyEvent] = []
        self.entries: list[journal.Entry] = []
        self._minted = 0
        self.execute(start_session(session_id, mode))

    def mint(self, prefix: str) -> str:
        self._minted += 1
        return f"{prefix}_{self._minted}"

    def execute(self, command: commands.AnyCommand) -> dict[str, Any]:
        decision = decide(self.session, command, now_ms=self.now_ms, mint=self.mint)
        part: Decision | None = decision
        while part is not None:
            for event in part.events:
                self.emit(part.run_id, event)
            part = part.following
        return decision.outcome

    def emit(self, run_id: str | None, event: events.AnyEvent) -> None:
        """Folds an event of an engine."""
        seq = self.session.seq + 1
        fold(self.session, seq, self.now_ms, run_id, event)
        self.log.append(event)
        self.entries.append(journal.Entry(seq, self.now_ms, run_id, event.kind, encode(event)))

    def send(self, text: str = "hello", **fields: Any) -> str:
        outcome = self.execute(commands.SendMessage(session_id=self.session.id, actor=OWNER, text=text, **fields))
        return str(outcome["run_id"])

    def queue(self, text: str, delivery: events.Delivery = events.Delivery.STEER) -> dict[str, Any]:
        return self.execute(commands.QueueMessage(session_id=self.session.id, actor=OWNER, text=text, delivery=delivery))

    def request_approval(
        self,
        run_id: str,
        *,
        call_id: str = "call_1",
        fingerprint: str = "f",
        expires_at_ms: int = 10_000,
        rule: events.Rule | None = None,
    ) -> str:
        outcome = self.execute(
            commands.RequestApproval(
                session_id=self.session.id,
                run_id=run_id,
                call_id=call_id,
                kind="exec",
                title="Run a command",
                summary="make test",
                details={"command": "make test"},
                fingerprint=fingerprint,
                expires_at_ms=expires_at_ms,
                rule=rule,
            )
        )
        return str(outcome["approval_id"])

    def decide_approval(
        self,
        approval_id: str,
        verdict: events.Verdict = events.Verdict.APPROVE,
        *,
        run_id: str | None = None,
        always: bool = False,
    ) -> None:
        self.execute(
            commands.DecideApproval(
                session_id=self.session.id,
                actor=OWNER,
                approval_id=approval_id,
                verdict=verdict,
                run_id=run_id,
                always=always,
            )
        )

    def finish(self, run_id: str, outcome: events.Outcome = events.Outcome.SUCCESS, **fields: Any) -> None:
        self.execute(commands.FinishRun(session_id=self.session.id, run_id=run_id, outcome=outcome, summary="done", **fields))


def start_session(session_id: str, mode: str = "interactive") -> commands.StartSession:
    return commands.StartSession(
        session_id=session_id,
        actor=OWNER,
        engine="agent",
        mode=mode,
        provider="demo",
        sandbox="local",
        workspace=events.Workspace(root="/work"),
        attach_token_sha256="0" * 64,
    )
