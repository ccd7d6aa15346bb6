"""What a session waits for from people: a decision or an answer, each with its title. Found by reading its latest events.

Asks the daemon nothing that is kept: a look at a session leaves no trace in its journal.
"""

from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import NamedTuple

from msgspec import Struct

from switchtower.client import dialogs, errors
from switchtower.client.client import Client
from switchtower.client.frames import Event
from switchtower.protocols.push import messages

LATEST = 500
"""Events that are read at first. An open question is usually among the last."""
_WIDER = 8
_MOST_TOLD = 500
_UNDER_WAY = ("running", "awaiting_approval")


class Waiting(Struct, frozen=True, rename="camel"):
    kind: str
    """`approval` or `dialog`."""
    id: str
    title: str
    summary: str = ""
    expires_at: int = 0
    """In milliseconds, as the daemon's clock has it."""


class Asked(NamedTuple):
    """An approval, where it was asked for, and by which run."""

    seq: int
    run_id: str
    approval: messages.ApprovalRequired


class Open:
    """What is open after the events so far."""

    def __init__(self) -> None:
        self.approvals: dict[str, Asked] = {}
        self.dialogs = dialogs.Open()
        self.runs: set[str] = set()

    def saw(self, event: Event) -> None:
        self.dialogs.saw(event)
        if event.run_id is not None:
            self.runs.add(event.run_id)
        match event.payload:
            case messages.ApprovalRequired(approval_id) if event.run_id is not None:
                self.approvals[approval_id] = Asked(event.seq, event.run_id, event.payload)
            case messages.ApprovalReceived(approval_id):
                self.approvals.pop(approval_id, None)
            case messages.Warn("APPROVAL_EXPIRED" | "APPROVAL_WITHDRAWN", detail=str(approval_id)):
                self.approvals.pop(approval_id, None)
            case messages.SessionSnapshot(_, str(run_id), _, messages.ApprovalRequired() as approval):
                self.approvals[approval.approvalId] = Asked(event.seq, run_id, approval)
            case messages.RunComplete():
                self.approvals.clear()

    def listed(self) -> list[Waiting]:
        return [
            *(_approval(approval) for _, _, approval in self.approvals.values()),
            *(
                Waiting("dialog", dialog.dialog_id, dialog.title, dialog.message, dialog.expires_at)
                for _, dialog in self.dialogs.dialogs.values()
            ),
        ]


async def look(client: Client, session_id: str, *, thoroughly: bool = True) -> Open:
    """`thoroughly`: as far back as the run goes, however long that is; else only among the latest events."""
    most = LATEST
    while True:
        session = client.session(session_id)
        head = (await session.attach()).replay.toSeq
        session.last_seen_seq = max(0, head - most)
        found = Open()
        if session.last_seen_seq < head:
            async with aclosing(session.events()) as events:
                async for event in events:
                    found.saw(event)
                    if session.last_seen_seq >= head:
                        break
        # With an event of an earlier run among them, all of the present one were read.
        if not thoroughly or most >= head or len(found.runs) > 1:
            return found
        most *= _WIDER


async def of(client: Client, listed: Sequence[messages.ListedSession]) -> dict[str, list[Waiting]]:
    """By session, of those that wait for something. One whose token we do not have is passed over."""
    found: dict[str, list[Waiting]] = {}
    told = await _told(client)
    for session in listed:
        waits = [] if told is None else told.get(session.sessionId, [])
        if session.state in _UNDER_WAY and (told is None or session.state == "running"):
            with suppress(errors.RequestFailed):
                # An approval is certainly there, so it is looked for until it is found.
                waits = (await look(client, session.sessionId, thoroughly=session.state == "awaiting_approval")).listed()
        if waits:
            found[session.sessionId] = waits
    return found


async def _told(client: Client) -> dict[str, list[Waiting]] | None:
    """All approvals at once, by session; None where the daemon cannot tell them so."""
    if not client.offers("inbox"):
        return None
    found: dict[str, list[Waiting]] = {}
    for pending in await client.approvals(_MOST_TOLD):
        found.setdefault(pending.sessionId, []).append(_approval(pending.approval))
    return found


def _approval(approval: messages.ApprovalRequired) -> Waiting:
    return Waiting("approval", approval.approvalId, approval.title, approval.summary, approval.expiresAt)


def spelled(waits: Waiting) -> str:
    """On one line, with how it is settled."""
    about = f"{waits.title}: {waits.summary}" if waits.summary else waits.title
    return f"{waits.kind} {' '.join(about.split())}"
