"""Asks the tower for what a pi command wants, once, also when the node that decides for the session dies with the answer.

What was asked left its receipts in the very commit in which it happened. So whether it did can be read, as soon as somebody
decides for the session again: what the node before had not stored by then it cannot store any more.
"""

import contextlib
from collections.abc import Callable

from switchtower.core import commands, errors, events, tower
from switchtower.protocols.pi.order import receipts

MOST_ASKINGS = 3
_NEWEST = 1_000
_NO_RUN = "run_0"
_US = events.Actor(name="switchtower", via="pi", counts=True)


class Asking:
    def __init__(self, tower_: tower.Tower, holds: Callable[[], bool] | None = None) -> None:
        """`holds`: whether whoever asks may still do so."""
        self._tower = tower_
        self._holds = holds

    async def ask(self, command: commands.AnyCommand) -> tower.Outcome:
        """Without an outcome of its own when it happened and nobody could say so. Raises the refusal; `OutcomeUnknown` for a
        command without an identity, of which nothing can be read."""
        for _ in range(MOST_ASKINGS - 1):
            try:
                return await self._ask(command)
            except errors.OutcomeUnknown:
                if not command.receipts:
                    raise
                await self._somebody_decides(command.session_id)
                if await self._has_happened(command):
                    return {}
        return await self._ask(command)

    async def _ask(self, command: commands.AnyCommand) -> tower.Outcome:
        if self._holds is not None and not self._holds():
            raise errors.ShuttingDown
        return await self._tower.ask(command)

    async def _somebody_decides(self, session_id: str) -> None:
        """Any answer of the session's home will do: this one changes nothing, because there is no such run."""
        with contextlib.suppress(errors.NoActiveRun, errors.SessionNotFound, errors.LivesElsewhere):
            await self._ask(commands.CancelRun(session_id=session_id, actor=_US, run_id=_NO_RUN))

    async def _has_happened(self, command: commands.AnyCommand) -> bool:
        left = command.receipts[0]
        for stored in await self._tower.receipts(receipts.SCOPE, _NEWEST):
            if (stored.key, stored.fingerprint) == (left.key, left.fingerprint):
                return bool(stored.outcome.get("state") == left.outcome.get("state"))
        return False
