"""What a session waits for from people: a decision or an answer, each with its title. Found by reading its latest events.

Asks the daemon nothing that is kept: a look at a session leaves no trace in its journal.
"""

from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import NamedTuple

from msgspec import Struct

from switchtower.client import dialogs, errors
from switchtower.client.client import DaemonClient
from switchtower.client.frames import PushEvent
from switchtower.protocols.push import messages

LATEST_EVENTS = 500
"""Events that are read at first. An open question is usually among the last."""
_RANGE_FACTOR = 8
_MAX_APPROVALS = 500
_ACTIVE_STATES = ("running", "awaiting_approval")


class OpenRequest(Struct, frozen=True, rename="camel"):
    kind: str
    """`approval` or `dialog`."""
    id: str
    title: str
    summary: str = ""
    expires_at: int = 0
    """In milliseconds, as the daemon's clock has it."""


class WaitingApproval(NamedTuple):
    """An approval, where it was asked for, and by which run."""

    seq: int
    run_id: str
    approval: messages.ApprovalRequired


class OpenRequests:
    """What is open after the events so far."""

    def __init__(self) -> None:
        self.approvals: dict[str, WaitingApproval] = {}
        self.dialogs = dialogs.DialogTracker()
        self.runs: set[str] = set()

    def on_event(self, event: PushEvent) -> None:
        self.dialogs.on_event(event)
        if event.run_id is not None:
            self.runs.add(event.run_id)
        match event.payload:
            case messages.ApprovalRequired(approval_id) if event.run_id is not None:
                self.approvals[approval_id] = WaitingApproval(event.seq, event.run_id, event.payload)
            case messages.ApprovalReceived(approval_id):
                self.approvals.pop(approval_id, None)
            case messages.Warn("APPROVAL_EXPIRED" | "APPROVAL_WITHDRAWN", detail=str(approval_id)):
                self.approvals.pop(approval_id, None)
            case messages.SessionSnapshot(_, str(run_id), _, messages.ApprovalRequired() as approval):
                self.approvals[approval.approvalId] = WaitingApproval(event.seq, run_id, approval)
            case messages.RunComplete():
                self.approvals.clear()

    def list_requests(self) -> list[OpenRequest]:
        return [
            *(_make_open_request(approval) for _, _, approval in self.approvals.values()),
            *(
                OpenRequest("dialog", dialog.dialog_id, dialog.title, dialog.message, dialog.expires_at)
                for _, dialog in self.dialogs.dialogs.values()
            ),
        ]


async def find_open_requests(client: DaemonClient, session_id: str, *, to_run_start: bool = True) -> OpenRequests:
    """`thoroughly`: as far back as the run goes, however long that is; else only among the latest events."""
    most = LATEST_EVENTS
    while True:
        session = client.subscribe(session_id)
        head = (await session.attach()).replay.toSeq
        session.last_seen_seq = max(0, head - most)
        found = OpenRequests()
        if session.last_seen_seq < head:
            async with aclosing(session.stream_events()) as events:
                async for event in events:
                    found.on_event(event)
                    if session.last_seen_seq >= head:
                        break
        # With an event of an earlier run among them, all of the present one were read.
        if not to_run_start or most >= head or len(found.runs) > 1:
            return found
        most *= _RANGE_FACTOR


async def find_requests_by_session(
    client: DaemonClient, listed: Sequence[messages.ListedSession]
) -> dict[str, list[OpenRequest]]:
    """By session, of those that wait for something. One whose token we do not have is passed over."""
    found: dict[str, list[OpenRequest]] = {}
    told = await _fetch_pending_approvals(client)
    for session in listed:
        waits = [] if told is None else told.get(session.sessionId, [])
        if session.state in _ACTIVE_STATES and (told is None or session.state == "running"):
            with suppress(errors.RequestFailed):
                # An approval is certainly there, so it is looked for until it is found.
                waits = (
                    await find_open_requests(client, session.sessionId, to_run_start=session.state == "awaiting_approval")
                ).list_requests()
        if waits:
            found[session.sessionId] = waits
    return found


async def _fetch_pending_approvals(client: DaemonClient) -> dict[str, list[OpenRequest]] | None:
    """All approvals at once, by session; None where the daemon cannot tell them so."""
    if not client.supports("inbox"):
        return None
    found: dict[str, list[OpenRequest]] = {}
    for pending in await client.list_approvals(_MAX_APPROVALS):
        found.setdefault(pending.sessionId, []).append(_make_open_request(pending.approval))
    return found


def _make_open_request(approval: messages.ApprovalRequired) -> OpenRequest:
    return OpenRequest("approval", approval.approvalId, approval.title, approval.summary, approval.expiresAt)


def format_request(request: OpenRequest) -> str:
    """On one line, with how it is settled."""
    about = f"{request.title}: {request.summary}" if request.summary else request.title
    return f"{request.kind} {' '.join(about.split())}"
