"""The known commands with an identity: those that are running, and the outcomes of the newest. It is in memory and bounded.

Anonymous commands are never kept. There is one `CommandNamespace` for each set of clients that share their ids.
"""

from typing import Any, Generic, TypeVar

from msgspec import UNSET, Struct

from switchtower.protocols.pi import inbound, responses
from switchtower.protocols.pi.dispatch.lanes import PendingCommand
from switchtower.protocols.pi.dispatch.limits import DispatchLimits

Scoped = tuple[str | None, str]
"""pi-server 8.2: an idempotencyKey is unique within its session, or within the server."""

RECORD_WEIGHT = 200
"""Bytes that one kept outcome takes besides its answer."""


class CompletedCommand(Struct, frozen=True):
    fingerprint: inbound.Fingerprint
    outcome: responses.CommandOutcome

    @property
    def command(self) -> str:
        return self.outcome.command

    def compute_weight(self) -> int:
        data, error = self.outcome.data, self.outcome.error
        return RECORD_WEIGHT + (0 if data is UNSET else len(memoryview(data))) + (0 if error is UNSET else len(error))


class InterruptedCommand(Struct, frozen=True):
    """The command had started when the previous process ended; no client has asked for its outcome yet."""

    command: str
    fingerprint: inbound.Fingerprint
    session_id: str | None
    facts: dict[str, Any]
    ids: list[str]
    keys: list[str]

    def compute_weight(self) -> int:
        return RECORD_WEIGHT


Kept = CompletedCommand | InterruptedCommand
Known = PendingCommand | CompletedCommand | InterruptedCommand

N = TypeVar("N", str, Scoped)


class BoundedCache(Generic[N]):
    """The newest values, bounded in number and in weight. The newest value itself always stays."""

    def __init__(self, count: int, weight: int) -> None:
        self._count = count
        self._max_weight = weight
        self._weight = 0
        self._kept: dict[N, tuple[Kept, int, int]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, name: N, kept: Kept, *, expires_at_ms: int = 0) -> None:
        """`expires_at_ms` 0 means never."""
        self.drop(name)
        weight = kept.compute_weight()
        self._kept[name] = (kept, weight, expires_at_ms)
        self._weight += weight
        while len(self._kept) > 1 and (len(self._kept) > self._count or self._weight > self._max_weight):
            self.drop(next(iter(self._kept)))

    def get(self, name: N, now_ms: int = 0) -> Kept | None:
        found = self._kept.get(name)
        if found is None:
            return None
        if found[2] and found[2] <= now_ms:
            self.drop(name)
            return None
        return found[0]

    def drop(self, name: N) -> None:
        gone = self._kept.pop(name, None)
        if gone is not None:
            self._weight -= gone[1]

    def drop_expired(self, now_ms: int) -> None:
        """Drops expired values, oldest first, up to the first that has not expired: values mostly expire in insertion order."""
        while self._kept:
            name, (_, _, expires_at_ms) = next(iter(self._kept.items()))
            if not expires_at_ms or expires_at_ms > now_ms:
                return
            self.drop(name)


class CommandNamespace:
    def __init__(self, name: str, limits: DispatchLimits) -> None:
        self.name = name
        self._key_ttl_ms = round(limits.idempotency_ttl_s * 1_000)
        self._ids: BoundedCache[str] = BoundedCache(limits.outcomes, limits.outcome_bytes)
        self._keys: BoundedCache[Scoped] = BoundedCache(limits.idempotency_keys, limits.outcome_bytes)
        self._ids_under_way: dict[str, PendingCommand] = {}
        self._keys_under_way: dict[Scoped, PendingCommand] = {}

    @property
    def is_idle(self) -> bool:
        return not self._ids_under_way and not self._keys_under_way

    @property
    def outcome_count(self) -> int:
        return len(self._ids)

    @property
    def key_count(self) -> int:
        return len(self._keys) + len(self._keys_under_way)

    def find_by_id(self, id_: str) -> Known | None:
        return self._ids_under_way.get(id_) or self._ids.get(id_)

    def find_by_key(self, session_id: str | None, key: str, now_ms: int) -> Known | None:
        name = (session_id, key)
        return self._keys_under_way.get(name) or self._keys.get(name, now_ms)

    def enter(self, pending: PendingCommand) -> None:
        """Registers a running command under all its names."""
        for id_ in pending.ids:
            self._ids_under_way[id_] = pending
        for key in pending.keys:
            self._keys_under_way[(pending.session_id, key)] = pending

    def remember(self, request: inbound.PiRequest, outcome: responses.CommandOutcome, now_ms: int) -> None:
        """Keeps the outcome of a command that ended before it could be registered as running."""
        assert request.meaning is not None, "a command without an identity is kept nowhere"
        ended = CompletedCommand(request.meaning, outcome)
        if request.id is not None:
            self._ids.put(request.id, ended)
        if request.idempotency_key is not None:
            self._keys.drop_expired(now_ms)
            self._keys.put((request.session_id, request.idempotency_key), ended, expires_at_ms=now_ms + self._key_ttl_ms)

    def leave(self, pending: PendingCommand, ended: CompletedCommand | None, now_ms: int) -> None:
        """The command is no longer running; with None its outcome is not kept either."""
        for id_ in pending.ids:
            del self._ids_under_way[id_]
            if ended is not None:
                self._ids.put(id_, ended)
        if not pending.keys:
            return
        self._keys.drop_expired(now_ms)
        for key in pending.keys:
            name = (pending.session_id, key)
            del self._keys_under_way[name]
            if ended is not None:
                self._keys.put(name, ended, expires_at_ms=now_ms + self._key_ttl_ms)

    def add_alias(self, known: Known, session_id: str | None, id_: str | None, key: str | None, now_ms: int) -> None:
        """A replay was requested under a new name: from now on the name means the same command."""
        new_id = id_ if id_ is not None and self.find_by_id(id_) is None else None
        new_key = key if key is not None and self.find_by_key(session_id, key, now_ms) is None else None
        if isinstance(known, PendingCommand):
            if new_id is not None:
                known.ids.append(new_id)
            if new_key is not None:
                known.keys.append(new_key)
            self.enter(known)
            return
        if new_id is not None:
            self._ids.put(new_id, known)
        if new_key is not None:
            self._keys.put((session_id, new_key), known, expires_at_ms=now_ms + self._key_ttl_ms)

    def restore_id(self, id_: str, kept: Kept) -> None:
        self._ids.put(id_, kept)

    def restore_key(self, session_id: str | None, key: str, kept: Kept, expires_at_ms: int) -> None:
        self._keys.put((session_id, key), kept, expires_at_ms=expires_at_ms)
