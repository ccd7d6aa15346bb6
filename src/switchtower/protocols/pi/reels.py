"""Where each session's followers are in its story. Clients that have seen the same share one state, and so the frames."""

from switchtower.core import tower
from switchtower.protocols.pi.models import api_of
from switchtower.protocols.pi.roster import Roster
from switchtower.protocols.pi.view import reel
from switchtower.protocols.pi.view.reel import Cast, Reel
from switchtower.transports.packet import Packet

PAGE = 500
MOST_KEPT = 1_000


class Reels:
    def __init__(self, tower_: tower.Tower, roster: Roster) -> None:
        self.tower = tower_
        self._roster = roster
        self._latest: dict[str, tuple[int, Reel]] = {}
        """The state after the last batch that anybody was sent, by session."""

    def translate(self, state: Reel, batch: tower.Batch) -> tuple[Packet | None, Reel]:
        """What a batch is for a client in this state. Made once for all who are in the very same one."""
        made = batch.encodings.get("pi")
        if made is not None and made[0] is state:
            return made[1], made[2]
        frames, after = reel.translate(state, batch.session_id, batch.entries, self._cast(batch.session_id))
        packet = Packet(frames) if frames else None
        if made is None:
            batch.encodings["pi"] = (state, packet, after)
        self._latest.pop(batch.session_id, None)
        self._latest[batch.session_id] = (batch.last_seq, after)
        if len(self._latest) > MOST_KEPT:
            del self._latest[next(iter(self._latest))]
        return packet, after

    async def at(self, session_id: str) -> tuple[int, Reel]:
        """The session's head, and the state of a client that has seen everything up to it."""
        session = await self.tower.session(session_id)
        head = session.seq
        if session.run is None:
            return head, Reel.empty()
        latest = self._latest.get(session_id)
        if latest is not None and latest[0] == head:
            return latest
        # Nobody has followed it here: the run so far is told again, to nobody.
        state, after = Reel.empty(), session.run.started_at_seq - 1
        cast = self._cast(session_id)
        while after < head and (entries := await self.tower.entries(session_id, after, PAGE)):
            entries = [entry for entry in entries if entry.seq <= head]
            _, state = reel.translate(state, session_id, entries, cast)
            after = entries[-1].seq
        return head, state

    def _cast(self, session_id: str) -> Cast:
        standing = self._roster.get(session_id)
        if standing is None:
            return Cast(provider="", model="")
        return Cast(provider=standing.provider, model=standing.model or "", api=api_of(standing.provider))
