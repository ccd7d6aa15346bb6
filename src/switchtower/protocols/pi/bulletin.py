"""What every connection hears. Everything that is said within one turn of the event loop leaves together, encoded once for
all: lifecycle events first, then each one's own answers, then what is announced (interop, Envelope). So an idle connection
costs one write a turn, however many commands are under way, and one that does not want lifecycle events costs none."""

import asyncio
from typing import TYPE_CHECKING

from switchtower.transports.packet import Packet

if TYPE_CHECKING:
    from switchtower.protocols.pi.peer import PiConnection


class Broadcaster:
    """Implements `ports.Bulletin`."""

    def __init__(self) -> None:
        self.peers: set[PiConnection] = set()
        self._lifecycle: list[bytes] = []
        self._answers: dict[PiConnection, list[bytes]] = {}
        self._announcements: list[bytes] = []
        self._scheduled = False
        self.dismissed: tuple[int, str] | None = None
        """With which code and reason everybody was let go."""

    def close_all(self, code: int, reason: str) -> None:
        """All that was said to them leaves first."""
        self.flush()
        self.dismissed = code, reason
        for peer in tuple(self.peers):
            peer.close_for_restart(code, reason)

    def broadcast_lifecycle(self, frame: bytes) -> None:
        self._lifecycle.append(frame)
        self._schedule()

    def queue_response(self, peer: "PiConnection", frame: bytes) -> None:
        answers = self._answers.get(peer)
        if answers is None:
            self._answers[peer] = [frame]
            self._schedule()
        else:
            answers.append(frame)

    def broadcast(self, frame: bytes) -> None:
        self._announcements.append(frame)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        self._scheduled = False
        lifecycle, self._lifecycle = self._lifecycle, []
        answers, self._answers = self._answers, {}
        announcements, self._announcements = self._announcements, []
        for peer, frames in answers.items():
            before = lifecycle if peer.wants_lifecycle else []
            peer.send(Packet([*before, *frames, *announcements]))
        if not lifecycle and not announcements:
            return
        for_all = Packet([*lifecycle, *announcements])
        for_quiet = Packet(announcements) if announcements else None
        for peer in tuple(self.peers):
            if peer not in answers:
                packet = for_all if peer.wants_lifecycle else for_quiet
                if packet is not None:
                    peer.send(packet)
