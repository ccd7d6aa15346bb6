"""How far the hub has what it was told: in memory at once, in the registry in batches. What a crash forgets is told again."""

import logging
from collections.abc import Callable

from switchtower.core import registry

log = logging.getLogger(__name__)

MAX_UNWRITTEN = 1_000


class AcknowledgementLog:
    def __init__(self, registry_: registry.Registry, hub: str) -> None:
        self._registry = registry_
        self._hub = hub
        self._stored: dict[str, tuple[int, int]] = {}
        self._unwritten: dict[str, tuple[int, int]] = {}
        self._acks = 0
        self._failing = False
        self.is_due: Callable[[], None] = lambda: None
        """Called when so much is unwritten that it should not wait for its time."""

    async def load(self, now_ms: int) -> int:
        """Since when there is a link to this hub."""
        since_ms = await self._registry.record_hub(self._hub, now_ms)
        self._stored = await self._registry.load_acknowledgements(self._hub)
        return since_ms

    def get_acknowledged_seq(self, session_id: str) -> int | None:
        """None: the hub was never told of it."""
        mark = self._stored.get(session_id)
        return None if mark is None else mark[0]

    def is_settled(self, session_id: str, updated_at_ms: int) -> bool:
        """Whether the hub has all of it, if it was last touched then."""
        mark = self._stored.get(session_id)
        return mark is not None and 0 < updated_at_ms <= mark[1]

    def record(self, session_id: str, acked_seq: int, settled_at_ms: int = 0) -> None:
        mark = (acked_seq, settled_at_ms)
        if self._stored.get(session_id) == mark:
            return
        self._stored[session_id] = self._unwritten[session_id] = mark
        self._acks += 1
        if self._acks == MAX_UNWRITTEN:
            self.is_due()

    async def write(self) -> None:
        """Keeps what could not be written for the next time."""
        unwritten, self._unwritten = self._unwritten, {}
        self._acks = 0
        if not unwritten:
            return
        try:
            await self._registry.store_acknowledgements(
                self._hub, [(session_id, *mark) for session_id, mark in unwritten.items()]
            )
        except BaseException as problem:
            self._unwritten = unwritten | self._unwritten
            if not isinstance(problem, registry.RegistryUnavailable):
                raise
            if not self._failing:
                log.warning("what the hub has acknowledged cannot be written down, and is kept until it can: %s", problem)
            self._failing = True
        else:
            self._failing = False
