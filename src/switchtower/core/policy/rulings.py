"""What comes of a look at a tool call: a ruling, and why. Decides nothing."""

from enum import StrEnum

from msgspec import Struct

from switchtower.core import events


class Ruling(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Judgement(Struct, frozen=True):
    """A ruling, and why in one sentence that a person or a model can read."""

    ruling: Ruling
    reason: str
    always: events.Rule | None = None
    """What "always for this session" would allow; None where nobody is asked, or where each time must be."""
    destructive: bool = False
    """It may destroy, publish or take over what cannot be had back."""
    reasons: tuple[str, ...] = ()
    """Every reason for a question, `reason` first, where there are several."""


def allow(reason: str, *, destructive: bool = False) -> Judgement:
    return Judgement(Ruling.ALLOW, reason, destructive=destructive)


def ask(reason: str, *, always: events.Rule | None = None, destructive: bool = False) -> Judgement:
    return Judgement(Ruling.ASK, reason, always, destructive)


def deny(reason: str, *, destructive: bool = False) -> Judgement:
    return Judgement(Ruling.DENY, reason, destructive=destructive)
