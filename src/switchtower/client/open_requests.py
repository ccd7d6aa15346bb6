"""Finds what a session waits for (an approval or a dialog, each with its title) by reading its latest events.

It sends the daemon only requests that leave no trace in the session's journal.
"""

from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import NamedTuple

from msgspec import Struct

from switchtower.client import errors, frames
from switchtower.client.client import DaemonClient
from switchtower.client.frames import PushEvent
from switchtower.protocols.push import messages

LATEST_EVENTS = 500
"""The number of events read in the first attempt. An open request is usually among them."""
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
    """The deadline in milliseconds on the daemon's clock."""


class WaitingApproval(NamedTuple):
    """A pending approval with the seq and the run of its request."""

    seq: int
    run_id: str
    approval: messages.ApprovalRequired


class OpenRequests:
    """Tracks the approvals and dialogs that are open after the events so far."""

    def __init__(self) -> None:
        self.approvals: dict[str, WaitingApproval] = {}
        self.dialogs = frames.DialogTracker()
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
    """Finds a session's open requests. With `to_run_start` it reads back to the start of the run, however long the run is;
    otherwise it reads only the latest events."""
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
        # An event of an earlier run proves that every event of the current run was read.
        if not to_run_start or most >= head or len(found.runs) > 1:
            return found
        most *= _RANGE_FACTOR


async def find_requests_by_session(
    client: DaemonClient, listed: Sequence[messages.ListedSession]
) -> dict[str, list[OpenRequest]]:
    """Returns the open requests of each session that waits for something. It skips sessions whose attach token is missing."""
    found: dict[str, list[OpenRequest]] = {}
    told = await _fetch_pending_approvals(client)
    for session in listed:
        waits = [] if told is None else told.get(session.sessionId, [])
        if session.state in _ACTIVE_STATES and (told is None or session.state == "running"):
            with suppress(errors.RequestFailed):
                # An approval certainly exists, so the search continues until it is found.
                waits = (
                    await find_open_requests(client, session.sessionId, to_run_start=session.state == "awaiting_approval")
                ).list_requests()
        if waits:
            found[session.sessionId] = waits
    return found


async def _fetch_pending_approvals(client: DaemonClient) -> dict[str, list[OpenRequest]] | None:
    """Fetches all approvals in one request, grouped by session; None when the daemon does not support it."""
    if not client.supports("inbox"):
        return None
    found: dict[str, list[OpenRequest]] = {}
    for pending in await client.list_approvals(_MAX_APPROVALS):
        found.setdefault(pending.sessionId, []).append(_make_open_request(pending.approval))
    return found


def _make_open_request(approval: messages.ApprovalRequired) -> OpenRequest:
    return OpenRequest("approval", approval.approvalId, approval.title, approval.summary, approval.expiresAt)


def format_request(request: OpenRequest) -> str:
    """Formats the request on one line."""
    about = f"{request.title}: {request.summary}" if request.summary else request.title
    return f"{request.kind} {' '.join(about.split())}"
