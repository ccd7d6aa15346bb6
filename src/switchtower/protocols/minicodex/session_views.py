"""A cache of session views: for each session the transcript, the run and the open approvals as its clients see them.

A snapshot is folded from the very frames that clients are sent, so it cannot disagree with them. The streamed part of a failed
model call is not in it: the error `RETRY` voids that. Items are kept as the bytes that were sent; nothing is decoded, and a long
session costs one buffer. A view is updated from the journal on request, so that a reconnecting client costs only the new entries.
"""

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence

import msgspec

from switchtower.core import codec, events
from switchtower.core.ports import journal, session_service
from switchtower.protocols.minicodex import encoder, frame_writer, messages
from switchtower.protocols.minicodex.encoder import MiniCodexStreamState, encode_batch
from switchtower.transports.stream import Packet

_ITEMS = tuple(
    b'{"type":"%b",' % type_ for type_ in (b"assistant_text", b"reasoning", b"user_text", b"tool_call", b"function_call_output")
)
_STREAMED = tuple(b'{"type":"%b",' % type_ for type_ in frame_writer.PIECES.values())
_ERROR = b'{"type":"error",'
_RETRY = _ERROR + b'"code":"%b"' % frame_writer.RETRY.encode()
_STATUS = frame_writer.STATUS + b'{"run_id":"'
_UUID_LENGTH = 36
_ENDED = (b"finished", b"error")

_encode = msgspec.json.Encoder().encode


class TranscriptSnapshot:
    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.stream_state = MiniCodexStreamState.make_empty()
        """The state for the next entries: `encoder.encode_batch` continues from it."""
        self.seq = 0
        """The last entry that the snapshot includes."""
        self.last_event_id: int | None = None
        self.active_run_id: str | None = None
        self.run_counter = 0
        self._items = bytearray()
        """The transcript; each item is followed by a comma."""
        self._run_state = b""
        """The last run's state, without its last event."""
        self._run = b""
        self._run_event_id = 0
        self._streamed_from: int | None = None
        """The offset in the transcript of the message that is being streamed."""
        self._torn_at: int | None = None
        """The offset in the transcript of a message of which retention has left only the end."""

    def add(self, entries: Sequence[journal.Entry]) -> list[bytes]:
        """Adds the next entries, and returns their frames."""
        if not entries:
            return []
        has_hole = entries[0].seq != self.seq + 1 or entries[-1].seq - entries[0].seq + 1 != len(entries)
        if not has_hole and self._torn_at is None:
            return self._add(entries)
        frames: list[bytes] = []
        for entry in entries:
            if entry.seq != self.seq + 1:
                self._torn_at = len(self._items)
            if self._torn_at is not None and entry.kind == events.MessageCompleted.kind:
                # Not all of its pieces exist any more, but this entry has the whole message.
                del self._items[self._torn_at :]
                self._torn_at = self._streamed_from = None
                if self.stream_state.run_id is not None:
                    self.stream_state = msgspec.structs.replace(self.stream_state, text_sent=False, reasoning_sent=False)
            told = self._add([entry])
            if told and entry.kind not in frame_writer.PIECES:
                self._torn_at = None
            frames += told
        return frames

    def _add(self, entries: Sequence[journal.Entry]) -> list[bytes]:
        frames, self.stream_state = encoder.encode_batch(self.stream_state, self.session_id, entries)
        self.seq = entries[-1].seq
        items = self._items
        for frame in frames:
            cut = frame.rindex(frame_writer.ENVELOPE)
            if frame.startswith(_STREAMED):
                if self._streamed_from is None:
                    self._streamed_from = len(items)
            elif not frame.startswith(_ERROR):
                self._streamed_from = None
            elif self._streamed_from is not None and frame.startswith(_RETRY):
                del items[self._streamed_from :]
                self._streamed_from = None
            if frame.startswith(_ITEMS):
                items += frame[:cut]
                items += b"},"
            elif frame.startswith(_STATUS):
                self._record_status(frame[len(frame_writer.STATUS) : cut])
        if frames:
            self.last_event_id = _read_event_id(frames[-1])
            self._record_run_end(frames)
        return frames

    def _record_status(self, run_state: bytes) -> None:
        self._run = run_state[len(b'{"run_id":"') :][:_UUID_LENGTH]
        self._run_state = run_state[: run_state.rindex(frame_writer.LAST_EVENT)]
        status = run_state[len(b'{"run_id":"","status":"') + _UUID_LENGTH :].partition(b'"')[0]
        self._run_event_id = int(run_state[len(self._run_state) + len(frame_writer.LAST_EVENT) : -1])
        self.run_counter += status == b"starting"
        self.active_run_id = None if status in _ENDED else self._run.decode()

    def _record_run_end(self, frames: list[bytes]) -> None:
        mark = b'"run_id":"%b","ts":"' % self._run
        for frame in reversed(frames):
            if self._run and mark in frame[frame.rindex(frame_writer.ENVELOPE) :]:
                self._run_event_id = max(self._run_event_id, _read_event_id(frame))
                return

    def make_session_state(self, capabilities: Sequence[str]) -> messages.SessionState:
        return messages.SessionState(
            session_id=self.session_id,
            version=messages.VERSION,
            capabilities=list(capabilities),
            last_event_id=self.last_event_id,
            active_run_id=self.active_run_id,
            run_counter=self.run_counter,
        )

    def encode_frame(self, capabilities: Sequence[str], *, with_transcript: bool, req_id: str | None = None) -> bytes:
        """Encodes the `snapshot` message. Its `event_id` is the last that it includes; 0 when nothing was sent yet."""
        run_state = b"null"
        if self._run_state:
            run_state = b"%b%b%d}" % (self._run_state, frame_writer.LAST_EVENT, self._run_event_id)
        head = b'{"type":"snapshot","v":"%b","session_id":%b,"session_state":%b,"run_state":%b,"transcript":[' % (
            messages.VERSION.encode(),
            _encode(self.session_id),
            _encode(self.make_session_state(capabilities)),
            run_state,
        )
        asked = b"" if req_id is None else b',"req_id":%b' % _encode(req_id)
        foot = b"]%b%d%b}" % (frame_writer.ENVELOPE, self.last_event_id or 0, asked)
        return b"".join((head, memoryview(self._items)[:-1], foot)) if with_transcript else head + foot


