"""What a client holds that was told everything: the transcript, the run, the session. Pure.

It is folded from the very frames that clients are sent, so it cannot disagree with them. What a failed model call had streamed
is not in it: the error `RETRY` voids that. Items are kept as the bytes they were
sent as; nothing is decoded, and a long session costs one buffer.
"""

from collections.abc import Sequence

import msgspec

from switchtower.core import events, journal
from switchtower.protocols.minicodex import messages, scribe, story
from switchtower.protocols.minicodex.plot import MiniCodexStreamState

_ITEMS = tuple(
    b'{"type":"%b",' % type_ for type_ in (b"assistant_text", b"reasoning", b"user_text", b"tool_call", b"function_call_output")
)
_STREAMED = tuple(b'{"type":"%b",' % type_ for type_ in scribe.PIECES.values())
_ERROR = b'{"type":"error",'
_RETRY = _ERROR + b'"code":"%b"' % scribe.RETRY.encode()
_STATUS = scribe.STATUS + b'{"run_id":"'
_UUID_LENGTH = 36
_ENDED = (b"finished", b"error")

_encode = msgspec.json.Encoder().encode


class TranscriptSnapshot:
    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.stream_state = MiniCodexStreamState.make_empty()
        """The state for what comes next: `story.tell` goes on from here."""
        self.seq = 0
        """The last entry that is in it."""
        self.last_event_id: int | None = None
        self.active_run_id: str | None = None
        self.run_counter = 0
        self._items = bytearray()
        """The transcript, each item with a comma behind it."""
        self._run_state = b""
        """The last run's, without its last event."""
        self._run = b""
        self._run_event_id = 0
        self._streamed_from: int | None = None
        """Where in the transcript the message begins that is being streamed."""
        self._torn_at: int | None = None
        """Where in the transcript a message begins of which retention has left only the end."""

    def add(self, entries: Sequence[journal.Entry]) -> list[bytes]:
        """Takes in what comes next, and returns the frames that it was told by."""
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
                # Its pieces are not all there any more, but here it is in one.
                del self._items[self._torn_at :]
                self._torn_at = self._streamed_from = None
                if self.stream_state.run_id is not None:
                    self.stream_state = msgspec.structs.replace(self.stream_state, text_sent=False, reasoning_sent=False)
            told = self._add([entry])
            if told and entry.kind not in scribe.PIECES:
                self._torn_at = None
            frames += told
        return frames

    def _add(self, entries: Sequence[journal.Entry]) -> list[bytes]:
        frames, self.stream_state = story.encode_batch(self.stream_state, self.session_id, entries)
        self.seq = entries[-1].seq
        items = self._items
        for frame in frames:
            cut = frame.rindex(scribe.ENVELOPE)
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
                self._record_status(frame[len(scribe.STATUS) : cut])
        if frames:
            self.last_event_id = _read_event_id(frames[-1])
            self._record_run_end(frames)
        return frames

    def _record_status(self, run_state: bytes) -> None:
        self._run = run_state[len(b'{"run_id":"') :][:_UUID_LENGTH]
        self._run_state = run_state[: run_state.rindex(scribe.LAST_EVENT)]
        status = run_state[len(b'{"run_id":"","status":"') + _UUID_LENGTH :].partition(b'"')[0]
        self._run_event_id = int(run_state[len(self._run_state) + len(scribe.LAST_EVENT) : -1])
        self.run_counter += status == b"starting"
        self.active_run_id = None if status in _ENDED else self._run.decode()

    def _record_run_end(self, frames: list[bytes]) -> None:
        mark = b'"run_id":"%b","ts":"' % self._run
        for frame in reversed(frames):
            if self._run and mark in frame[frame.rindex(scribe.ENVELOPE) :]:
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
        """The `snapshot` message. Its `event_id` is the last that it includes; 0 when nothing was told yet."""
        run_state = b"null"
        if self._run_state:
            run_state = b"%b%b%d}" % (self._run_state, scribe.LAST_EVENT, self._run_event_id)
        head = b'{"type":"snapshot","v":"%b","session_id":%b,"session_state":%b,"run_state":%b,"transcript":[' % (
            messages.VERSION.encode(),
            _encode(self.session_id),
            _encode(self.make_session_state(capabilities)),
            run_state,
        )
        asked = b"" if req_id is None else b',"req_id":%b' % _encode(req_id)
        foot = b"]%b%d%b}" % (scribe.ENVELOPE, self.last_event_id or 0, asked)
        return b"".join((head, memoryview(self._items)[:-1], foot)) if with_transcript else head + foot


def _read_event_id(frame: bytes) -> int:
    start = frame.rindex(scribe.ENVELOPE) + len(scribe.ENVELOPE)
    return int(frame[start : frame.index(b",", start)])
