"""Journal entries to the frames that pi's clients follow a session by. Pure: what must be remembered comes in and goes out.

Any way to cut the entries into batches gives the same frames. Clients whose state is the same object can share the frames of
a batch; after each run everybody's is.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from switchtower.core import codec, journal
from switchtower.protocols.pi.view import shapes, streaming, ui_requests
from switchtower.protocols.pi.view.cutting import PiEventEncoder
from switchtower.protocols.pi.view.footage import PiStreamState
from switchtower.protocols.pi.view.streaming import AssistantInfo

_encode_frame = msgspec.json.Encoder().encode


def encode_batch(
    state: PiStreamState, session_id: str, entries: Sequence[journal.Entry], assistant: AssistantInfo
) -> tuple[list[bytes], PiStreamState]:
    """The frames for these entries, and the state for the next ones."""
    fields = streaming.FIELDS
    # Pieces of text are nearly all of the traffic: they are not decoded into events, and change nothing but their message.
    if state.streamed is not None and fields.keys() >= {entry.kind for entry in entries}:
        return _encode_pieces(state, state.streamed.copy(), entries)
    cutter = PiEventEncoder(state, session_id, assistant)
    for seq, ts_ms, _, kind, data in entries:
        if kind in fields:
            cutter.add_piece(fields[kind], ts_ms, data)
        else:
            cutter.add(seq, ts_ms, codec.decode(kind, data))
    return cutter.frames, cutter.build_state()


def _encode_pieces(
    state: PiStreamState, streamed: streaming.StreamedMessage, entries: Sequence[journal.Entry]
) -> tuple[list[bytes], PiStreamState]:
    frames: list[bytes] = []
    fields = streaming.FIELDS
    for entry in entries:
        streamed.add(fields[entry.kind], entry.data, frames)
    streamed.seal()
    return frames, msgspec.structs.replace(state, streamed=streamed) if frames else state


def encode_catch_up(state: PiStreamState, *, now_ms: int | None = None) -> list[bytes]:
    """What a client needs that comes in the middle of a run: the message under way with all that was said, the tools at
    work, the questions that are open. `now_ms` is for how long these stay open; without it they are told as they were asked.
    """
    told: list[msgspec.Struct] = []
    if state.held is not None:
        told.append(shapes.MessageStart(state.held))
    if state.streamed is not None:
        told.append(shapes.MessageStart(Raw(state.streamed.encode_message())))
    told += [shapes.ToolExecutionStart(call.call_id, call.tool, msgspec.json.decode(call.args)) for call in state.calls]
    told += [
        ui_requests.make_ui_request(asked.question, asked.asked_at_ms if now_ms is None else now_ms) for asked in state.questions
    ]
    return [b"%b%b}" % (state.session, _encode_frame(event)) for event in told]