def _read_event_id(frame: bytes) -> int:
    start = frame.rindex(frame_writer.ENVELOPE) + len(frame_writer.ENVELOPE)
    return int(frame[start : frame.index(b",", start)])


PAGE_SIZE = 1_000
MAX_VIEWS = 64
ENCODING = "minicodex"


class SessionView:
    """One session, read up to `seq`."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.seq = 0
        self.snapshot = TranscriptSnapshot(session_id)
        self._open_approvals: dict[str, str] = {}
        """Open approvals: approval id to call id."""
        self.closed: dict[str, str] = {}
        """Calls whose approval is no longer open, with its outcome."""
        self._marks: list[tuple[int, MiniCodexStreamState]] = [(0, MiniCodexStreamState.make_empty())]
        """Stream states at intervals, so that a replay from the middle need not read from the start."""

    def add(self, entries: list[journal.Entry]) -> None:
        self.snapshot.add(entries)
        for entry in entries:
            if entry.kind in _APPROVAL_KINDS:
                self._track_approval(codec.decode(entry.kind, entry.data))
        self.seq = entries[-1].seq
        if self.seq - self._marks[-1][0] >= PAGE_SIZE:
            self._marks.append((self.seq, self.stream_state))

    def find_mark(self, seq: int) -> tuple[int, MiniCodexStreamState]:
        """Returns the last place up to this seq at which the stream state is known."""
        return self._marks[bisect_right(self._marks, seq, key=lambda mark: mark[0]) - 1]

    @property
    def stream_state(self) -> MiniCodexStreamState:
        """The state of a client that has been sent all events of this view."""
        return self.snapshot.stream_state

    def _track_approval(self, event: events.AnyEvent) -> None:
        match event:
            case events.ApprovalRequested():
                self._open_approvals[event.approval.id] = event.approval.call_id
                self.closed.pop(event.approval.call_id, None)
            case events.ApprovalDecided():
                self._close_approval(event.approval_id, f"was decided already, by {event.by.label}")
            case events.ApprovalExpired():
                self._close_approval(event.approval_id, "expired before a decision")
            case events.ApprovalWithdrawn():
                self._close_approval(event.approval_id, f"was withdrawn before a decision: {event.reason}")
            case _:
                pass

    def _close_approval(self, approval_id: str, how: str) -> None:
        if (call_id := self._open_approvals.pop(approval_id, None)) is not None:
            self.closed[call_id] = how


_APPROVAL_KINDS = frozenset(
    event.kind for event in (events.ApprovalRequested, events.ApprovalDecided, events.ApprovalExpired, events.ApprovalWithdrawn)
)


class SessionViewCache:
    def __init__(self, tower_: session_service.SessionService) -> None:
        self.tower = tower_
        self._views: OrderedDict[str, SessionView] = OrderedDict()

    async def get_view(self, session_id: str, until: int) -> SessionView:
        """Returns the session up to exactly this seq. The caller must not change it."""
        book = await self._get_shared_view(session_id, until)
        if book.seq > until:
            # A client that is behind the others gets a separate view; the shared one is not changed.
            book = SessionView(session_id)
            await self._read(book, until)
        return book

    async def get_stream_state(self, session_id: str, seq: int) -> MiniCodexStreamState:
        """Returns the state of a client that has been sent all events up to this seq."""
        book = await self._get_shared_view(session_id, seq)
        place, state = book.find_mark(seq)
        async for entries in self.read_pages(session_id, place, seq):
            _, state = encode_batch(state, session_id, entries)
        return state

    async def _get_shared_view(self, session_id: str, until: int) -> SessionView:
        """Returns the session up to this seq or further."""
        book = self._views.get(session_id)
        if book is None:
            book = self._views[session_id] = SessionView(session_id)
            if len(self._views) > MAX_VIEWS:
                self._views.popitem(last=False)
        self._views.move_to_end(session_id)
        await self._read(book, until)
        return book

    async def _read(self, view: SessionView, until: int) -> None:
        while view.seq < until:
            entries = await self.tower.read_entries(view.session_id, view.seq, PAGE_SIZE)
            # Another task may have read further in the same view meanwhile.
            fresh = [entry for entry in entries if view.seq < entry.seq <= until]
            if fresh:
                view.add(fresh)
                if view.seq < until:
                    await asyncio.sleep(0)  # one page a turn: a long session must not block the event loop
            elif not entries or entries[-1].seq > until:
                return  # retention has removed the entries there

    async def read_pages(self, session_id: str, after: int, until: int) -> AsyncIterator[list[journal.Entry]]:
        """Reads the entries that the journal still has between these two."""
        while after < until and (entries := await self.tower.read_entries(session_id, after, PAGE_SIZE)):
            if kept := [entry for entry in entries if entry.seq <= until]:
                yield kept
            after = entries[-1].seq

    def encode_batch(
        self, state: MiniCodexStreamState, batch: session_service.Batch
    ) -> tuple[Packet | None, MiniCodexStreamState]:
        """Encodes a batch for a client in this state, once for all clients with an equal state."""
        made = batch.encodings.get(ENCODING)
        if made is not None and (made[0] is state or made[0] == state):
            return made[1], made[2]
        frames, after = encode_batch(state, batch.session_id, batch.entries)
        packet = Packet(frames) if frames else None
        if made is None:
            batch.encodings[ENCODING] = (state, packet, after)
        return packet, after
