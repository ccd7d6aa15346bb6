"""Asks the tower for what a pi command wants, once, also when the node that decides for the session dies with the answer.

What was asked left its receipts in the very commit in which it happened. So whether it did can be read, as soon as somebody
decides for the session again: what the node before had not stored by then it cannot store any more.
"""

import contextlib

from switchtower.core import commands, errors, events, tower
from switchtower.protocols.pi.order import receipts

MOST_ASKINGS = 3
_NEWEST = 1_000
_NO_RUN = "run_0"
_US = events.Actor(name="switchtower", via="pi", counts=True)


async def ask(tower_: tower.Tower, command: commands.AnyCommand) -> tower.Outcome:
    """Without an outcome of its own when it happened and nobody could say so. Raises the refusal; `OutcomeUnknown` for a
    command without an identity, of which nothing can be read."""
    for _ in range(MOST_ASKINGS - 1):
        try:
            return await tower_.ask(command)
        except errors.OutcomeUnknown:
            if not command.receipts:
                raise
            await _somebody_decides(tower_, command.session_id)
            if await _has_happened(tower_, command):
                return {}
    return await tower_.ask(command)


async def _somebody_decides(tower_: tower.Tower, session_id: str) -> None:
    """Any answer of the session's home will do: this one changes nothing, because there is no such run."""
    with contextlib.suppress(errors.NoActiveRun, errors.SessionNotFound, errors.LivesElsewhere):
        await tower_.ask(commands.CancelRun(session_id=session_id, actor=_US, run_id=_NO_RUN))


async def _has_happened(tower_: tower.Tower, command: commands.AnyCommand) -> bool:
    left = command.receipts[0]
    for stored in await tower_.receipts(receipts.SCOPE, _NEWEST):
        if (stored.key, stored.fingerprint) == (left.key, left.fingerprint):
            return bool(stored.outcome.get("state") == left.outcome.get("state"))
    return False
