"""One run as one app follows it: a place in the journal, and which of its events are wanted."""

from collections.abc import Callable

from switchtower.core import events, tower
from switchtower.protocols.relay import outbound
from switchtower.transports.outbox import Outbox
from switchtower.transports.packet import Packet

_OUTPUT_KINDS = frozenset({*outbound.OUTPUTS, events.ScreenCaptured.kind})


class RunSubscription:
    """Implements `tower.Outlet`."""

    def __init__(
        self,
        about: outbound.EnvelopeHeader,
        outbox: Outbox,
        report_gap: Callable[[outbound.EnvelopeHeader], None],
        *,
        include_output: bool,
    ) -> None:
        """`gap` is called when what comes next is no longer kept."""
        self._about = about
        self._outbox = outbox
        self._report_gap = report_gap
        self._include_output = include_output
        self._subscription: tower.Subscription | None = None

    def follow(self, subscription: tower.Subscription) -> None:
        self._subscription = subscription
        subscription.start()

    def has_sent(self, seq: int) -> bool:
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
    def is_ready(self) -> bool:
        return self._outbox.is_ready

    def deliver(self, batch: tower.Batch) -> None:
        packet = self._encode_batch(batch)
        if packet is not None:
            self._outbox.send(packet)

    def on_gap(self, session_id: str) -> None:
        self._subscription = None
        self._report_gap(self._about)

    def _encode_batch(self, batch: tower.Batch) -> Packet | None:
        """Encoded once for all apps that want the same of it."""
        key = "relay" if self._include_output else "relay, without output"
        if key not in batch.encodings:
            entries = batch.entries
            if not self._include_output:
                entries = [entry for entry in entries if entry.kind not in _OUTPUT_KINDS]
            frames = outbound.encode_batch(self._about, entries)
            batch.encodings[key] = Packet(frames) if frames else None
        packet: Packet | None = batch.encodings[key]
        return packet
