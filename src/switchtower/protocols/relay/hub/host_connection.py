"""One host that has connected: its events go to its mirror, its answers to the sender of the call."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from switchtower.core.ports import session_service
from switchtower.protocols.relay import encoder, inbound, messages
from switchtower.protocols.relay.hub.connected_hosts import ConnectedHost
from switchtower.protocols.relay.hub.mirror import UNLIMITED, HostUsage, Mirror
from switchtower.transports.stream import Packet, Stream

log = logging.getLogger(__name__)

MAX_ERRORS = 100
"""Unreadable frames after which the host is disconnected."""
POLICY_VIOLATION = 1008
_MAX_ERROR_LENGTH = 2_000
_RESPONSE_TYPES = ("rpc.response", "run.error")

_decode = msgspec.json.Decoder(messages.Envelope).decode
_decode_data = msgspec.json.Decoder(dict[str, Any]).decode


class HostConnection:
    """Implements `stream.Receiver` for `/ws/host`."""

    protocol: ClassVar[str] = "relay_host"

    def __init__(
        self,
        tower_: session_service.SessionService,
        host_id: str,
        *,
        on_connected: Callable[[ConnectedHost], None],
        on_disconnected: Callable[[ConnectedHost], None],
        on_activity: Callable[[str], None],
        on_refusal: Callable[[str, dict[str, Any]], None],
        usage: HostUsage | None = None,
    ) -> None:
        """`on_refusal` gets the host, and its error for a command that it did not execute. `usage` is the host's usage of its
        quotas."""
        self._tower = tower_
        self._host_id = host_id
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self._on_activity = on_activity
        self._on_refusal = on_refusal
        self._usage = usage or HostUsage(tower_, host_id, UNLIMITED)
        self._mirror = Mirror(tower_, host_id, self._acknowledge, usage=self._usage, on_rejected=self._reject_run)
        self._mirror.on_room = self._resume
        self._pause_timer: asyncio.TimerHandle | None = None
        self._acks: dict[str, int] = {}
        self._ack_is_due = False
        self._error_count = 0
        self._host: ConnectedHost | None = None

    def on_connected(self, stream: Stream) -> None:
        self._host = ConnectedHost(self._host_id, stream)
        self._on_connected(self._host)

    def on_frames(self, frames: list[bytes]) -> None:
        self._on_activity(self._host_id)
        numbered: list[messages.Envelope] = []
        for frame in frames:
            try:
                envelope = _decode(frame)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
                self._send_error(str(problem))
                continue
            is_numbered = envelope.run_id is not None and envelope.seq is not None
            if envelope.type in _RESPONSE_TYPES or not is_numbered:
                self._handle_unnumbered(envelope)
                # Some hosts number their answers too. The number counts; the answer is for its caller alone.
                envelope = msgspec.structs.replace(envelope, type=inbound.EMPTY_REPORT, data=messages.EMPTY)
            if is_numbered:
                numbered.append(envelope)
        if numbered:
            self._mirror.add(numbered)
            if self._mirror.is_overloaded and self._host is not None:
                self._host.stream.pause_reading()
        if (pause := self._usage.compute_pause(frames)) and self._pause_timer is None and self._host is not None:
            self._host.stream.pause_reading()
            self._pause_timer = asyncio.get_running_loop().call_later(pause, self._end_pause)

    def on_oversized_frame(self, problem: str) -> None:
        self._send_error(problem)

    def on_writable(self) -> None:
        if self._host is not None:
            self._host.outbox.flush()

    def on_disconnected(self) -> None:
        self._mirror.close()
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        if self._host is not None:
            line, self._host = self._host, None
            self._on_disconnected(line)

    def _handle_unnumbered(self, envelope: messages.Envelope) -> None:
        assert self._host is not None, "a peer that receives is connected"
        if envelope.type == "rpc.response":
            try:
                self._host.resolve_call(msgspec.json.decode(envelope.data, type=messages.Response))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
                self._send_error(str(problem))
        elif envelope.type == "run.error" and envelope.run_id is not None:
            try:
                self._on_refusal(self._host_id, _decode_data(envelope.data))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
                self._send_error(str(problem))
        elif envelope.type not in ("host.heartbeat", "error"):
            self._send_error(f"`{envelope.type}` needs a run_id and a seq")

    def _send_error(self, problem: str) -> None:
        self._error_count += 1
        if self._host is None:
            return
        if self._error_count > MAX_ERRORS:
            log.warning("host %s sends what cannot be read: it is cut off", self._host_id)
            self._host.stream.close(POLICY_VIOLATION, "too many messages that cannot be read")
            return
        self._host.send(encoder.encode_unnumbered("error", self._tower.now_ms(), {"error": problem[:_MAX_ERROR_LENGTH]}))

    def _acknowledge(self, run_id: str, last_seq: int) -> None:
        """Sends one acknowledgement per run and turn of the event loop, however many batches were stored in it."""
        self._acks[run_id] = last_seq
        if not self._ack_is_due:
            self._ack_is_due = True
            asyncio.get_running_loop().call_soon(self._send_acks)

    def _send_acks(self) -> None:
        self._ack_is_due = False
        acks, self._acks = self._acks, {}
        if self._host is not None and acks:
            now_ms = self._tower.now_ms()
            self._host.outbox.send(
                Packet(
                    [
                        encoder.encode_unnumbered("run.ack", now_ms, {"run_id": run_id, "last_seq": last_seq})
                        for run_id, last_seq in acks.items()
                    ]
                )
            )

    def _reject_run(self, run_id: str, problem: str) -> None:
        """Reports to the host that a run is not accepted here."""
        if self._host is not None:
            told = {"command": "run.started", "error": problem}
            self._host.send(encoder.encode_unnumbered("run.error", self._tower.now_ms(), told, run_id=run_id))

    def _end_pause(self) -> None:
        self._pause_timer = None
        self._resume()

    def _resume(self) -> None:
        if self._host is not None and self._pause_timer is None and not self._mirror.is_overloaded:
            self._host.stream.resume_reading()
