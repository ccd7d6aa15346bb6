"""Writes MiniCodex frames: a message's own fields first, then its envelope with event id, time and run id. Pure.

A snapshot keeps the part before the envelope, so it can be cut out again without being decoded.
"""

from datetime import UTC, datetime
from functools import lru_cache
from uuid import NAMESPACE_OID, uuid5

import msgspec

from switchtower.core import events, ids
from switchtower.core.ports import journal
from switchtower.protocols.minicodex import messages

FRAMES_PER_ENTRY = 4_096
"""The maximum number of frames of one entry."""
LAST_FRAME_INDEX = FRAMES_PER_ENTRY - 1


def make_event_id(seq: int, frame_index: int) -> int:
    """Makes an id that is strictly monotonic over a session's frames and shows where a replay continues."""
    return seq * FRAMES_PER_ENTRY + frame_index


def parse_event_id(last_event_id: int) -> tuple[int, int]:
    """Returns the entry that a client has seen last, and the index of the last frame of it that it has seen."""
    return divmod(last_event_id, FRAMES_PER_ENTRY)


def format_timestamp(ts_ms: int) -> bytes:
    """RFC 3339, in UTC, to the millisecond."""
    second, ms = divmod(ts_ms, 1_000)
    return b"%b.%03dZ" % (_format_second(second), ms)


@lru_cache(maxsize=256)
def _format_second(second: int) -> bytes:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()


@lru_cache(maxsize=256)
def make_run_uuid(run_id: str) -> bytes:
    """Returns the run's id as the UUID that MiniCodex requires; an id that is not a ULID gets a UUID made from its name."""
    try:
        return str(ids.to_uuid(run_id)).encode()
    except (KeyError, ValueError):
        return str(uuid5(NAMESPACE_OID, run_id)).encode()


ENVELOPE = b',"event_id":'
"""The start of the envelope. The bytes after it contain no text of a user or model, so its last occurrence in a frame is the
envelope's."""
STATUS = b'{"type":"run_status","run_state":'
LAST_EVENT = b',"last_event_id":'
"""The start of the last field of a run's state."""

RETRY = "RETRY"
"""The code of the error that voids the streamed part of a message: the message is streamed again from its start."""

_encode = msgspec.json.Encoder().encode


PIECES = {events.TextDelta.kind: b"assistant_text", events.ThinkingDelta.kind: b"reasoning"}
"""These are nearly all of the traffic. Their stored form is the item's own field, so they are not decoded."""
STORED_OPEN = b'{"text":"'


def encode_piece(entry: journal.Entry) -> bytes:
    """Encodes the only frame of a stored piece of a run."""
    seq, ts_ms, run_id, kind, data = entry
    assert run_id is not None, "pieces are a run's"
    return b'{"type":"%b",%b,"event_id":%d,"run_id":"%b","ts":"%b"}' % (
        PIECES[kind],
        data[1:-1],
        seq * FRAMES_PER_ENTRY,
        make_run_uuid(run_id),
        format_timestamp(ts_ms),
    )


class FrameWriter:
    def __init__(self, session_id: str) -> None:
        self.frames: list[bytes] = []
        self.event_id = 0
        """The id of the next frame."""
        self.ts = b""
        self._session = b',"session_id":%b' % _encode(session_id)
        self._run = b""
        self._limit = 0

    def begin_entry(self, seq: int, ts_ms: int, run_id: str | None) -> None:
        """Sets the entry that the next frames belong to."""
        self.event_id = make_event_id(seq, 0)
        self._limit = self.event_id + FRAMES_PER_ENTRY
        self.ts = format_timestamp(ts_ms)
        self._run = b"" if run_id is None else b',"run_id":"%b"' % make_run_uuid(run_id)

    def write_piece(self, entry: journal.Entry) -> None:
        self.frames.append(encode_piece(entry))

    def write_item(self, item: messages.TranscriptItem) -> None:
        self._write(_encode(item)[:-1], b"")

    def write_tool_call(self, tool: str, args: bytes, call_id: str) -> None:
        self._write(b'{"type":"tool_call","name":%b,"args":%b,"call_id":%b' % (_encode(tool), args, _encode(call_id)), b"")

    def write_message(self, message: messages.ServerEvent) -> None:
        self._write(_encode(message)[:-1], self._session)

    def write_status(
        self, run_id: str, status: messages.RunStatus, started_ms: int, pending: list[bytes], *, ended: bool
    ) -> None:
        self._write(
            b'%b{"run_id":"%b","status":"%b","started_at":"%b"%b,"pending_approvals":[%b]%b%d}'
            % (
                STATUS,
                make_run_uuid(run_id),
                status.encode(),
                format_timestamp(started_ms),
                b',"finished_at":"%b"' % self.ts if ended else b',"finished_at":null',
                b",".join(pending),
                LAST_EVENT,
                self.event_id,
            ),
            self._session,
        )

    def write_error(self, code: str, message: str, details: messages.JsonObject | None = None) -> None:
        self.write_message(messages.ErrorEvt(code=code, message=message, details=details))

    def _write(self, body: bytes, session: bytes) -> None:
        """Writes a message, which is given without its closing brace."""
        assert self.event_id < self._limit, "an entry becomes a bounded number of frames"
        # Items are not envelopes in the document's models; they carry no more than the three fields that it gives them.
        self.frames.append(b'%b%b%d%b%b,"ts":"%b"}' % (body, ENVELOPE, self.event_id, session, self._run, self.ts))
        self.event_id += 1
