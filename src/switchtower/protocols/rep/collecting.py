"""The events of one run: each is handed on as it comes, and kept. Of a flood only the beginning and the end stay in memory;
how many were let go in between is counted.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

RunEvent = dict[str, Any]
OnRunEvent = Callable[[RunEvent], Awaitable[None] | None]
"""Told each event, in order. What it returns is awaited, and meanwhile the runtime is not polled."""

MAX_EVENTS = 100_000
MAX_BYTES = 64 * 1024 * 1024


class EventCollector:
    def __init__(self, on_event: OnRunEvent | None = None, *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES) -> None:
        self._on_event = on_event
        self._max_kept = max_events // 2
        self._max_kept_bytes = max_bytes // 2
        self._first: list[RunEvent] = []
        self._first_bytes = 0
        self._is_first_full = False
        self._last: deque[tuple[RunEvent, int]] = deque()
        self._last_bytes = 0
        self.left_out = 0
        self.last_failed: RunEvent | None = None
        """The last `step` event that tells of a failure."""

    async def add(self, events: list[RunEvent], wire_bytes: int) -> None:
        """Those of one poll, and how long they were on the wire together."""
        each = wire_bytes // len(events) if events else 0
        for event in events:
            self._keep(event, each)
            if event.get("type") == "step" and event.get("state") == "failed":
                self.last_failed = event
            if self._on_event is not None and (handed := self._on_event(event)) is not None:
                await handed

    def list_kept(self) -> list[RunEvent]:
        return [*self._first, *(event for event, _ in self._last)]

    def _keep(self, event: RunEvent, size: int) -> None:
        if not self._is_first_full and len(self._first) < self._max_kept and self._first_bytes + size <= self._max_kept_bytes:
            self._first.append(event)
            self._first_bytes += size
            return
        self._is_first_full = True  # a small one after a big one must not overtake it
        self._last.append((event, size))
        self._last_bytes += size
        while len(self._last) > self._max_kept or self._last_bytes > self._max_kept_bytes:
            self._last_bytes -= self._last.popleft()[1]
            self.left_out += 1
