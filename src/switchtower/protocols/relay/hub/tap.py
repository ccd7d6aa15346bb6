"""One run as one app follows it: a place in the journal, and which of its events are wanted."""

from collections.abc import Callable

from switchtower.core import events, tower
from switchtower.protocols.relay import outbound
from switchtower.transports.outbox import Outbox
from switchtower.transports.packet import Packet

_SILENT = frozenset({*outbound.OUTPUTS, events.ScreenTaken.kind})


class Tap:
    """Implements `tower.Outlet`."""

    def __init__(
        self,
        about: outbound.About,
        outbox: Outbox,
        gap: Callable[[outbound.About], None],
        *,
        include_output: bool,
    ) -> None:
        """`gap` is called when what comes next is no longer kept."""
        self._about = about
        self._outbox = outbox
        self._gap = gap
        self._include_output = include_output
        self._subscription: tower.Subscription | None = None

    def follow(self, subscription: tower.Subscription) -> None:
        self._subscription = subscription
        subscription.start()

    def has_told(self, seq: int) -> bool:
        return self._subscription is not None and self._subscription.cursor >= seq

    def wake(self) -> None:
        if self._subscription is not None:
            self._subscription.wake()

    def close(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    # The outlet's side

    @property
    def ready(self) -> bool:
        return self._outbox.ready

    def deliver(self, batch: tower.Batch) -> None:
        packet = self._packet(batch)
        if packet is not None:
            self._outbox.send(packet)

    def fell_behind(self, session_id: str) -> None:
        self._subscription = None
        self._gap(self._about)

    def _packet(self, batch: tower.Batch) -> Packet | None:
        """Encoded once for all apps that want the same of it."""
        key = "relay" if self._include_output else "relay, without output"
        if key not in batch.encodings:
            entries = batch.entries
            if not self._include_output:
                entries = [entry for entry in entries if entry.kind not in _SILENT]
            frames = outbound.frames(self._about, entries)
            batch.encodings[key] = Packet(frames) if frames else None
        packet: Packet | None = batch.encodings[key]
        return packet
