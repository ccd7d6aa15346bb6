"""Idempotency: the identity of a command, and the stored outcome that a repeated command gets. Pure."""

import hashlib
from typing import Any

import msgspec

from switchtower.core import commands, errors
from switchtower.core.ports import journal

_encoder = msgspec.json.Encoder(order="sorted")


def compute_fingerprint(command: commands.AnyCommand) -> str:
    """Returns the same hash for two commands that request the same thing, whatever the order of their keys."""
    meaning = [command.wire_name, *(getattr(command, name) for name in command.identity_fields)]
    return hashlib.sha256(_encoder.encode(meaning)).hexdigest()


def replay_outcome(receipt: journal.Receipt, command: commands.AnyCommand) -> dict[str, Any]:
    """Returns the first outcome; refuses a command that requests something else under the same key."""
    if receipt.fingerprint != compute_fingerprint(command):
        raise errors.IdentityConflict(receipt.key)
    return receipt.outcome


def issue_receipt(command: commands.AnyCommand, outcome: dict[str, Any], expires_at_ms: int) -> journal.Receipt:
    assert command.idempotency_key is not None, "only a command with an identity has a receipt"
    return journal.Receipt(
        scope=command.session_id,
        key=command.idempotency_key,
        fingerprint=compute_fingerprint(command),
        outcome=outcome,
        expires_at_ms=expires_at_ms,
    )
