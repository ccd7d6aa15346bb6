"""The enumerations that events use."""

from enum import StrEnum


class Verdict(StrEnum):
    APPROVE = "approve"
    DENY_CONTINUE = "deny_continue"
    DENY_STOP = "deny_stop"


class Purpose(StrEnum):
    """The purpose of a run. Only work has a user's message; the others are journalled like work."""

    WORK = "work"
    COMPACT = "compact"
    UNDO = "undo"
    REDO = "redo"
    PROGRAM = "program"
    """A program in a terminal, from its start to its exit."""
    FLOW = "flow"
    """A flow, from its first step to its last."""


class Delivery(StrEnum):
    """The time at which a message that is sent to a running session reaches the model."""

    STEER = "steer"
    FOLLOW_UP = "follow_up"


class Outcome(StrEnum):
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DENIED = "denied"


class SessionState(StrEnum):
    IDLE = "idle"
    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting_approval"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DELETED = "deleted"
    """No client sees this state: a deleted session is not found."""
