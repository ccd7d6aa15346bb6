"""The stream states of each session's followers. Clients that have seen the same share one state, and so the frames."""

import asyncio
from collections.abc import AsyncIterator

from switchtower.core import errors
from switchtower.core.ports import journal, session_service
from switchtower.protocols.pi import encoder
from switchtower.protocols.pi.sessions.info import make_assistant_info
from switchtower.protocols.pi.sessions.loaded import LoadedSession, LoadedSessions
from switchtower.protocols.pi.stream_state import UNKNOWN_ASSISTANT, AssistantInfo, PiStreamState
from switchtower.transports.stream import Packet

PAGE = 500
MAX_KEPT = 1_000


class SessionStreams:
    def __init__(self, service: session_service.SessionService, sessions: LoadedSessions) -> None:
        self.service = service
        self._sessions = sessions
        self._latest: dict[str, tuple[int, PiStreamState]] = {}
        """Per session: the state after the last batch that a client was sent."""

    def encode_batch(self, state: PiStreamState, batch: session_service.Batch, name: str) -> tuple[Packet | None, PiStreamState]:
        """Encodes a batch for a client in this state, once for all clients with the very same state."""
        made = batch.encodings.get("pi")
        if made is not None and made[0] is state:
            return made[1], made[2]
        frames, after = encoder.encode_batch(state, name, batch.entries, self._get_assistant_info(batch.session_id))
        packet = Packet(frames) if frames else None
        if made is None:
            batch.encodings["pi"] = (state, packet, after)
        self._latest.pop(batch.session_id, None)
        self._latest[batch.session_id] = (batch.last_seq, after)
        if len(self._latest) > MAX_KEPT:
            del self._latest[next(iter(self._latest))]
        return packet, after

    async def subscribe(
        self, session_id: str, name: str, outlet: session_service.Subscriber
    ) -> tuple[session_service.Subscription, PiStreamState]:
        """Returns a subscription from the session's head on, not started yet, and the state of a client that has seen all
        before."""
        joined: asyncio.Future[tuple[session_service.Subscription, int | None]] = asyncio.get_running_loop().create_future()

        def attached(attachment: session_service.Attachment | errors.CoreError) -> None:
            if joined.done():
                if not isinstance(attachment, errors.CoreError):
                    attachment.subscription.close()  # the caller was cancelled
            elif isinstance(attachment, errors.CoreError):
                joined.set_exception(attachment)
            else:
                # This is read now, in the session's own order: a moment later the session may hold events that are not committed
                # yet.
                run = attachment.session.run
                joined.set_result((attachment.subscription, run.started_at_seq if run else None))

        self.service.attach(session_id, session_service.HEAD_CURSOR, outlet, admit=lambda _: None, done=attached)
        subscription, run_began_at = await joined
        if run_began_at is None:
            return subscription, PiStreamState.empty()
        head = subscription.cursor
        latest = self._latest.get(session_id)
        if latest is not None and latest[0] == head:
            return subscription, latest[1]
        # No client has followed it here: the run so far is encoded to get its state, and the frames are dropped.
        state, cast = PiStreamState.empty(), self._get_assistant_info(session_id)
        try:
            async for entries in self.read_pages(session_id, run_began_at - 1, head):
                _, state = encoder.encode_batch(state, name, entries, cast)
        except BaseException:
            subscription.close()
            raise
        return subscription, state

    async def read_pages(self, session_id: str, after: int, head: int) -> AsyncIterator[list[journal.Entry]]:
        """Reads the entries that the journal still has between these two."""
        while after < head and (entries := await self.service.read_entries(session_id, after, PAGE)):
            if kept := [entry for entry in entries if entry.seq <= head]:
                yield kept
            after = entries[-1].seq

    def encode_entries(
        self, state: PiStreamState, session_id: str, name: str, entries: list[journal.Entry]
    ) -> tuple[list[bytes], PiStreamState]:
        """Encodes frames for one client alone."""
        return encoder.encode_batch(state, name, entries, self._get_assistant_info(session_id))

    def find_session(self, name: str) -> LoadedSession | None:
        return self._sessions.find_by_name(name)

    def _get_assistant_info(self, session_id: str) -> AssistantInfo:
        standing = self._sessions.find_by_id(session_id)
        return UNKNOWN_ASSISTANT if standing is None else make_assistant_info(standing.info.model)
