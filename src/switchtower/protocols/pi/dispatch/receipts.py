"""The receipts of pi commands: they make a repeated command run once, even after a restart or on another node.

One receipt is stored for each name of a command, its `id` and its `idempotencyKey`. The key of a receipt is a JSON array, so that
no namespace, session or name can be mistaken for another.

The settler makes ended commands durable, one settlement at a time for each session, so that the version in an answer is the
version in its receipt. It decides no outcome.

The submitter submits a pi command's core command once, whichever nodes die, stop or are suspended meanwhile. In a cluster the
command of one pi server may be carried out after the next server has started: a node that was suspended continues where it was.
So a command with a receipt also has an idempotency key for its session's owner, made from that receipt: the second of two equal
commands changes nothing, and its answer is what the first one started. A single node has no second server and needs none of this.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from switchtower.core import commands
from switchtower.core import errors as core_errors
from switchtower.core.ports import journal, session_service
from switchtower.protocols.pi import errors, inbound, responses
from switchtower.protocols.pi.dispatch import limits, ports
from switchtower.protocols.pi.dispatch.lanes import PendingCommand
from switchtower.protocols.pi.dispatch.limits import DispatchLimits
from switchtower.protocols.pi.dispatch.outcomes import CompletedCommand, InterruptedCommand, Kept
from switchtower.protocols.pi.errors import PiCommandError

log = logging.getLogger(__name__)

SCOPE = "pi"
STARTED, FINISHED = "begun", "finished"


class ReceiptName(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    kind: str
    namespace: str
    session_id: str | None
    """The scope of an idempotencyKey; an id has none."""
    value: str


_decode_name = msgspec.json.Decoder(ReceiptName).decode


def make_start_receipts(
    pending: PendingCommand, facts: dict[str, Any], limits: DispatchLimits, now_ms: int
) -> tuple[journal.Receipt, ...]:
    return _make_receipts(pending, {"state": STARTED, "command": pending.command, "facts": facts}, limits, now_ms)


def make_end_receipts(
    pending: PendingCommand, outcome: responses.CommandOutcome, limits: DispatchLimits, now_ms: int
) -> tuple[journal.Receipt, ...]:
    if pending.fingerprint is None:
        return ()
    response = msgspec.json.decode(responses.encode_response(outcome, None))
    return _make_receipts(pending, {"state": FINISHED, "command": pending.command, "response": response}, limits, now_ms)


def _make_receipts(
    pending: PendingCommand, outcome: dict[str, Any], limits: DispatchLimits, now_ms: int
) -> tuple[journal.Receipt, ...]:
    if pending.fingerprint is None:
        return ()
    fingerprint = pending.fingerprint.value
    # The names of one command refer to each other, so that it stays one command after a restart.
    outcome = {**outcome, "sessionId": pending.session_id, "ids": list(pending.ids), "keys": list(pending.keys)}
    until_ms = now_ms + round(limits.receipt_ttl_s * 1_000)
    key_until_ms = now_ms + round(limits.idempotency_ttl_s * 1_000)
    if outcome["state"] == STARTED:
        # pi-server 8.2 counts the time from the end, and a started command may take long.
        key_until_ms = until_ms
    names = [(ReceiptName("id", pending.namespace, None, id_), until_ms) for id_ in pending.ids]
    names += [(ReceiptName("idempotencyKey", pending.namespace, pending.session_id, key), key_until_ms) for key in pending.keys]
    return tuple(
        journal.Receipt(SCOPE, responses.encode(name).decode(), fingerprint, outcome, expires_at_ms, replaces=True)
        for name, expires_at_ms in names
    )


def decode_receipts(receipts: Iterable[journal.Receipt], now_ms: int) -> list[tuple[ReceiptName, Kept, int]]:
    """Decodes stored receipts, the oldest first."""
    found: list[tuple[ReceiptName, Kept, int]] = []
    for receipt in sorted(receipts, key=lambda receipt: receipt.expires_at_ms):
        if receipt.scope != SCOPE or receipt.expires_at_ms <= now_ms:
            continue
        try:
            name = _decode_name(receipt.key)
            kept = _decode_receipt(receipt)
        except (msgspec.MsgspecError, LookupError, TypeError, AttributeError):
            # The receipt is not ours, or is of another release: one command that may run again must not keep the server from
            # starting.
            log.warning("a stored receipt of a pi command cannot be read", exc_info=True)
            continue
        found.append((name, kept, receipt.expires_at_ms))
    return found


def _decode_receipt(receipt: journal.Receipt) -> Kept:
    outcome, fingerprint = receipt.outcome, inbound.Fingerprint.from_value(receipt.fingerprint)
    if outcome["state"] == STARTED:
        return InterruptedCommand(
            outcome["command"], fingerprint, outcome["sessionId"], outcome["facts"], list(outcome["ids"]), list(outcome["keys"])
        )
    response = outcome["response"]
    return CompletedCommand(
        fingerprint,
        responses.CommandOutcome(
            response["command"],
            response["success"],
            Raw(responses.encode(response["data"])) if "data" in response else UNSET,
            response.get("error", UNSET),
            response.get("sessionVersion", UNSET),
            response.get("timedOut", UNSET),
        ),
    )


Settled = Callable[[responses.CommandOutcome], None]


class OutcomeSettler:
    def __init__(self, ledger: ports.OutcomeLedger, limits: DispatchLimits, now_ms: Callable[[], int]) -> None:
        self._ledger = ledger
        self._limits = limits
        self._now_ms = now_ms
        self._last: dict[str, asyncio.Task[responses.CommandOutcome]] = {}

    def settle(self, pending: PendingCommand, session_id: str | None, outcome: responses.CommandOutcome, then: Settled) -> None:
        """Calls `then` with the outcome as it is to be sent: at once when there is nothing to store."""
        command = pending.command
        if session_id is None or command not in limits.MUTATING or not self._must_store(pending, session_id, outcome):
            then(self.apply_version(outcome, session_id, last_known=pending.version))
            return
        task = asyncio.ensure_future(self._settle(self._last.get(session_id), pending, session_id, outcome))
        self._last[session_id] = task

        def settled(done: asyncio.Task[responses.CommandOutcome]) -> None:
            if self._last.get(session_id) is done:
                del self._last[session_id]
            if not done.cancelled():
                then(done.result())

        task.add_done_callback(settled)

    async def store(self, pending: PendingCommand, outcome: responses.CommandOutcome) -> bool:
        """Stores a failure as the outcome of a command that is given up. Returns whether that was done."""
        session_id = pending.session_id
        if session_id is None or pending.command not in limits.MUTATING or self._ledger.get_version(session_id) is None:
            return False
        stored = make_end_receipts(pending, outcome, self._limits, self._now_ms())
        try:
            await self._ledger.settle(ports.Settlement(session_id, pending.command, False, stored))
        except Exception as problem:
            log.warning("the outcome of `%s` could not be stored", pending.command, exc_info=problem)
            return False
        return True

    def _must_store(self, pending: PendingCommand, session_id: str, outcome: responses.CommandOutcome) -> bool:
        if pending.command in limits.SERVER:
            wanted = outcome.success and pending.fingerprint is not None
        else:
            wanted = outcome.success or pending.fingerprint is not None
        return wanted and self._ledger.get_version(session_id) is not None

    async def _settle(
        self,
        before: asyncio.Task[responses.CommandOutcome] | None,
        pending: PendingCommand,
        session_id: str,
        outcome: responses.CommandOutcome,
    ) -> responses.CommandOutcome:
        if before is not None:
            await asyncio.wait([before])
        advances = outcome.success and pending.command in limits.ADVANCING
        outcome = self.apply_version(outcome, session_id, ahead=1 if advances else 0, last_known=pending.version)
        stored = make_end_receipts(pending, outcome, self._limits, self._now_ms())
        try:
            version = await self._ledger.settle(ports.Settlement(session_id, pending.command, advances, stored))
        except Exception as problem:
            error = errors.describe_failure(problem, pending.command)
            return responses.CommandOutcome(outcome.command, False, error=error) if outcome.success else outcome
        if advances and version is not None and version != outcome.sessionVersion:
            return msgspec.structs.replace(outcome, sessionVersion=version)
        return outcome

    def get_version(self, session_id: str | None) -> int | None:
        return None if session_id is None else self._ledger.get_version(session_id)

    def apply_version(
        self, outcome: responses.CommandOutcome, session_id: str | None, *, ahead: int = 0, last_known: int | None = None
    ) -> responses.CommandOutcome:
        """Interop, Envelope: every success that is about one session reports its version; a failure does not. `last_known` is
        reported when the session was deleted while the command ran.
        """
        if not outcome.success or session_id is None or outcome.command not in limits.VERSIONED:
            return outcome
        version = 0 if outcome.command == "create_session" else self._ledger.get_version(session_id)
        if version is None:
            version, ahead = last_known, 0
        if version is None:
            return outcome
        return responses.CommandOutcome(outcome.command, True, outcome.data, UNSET, version + ahead)

    @property
    def is_idle(self) -> bool:
        return not self._last

    async def wait_until_drained(self) -> None:
        while self._last:
            await asyncio.wait(list(self._last.values()))


_RECEIPTS_READ = 1_000


class CommandSubmitter:
    def __init__(self, service: session_service.SessionService, holds_lease: Callable[[], bool] | None = None) -> None:
        """`holds_lease` returns whether this server may still submit commands."""
        self.resolve: ports.Resolve | None = None
        """Resolves the outcome of a command that another server started."""
        self._service = service
        self._holds_lease = holds_lease

    async def submit(self, command: commands.AnyCommand) -> session_service.SubmitOutcome:
        """Raises the refusal, or `ports.CommandAlreadyStarted` when another pi server has started the very same command."""
        if self._holds_lease is not None and not self._holds_lease():
            raise core_errors.ShuttingDown
        if not command.receipts or self._service.nodes is None:
            return await self._service.ask(command)
        receipt = command.receipts[0]
        outcome = await self._service.ask(msgspec.structs.replace(command, idempotency_key=_make_idempotency_key(receipt)))
        if outcome.get("replayed") and receipt.outcome["state"] == STARTED:
            raise ports.CommandAlreadyStarted(self._find_outcome(receipt))
        return outcome

    async def _find_outcome(self, receipt: journal.Receipt) -> ports.HandlerResult:
        assert self.resolve is not None, "set before anybody asks"
        stored = [each for each in await self._service.list_receipts(SCOPE, _RECEIPTS_READ) if each.key == receipt.key]
        for _, kept, _ in decode_receipts(stored, now_ms=0):
            if isinstance(kept, InterruptedCommand):
                return await self.resolve(kept.command, kept.session_id, kept.facts)
            return _replay_outcome(kept)
        # The receipt exists, and is too old to be among the newest: its own facts are the same, except for newly made ids.
        return await self.resolve(receipt.outcome["command"], receipt.outcome["sessionId"], receipt.outcome["facts"])


def _replay_outcome(kept: CompletedCommand) -> ports.HandlerResult:
    outcome: responses.CommandOutcome = kept.outcome
    if not outcome.success:
        raise PiCommandError(str(outcome.error))
    return ports.HandlerResult(data=outcome.data, settled=True)


def _make_idempotency_key(receipt: journal.Receipt) -> str:
    """Makes a key from a command and its contents: an id that means something else by now belongs to another command. The key
    becomes the id of a message, so it is spelled like one."""
    meaning = msgspec.json.encode([receipt.key, receipt.fingerprint, receipt.outcome["state"]])
    return f"msg_{hashlib.sha256(meaning).hexdigest()[:32]}"
