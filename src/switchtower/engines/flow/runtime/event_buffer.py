"""Buffers the events of a run until the next poll takes them. The run's thread writes and another one reads, so the buffer has a
lock.

It is bounded: of a flood of logs the newest are kept, and the number of dropped ones is reported. The same holds for steps that
are retried again and again while no client polls. The size of one poll is bounded too; the rest waits for the next.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

import msgspec

MOST_LOGS = 1000
MOST_STEPS = 50_000
MOST_BYTES = 8 * 1024 * 1024
"""The most bytes of logs and of steps, each."""
ONE_POLL = 4 * 1024 * 1024
LONGEST_MESSAGE = 8 * 1024
_ENCODER = msgspec.json.Encoder()


def encode_json(value: Any) -> bytes:
    """Encodes the value as JSON. Raises `TypeError` for values that JSON cannot represent."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        # A lone surrogate from an escape: JSON can represent it, UTF-8 cannot.
        return json.dumps(value, allow_nan=False).encode()


def clip_text(text: str, longest: int = LONGEST_MESSAGE) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def format_now() -> str:
    """rep 7: RFC 3339, to the millisecond."""
    milliseconds = time.time_ns() // 1_000_000
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000))
    return f"{seconds}.{milliseconds % 1000:03}Z"


class EventBuffer:
    def __init__(
        self,
        *,
        most_logs: int = MOST_LOGS,
        most_steps: int = MOST_STEPS,
        most_bytes: int = MOST_BYTES,
        on_news: Callable[[], None] | None = None,
    ) -> None:
        """`on_news` is called by the thread that adds an event, once the event can be drained."""
        self._on_new_event = on_news
        self._lock = Lock()
        self._count = 0
        self._logs = _EventQueue(most_logs, most_bytes)
        self._steps = _EventQueue(most_steps, most_bytes)

    def add_log(self, level: str, message: str, *, step_id: str | None = None) -> None:
        event = {"type": "log", "timestamp": format_now(), "level": level, "message": clip_text(message)}
        self._put(self._logs, event if step_id is None else {**event, "step_id": step_id})

    def add_step(self, step_id: str, state: str, attempt: int, more: Mapping[str, Any] | None = None) -> None:
        event = {"type": "step", "timestamp": format_now(), "step_id": step_id, "state": state, "attempt": attempt}
        self._put(self._steps, event | dict(more or {}))

    def forward(self, event: Mapping[str, Any]) -> None:
        """Adds an event of another runtime unchanged, with its own time."""
        self._put(self._logs, dict(event))

    def drain(self, *, most_bytes: int = ONE_POLL) -> tuple[list[msgspec.Raw], bool]:
        """Returns the oldest events first, each once, and whether those were all."""
        with self._lock:
            if not self._logs.events and not self._steps.events:
                return [], True  # most polls find nothing new
            taken = []
            if dropped := self._logs.dropped + self._steps.dropped:
                self._logs.dropped = self._steps.dropped = 0
                taken.append(msgspec.Raw(_make_dropped_notice(dropped)))
            room = most_bytes
            while (shelf := self._find_oldest_queue()) is not None and (room >= shelf.next_size or room == most_bytes):
                event = shelf.take()
                room -= len(event)
                taken.append(msgspec.Raw(event))
            return taken, self._find_oldest_queue() is None

    def _put(self, queue: "_EventQueue", event: dict[str, Any]) -> None:
        spelled = encode_json(event)
        with self._lock:
            self._count += 1
            queue.put(self._count, spelled)
        if self._on_new_event is not None:
            self._on_new_event()

    def _find_oldest_queue(self) -> "_EventQueue | None":
        filled = [shelf for shelf in (self._logs, self._steps) if shelf.events]
        return min(filled, key=lambda shelf: shelf.events[0][0], default=None)


class _EventQueue:
    """Events of one type with their numbers; the newest are kept."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self.events: deque[tuple[int, bytes]] = deque()
        self.dropped = 0
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0

    @property
    def next_size(self) -> int:
        return len(self.events[0][1])

    def put(self, number: int, event: bytes) -> None:
        self.events.append((number, event))
        self._bytes += len(event)
        while len(self.events) > 1 and (len(self.events) > self._most or self._bytes > self._most_bytes):
            self.take()
            self.dropped += 1

    def take(self) -> bytes:
        _, event = self.events.popleft()
        self._bytes -= len(event)
        return event


def _make_dropped_notice(count: int) -> bytes:
    message = f"{count} events were dropped because nobody polled in time; only the newest are kept"
    return encode_json({"type": "log", "timestamp": format_now(), "level": "warning", "message": message})
