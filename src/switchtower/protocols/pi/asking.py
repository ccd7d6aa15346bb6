"""Asks the tower for what a pi command wants, once, whichever nodes die, stop or fall asleep meanwhile.

Among several nodes what one house asked may happen later than the next house has begun: a node that was stopped for a while
goes on where it was. So what leaves a receipt has an identity for its session's home too, made from that receipt: whoever
comes second there changes nothing, and is told what the first one began. Alone there is no second, and no need of it.
"""

import hashlib
from collections.abc import Callable

import msgspec

from switchtower.core import commands, errors, journal, tower
from switchtower.protocols.pi.order import lifecycle, ports, receipts
from switchtower.protocols.pi.order.outcomes import InterruptedCommand, CompletedCommand

_RECEIPTS_READ = 1_000


class CommandSubmitter:
    def __init__(self, service: tower.SessionService, holds_lease: Callable[[], bool] | None = None) -> None:
        """`holds`: whether whoever asks may still do so."""
        self.resolve: ports.Resolve | None = None
        """How a command ended that somebody else began."""
        self._service = service
        self._holds_lease = holds_lease

    async def submit(self, command: commands.AnyCommand) -> tower.SubmitOutcome:
        """Raises the refusal; `ports.BegunBefore` when another house has begun the very same."""
        if self._holds_lease is not None and not self._holds_lease():
            raise errors.ShuttingDown
        if not command.receipts or self._service.nodes is None:
            return await self._service.ask(command)
        receipt = command.receipts[0]
        outcome = await self._service.ask(msgspec.structs.replace(command, idempotency_key=_make_idempotency_key(receipt)))
        if outcome.get("replayed") and receipt.outcome["state"] == receipts.STARTED:
            raise ports.CommandAlreadyStarted(self._find_outcome(receipt))
        return outcome

    async def _find_outcome(self, receipt: journal.Receipt) -> ports.HandlerResult:
        assert self.resolve is not None, "set before anybody asks"
        stored = [each for each in await self._service.list_receipts(receipts.SCOPE, _RECEIPTS_READ) if each.key == receipt.key]
        for _, kept, _ in receipts.decode_receipts(stored, now_ms=0):
            if isinstance(kept, InterruptedCommand):
                return await self.resolve(kept.command, kept.session_id, kept.facts)
            return _replay_outcome(kept)
        # It is there, and too old to be found among the newest: its own facts say the same, but for what was made anew.
        return await self.resolve(receipt.outcome["command"], receipt.outcome["sessionId"], receipt.outcome["facts"])


def _replay_outcome(kept: CompletedCommand) -> ports.HandlerResult:
    outcome: lifecycle.CommandOutcome = kept.outcome
    if not outcome.success:
        raise ports.PiCommandError(str(outcome.error))
    return ports.HandlerResult(data=outcome.data, settled=True)


def _make_idempotency_key(receipt: journal.Receipt) -> str:
    """Of a command and of what is asked with it: an id that means something else by now is another's. As it becomes the id of a
    message, it is spelled like one."""
    meaning = msgspec.json.encode([receipt.key, receipt.fingerprint, receipt.outcome["state"]])
    return f"msg_{hashlib.sha256(meaning).hexdigest()[:32]}"
