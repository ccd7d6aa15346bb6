"""The states of a session as a table. No `if` elsewhere assigns a state.

Two rules: a missing row means that the event leaves the state unchanged, and a session that has ended one run is ready for the
next, whatever the result of the last.
"""

from switchtower.core import events
from switchtower.core.events import Outcome, SessionState

READY = (SessionState.IDLE, SessionState.COMPLETED, SessionState.FAILED, SessionState.CANCELLED)
"""No run is active: a message starts one."""

ACTIVE = (SessionState.RUNNING, SessionState.AWAITING_APPROVAL)

TRANSITIONS: dict[tuple[SessionState, type[events.Event]], SessionState] = {
    **{(state, events.RunStarted): SessionState.RUNNING for state in READY},
    **{(state, events.SessionDeleted): SessionState.DELETED for state in SessionState},
    (SessionState.RUNNING, events.ApprovalRequested): SessionState.AWAITING_APPROVAL,
    (SessionState.AWAITING_APPROVAL, events.ApprovalDecided): SessionState.RUNNING,
    (SessionState.AWAITING_APPROVAL, events.ApprovalExpired): SessionState.RUNNING,
    (SessionState.AWAITING_APPROVAL, events.ApprovalWithdrawn): SessionState.RUNNING,
}

AFTER_RUN: dict[Outcome, SessionState] = {
    Outcome.SUCCESS: SessionState.COMPLETED,
    Outcome.FAILED: SessionState.FAILED,
    Outcome.CANCELLED: SessionState.CANCELLED,
    # A user stopped the run; push has no separate word for a session left that way.
    Outcome.DENIED: SessionState.CANCELLED,
}

EXIT_CODE_HINT: dict[Outcome, int] = {
    Outcome.SUCCESS: 0,
    Outcome.FAILED: 1,
    Outcome.CANCELLED: 2,
    Outcome.DENIED: 3,
}
ACCEPTANCE_FAILED_HINT = 4

ASKED_BY_CLIENTS = (
    events.RunStarted,
    events.ApprovalDecided,
    events.RunCancelRequested,
    events.MessageQueued,
    events.SessionConfigured,
)
"""Each of these is one accepted change by a client: it increases the session's version by one, unless its protocol counts."""
