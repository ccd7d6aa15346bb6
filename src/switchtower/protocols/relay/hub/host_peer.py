"""One host that has dialled in: what it tells goes to its mirror, what it answers to who asked."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from switchtower.core import tower
from switchtower.protocols.relay import messages, outbound, reports
from switchtower.protocols.relay.hub.mirror import Mirror
from switchtower.protocols.relay.hub.quotas import UNLIMITED, HostUsage
from switchtower.protocols.relay.hub.roster import HostLine
from switchtower.transports.packet import Packet
from switchtower.transports.stream import Stream

log = logging.getLogger(__name__)

MOST_COMPLAINTS = 100
"""Frames that cannot be read, before the host is cut off."""
POLICY_VIOLATION = 1008
_LONGEST_ERROR = 2_000
_FOR_THE_ASKER = ("rpc.response", "run.error")

_decode = msgspec.json.Decoder(messages.Envelope).decode
_decode_data = msgspec.json.Decoder(dict[str, Any]).decode


class HostPeer:
    """Implements `stream.Receiver` for `/ws/host`."""

    protocol: ClassVar[str] = "relay_host"

    def __init__(
        self,
        tower_: tower.Tower,
        host_id: str,
        *,
        came: Callable[[HostLine], None],
        went: Callable[[HostLine], None],
        heard: Callable[[str], None],
        failed: Callable[[str, dict[str, Any]], None],
        usage: HostUsage | None = None,
    ) -> None:
        """`failed` gets the host, and its error for a command that it did not execute. `usage` is what the host has used of
        its quotas."""
        self._tower = tower_
        self._host_id = host_id
        self._came = came
        self._went = went
        self._heard = heard
        self._failed = failed
        self._usage = usage or HostUsage(tower_, host_id, UNLIMITED)
        self._mirror = Mirror(tower_, host_id, self._acknowledge, usage=self._usage, refuse=self._turn_away)
        self._mirror.relieved = self._resume
        self._pausing: asyncio.TimerHandle | None = None
        self._acks: dict[str, int] = {}
        self._ack_is_due = False
        self._complaints = 0
        self._line: HostLine | None = None

    def connected(self, stream: Stream) -> None:
        self._line = HostLine(self._host_id, stream)
        self._came(self._line)

    def received(self, frames: list[bytes]) -> None:
        self._heard(self._host_id)
        numbered: list[messages.Envelope] = []
        for frame in frames:
            try:
                envelope = _decode(frame)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
                self._complain(str(problem))
                continue
            is_numbered = envelope.run_id is not None and envelope.seq is not None
            if envelope.type in _FOR_THE_ASKER or not is_numbered:
                self._unnumbered(envelope)
                # Some hosts number their answers too. The number counts; what was answered is for the asker alone.
                envelope = msgspec.structs.replace(envelope, type=reports.NOTHING, data=messages.EMPTY)
            if is_numbered:
                numbered.append(envelope)
        if numbered:
            self._mirror.take(numbered)
            if self._mirror.is_crowded and self._line is not None:
                self._line.stream.pause_reading()
        if (pause := self._usage.pause_after(frames)) and self._pausing is None and self._line is not None:
            self._line.stream.pause_reading()
            self._pausing = asyncio.get_running_loop().call_later(pause, self._end_pause)

    def refused(self, problem: str) -> None:
        self._complain(problem)

    def writable_again(self) -> None:
        if self._line is not None:
            self._line.outbox.flush()

    def disconnected(self) -> None:
        self._mirror.close()
        if self._pausing is not None:
            self._pausing.cancel()
        if self._line is not None:
            line, self._line = self._line, None
            self._went(line)

    def _unnumbered(self, envelope: messages.Envelope) -> None:
        assert self._line is not None, "a peer that receives is connected"
        if envelope.type == "rpc.response":
            try:
                self._line.answered(msgspec.json.decode(envelope.data, type=messages.Response))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
                self._complain(str(problem))
        elif envelope.type == "run.error" and envelope.run_id is not None:
            try:
                self._failed(self._host_id, _decode_data(envelope.data))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
                self._complain(str(problem))
        elif envelope.type not in ("host.heartbeat", "error"):
            self._complain(f"`{envelope.type}` needs a run_id and a seq")

    def _complain(self, problem: str) -> None:
        self._complaints += 1
        if self._line is None:
            return
        if self._complaints > MOST_COMPLAINTS:
            log.warning("host %s sends what cannot be read: it is cut off", self._host_id)
            self._line.stream.close(POLICY_VIOLATION, "too many messages that cannot be read")
            return
        self._line.send(outbound.unnumbered("error", self._tower.now_ms(), {"error": problem[:_LONGEST_ERROR]}))

    def _acknowledge(self, run_id: str, last_seq: int) -> None:
        """One acknowledgement a run and turn, however many batches were stored in it."""
        self._acks[run_id] = last_seq
        if not self._ack_is_due:
            self._ack_is_due = True
            asyncio.get_running_loop().call_soon(self._send_acks)

    def _send_acks(self) -> None:
        self._ack_is_due = False
        acks, self._acks = self._acks, {}
        if self._line is not None and acks:
            now_ms = self._tower.now_ms()
            self._line.outbox.send(
                Packet(
                    [
                        outbound.unnumbered("run.ack", now_ms, {"run_id": run_id, "last_seq": last_seq})
                        for run_id, last_seq in acks.items()
                    ]
                )
            )

    def _turn_away(self, run_id: str, problem: str) -> None:
        """A run that is not taken here."""
        if self._line is not None:
            told = {"command": "run.started", "error": problem}
            self._line.send(outbound.unnumbered("run.error", self._tower.now_ms(), told, run_id=run_id))

    def _end_pause(self) -> None:
        self._pausing = None
        self._resume()

    def _resume(self) -> None:
        if self._line is not None and self._pausing is None and not self._mirror.is_crowded:
            self._line.stream.resume_reading()
