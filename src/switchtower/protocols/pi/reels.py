"""Where each session's followers are in its story. Clients that have seen the same share one state, and so the frames."""

import asyncio
from collections.abc import AsyncIterator

from switchtower.core import errors, journal, tower
from switchtower.protocols.pi.models import cast_of
from switchtower.protocols.pi.roster import Roster, Standing
from switchtower.protocols.pi.view import reel
from switchtower.protocols.pi.view.footage import Reel
from switchtower.protocols.pi.view.streaming import Cast
from switchtower.protocols.pi.view.transcript import NOBODY
from switchtower.transports.packet import Packet

PAGE = 500
MOST_KEPT = 1_000


class Reels:
    def __init__(self, tower_: tower.Tower, roster: Roster) -> None:
        self.tower = tower_
        self._roster = roster
        self._latest: dict[str, tuple[int, Reel]] = {}
        """The state after the last batch that anybody was sent, by session."""

    def translate(self, state: Reel, batch: tower.Batch, name: str) -> tuple[Packet | None, Reel]:
        """What a batch is for a client in this state. Made once for all who are in the very same one."""
        made = batch.encodings.get("pi")
        if made is not None and made[0] is state:
            return made[1], made[2]
        frames, after = reel.translate(state, name, batch.entries, self._cast(batch.session_id))
        packet = Packet(frames) if frames else None
        if made is None:
            batch.encodings["pi"] = (state, packet, after)
        self._latest.pop(batch.session_id, None)
        self._latest[batch.session_id] = (batch.last_seq, after)
        if len(self._latest) > MOST_KEPT:
            del self._latest[next(iter(self._latest))]
        return packet, after

    async def join(self, session_id: str, name: str, outlet: tower.Outlet) -> tuple[tower.Subscription, Reel]:
        """A subscription from the session's head on, not started yet, and the state of a client that has seen all before."""
        joined: asyncio.Future[tuple[tower.Subscription, int | None]] = asyncio.get_running_loop().create_future()

        def attached(attachment: tower.Attachment | errors.CoreError) -> None:
            if joined.done():
                if not isinstance(attachment, errors.CoreError):
                    attachment.subscription.close()  # nobody waits for it any more
            elif isinstance(attachment, errors.CoreError):
                joined.set_exception(attachment)
            else:
                # Now, in the session's own order: a moment later it may hold what is not committed yet.
                run = attachment.session.run
                joined.set_result((attachment.subscription, run.started_at_seq if run else None))

        self.tower.attach(session_id, tower.FROM_THE_HEAD, outlet, admit=lambda _: None, done=attached)
        subscription, run_began_at = await joined
        if run_began_at is None:
            return subscription, Reel.empty()
        head = subscription.cursor
        latest = self._latest.get(session_id)
        if latest is not None and latest[0] == head:
            return subscription, latest[1]
        # Nobody has followed it here: the run so far is told again, to nobody.
        state, cast = Reel.empty(), self._cast(session_id)
        try:
            async for entries in self.pages(session_id, run_began_at - 1, head):
                _, state = reel.translate(state, name, entries, cast)
        except BaseException:
            subscription.close()
            raise
        return subscription, state

    async def pages(self, session_id: str, after: int, head: int) -> AsyncIterator[list[journal.Entry]]:
        """What the journal still has between these two."""
        while after < head and (entries := await self.tower.entries(session_id, after, PAGE)):
            if kept := [entry for entry in entries if entry.seq <= head]:
                yield kept
            after = entries[-1].seq

    def told_again(self, state: Reel, session_id: str, name: str, entries: list[journal.Entry]) -> tuple[list[bytes], Reel]:
        """Frames for one client alone."""
        return reel.translate(state, name, entries, self._cast(session_id))

    def named(self, name: str) -> Standing | None:
        return self._roster.get(name)

    def _cast(self, session_id: str) -> Cast:
        standing = self._roster.by_id(session_id)
        return NOBODY if standing is None else cast_of(standing.info.model)
