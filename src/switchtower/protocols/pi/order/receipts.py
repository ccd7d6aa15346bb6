"""Outcomes as the journal keeps them, and back: what makes "ask once, run once" hold over a restart. Pure.

One receipt for each name of a command, its `id` and its `idempotencyKey`. The key of a receipt is a JSON array, so that no
namespace, session or name can be mistaken for another.
"""

import logging
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from switchtower.core import journal
from switchtower.protocols.pi.order import fingerprints, lifecycle
from switchtower.protocols.pi.order.jobs import PendingCommand
from switchtower.protocols.pi.order.limits import DispatchLimits
from switchtower.protocols.pi.order.outcomes import InterruptedCommand, CompletedCommand, Kept

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
    pending: PendingCommand, outcome: lifecycle.CommandOutcome, limits: DispatchLimits, now_ms: int
) -> tuple[journal.Receipt, ...]:
    if pending.fingerprint is None:
        return ()
    response = msgspec.json.decode(lifecycle.encode_response(outcome, None))
    return _make_receipts(pending, {"state": FINISHED, "command": pending.command, "response": response}, limits, now_ms)


def _make_receipts(
    pending: PendingCommand, outcome: dict[str, Any], limits: DispatchLimits, now_ms: int
) -> tuple[journal.Receipt, ...]:
    if pending.fingerprint is None:
        return ()
    fingerprint = pending.fingerprint.value
    # The names of one command point to each other, so that it stays one command after a restart.
    outcome = {**outcome, "sessionId": pending.session_id, "ids": list(pending.ids), "keys": list(pending.keys)}
    until_ms = now_ms + round(limits.receipt_ttl_s * 1_000)
    key_until_ms = now_ms + round(limits.idempotency_ttl_s * 1_000)
    if outcome["state"] == STARTED:
        # pi-server 8.2 counts the time from the end, and a begun command may take long.
        key_until_ms = until_ms
    names = [(ReceiptName("id", pending.namespace, None, id_), until_ms) for id_ in pending.ids]
    names += [(ReceiptName("idempotencyKey", pending.namespace, pending.session_id, key), key_until_ms) for key in pending.keys]
    return tuple(
        journal.Receipt(SCOPE, lifecycle.encode(name).decode(), fingerprint, outcome, expires_at_ms, replaces=True)
        for name, expires_at_ms in names
    )


def decode_receipts(receipts: Iterable[journal.Receipt], now_ms: int) -> list[tuple[ReceiptName, Kept, int]]:
    """What can be told from stored receipts, the oldest first."""
    found: list[tuple[ReceiptName, Kept, int]] = []
    for receipt in sorted(receipts, key=lambda receipt: receipt.expires_at_ms):
        if receipt.scope != SCOPE or receipt.expires_at_ms <= now_ms:
            continue
        try:
            name = _decode_name(receipt.key)
            kept = _decode_receipt(receipt)
        except (msgspec.MsgspecError, LookupError, TypeError, AttributeError):
            # Not ours, or of another release: one command that may run again must not keep the server from starting.
            log.warning("a stored receipt of a pi command cannot be read", exc_info=True)
            continue
        found.append((name, kept, receipt.expires_at_ms))
    return found


def _decode_receipt(receipt: journal.Receipt) -> Kept:
    outcome, fingerprint = receipt.outcome, fingerprints.Fingerprint.from_value(receipt.fingerprint)
    if outcome["state"] == STARTED:
        return InterruptedCommand(
            outcome["command"], fingerprint, outcome["sessionId"], outcome["facts"], list(outcome["ids"]), list(outcome["keys"])
        )
    response = outcome["response"]
    return CompletedCommand(
        fingerprint,
        lifecycle.CommandOutcome(
            response["command"],
            response["success"],
            Raw(lifecycle.encode(response["data"])) if "data" in response else UNSET,
            response.get("error", UNSET),
            response.get("sessionVersion", UNSET),
            response.get("timedOut", UNSET),
        ),
    )
