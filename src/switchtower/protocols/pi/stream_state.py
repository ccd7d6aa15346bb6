"""The state of a run's stream: an immutable value, so that clients can share it, and the assistant message in it. Pure.

The state lives as long as a run. Between runs there is nothing to remember, and the value is one shared object.

Each streamed piece of an assistant message is one `message_update`; this is the hottest code of the protocol. An update costs the
same however long the message has become: `assistantMessageEvent` has the whole new piece, `message` shows only the end of a long
block (ADR 0014). The whole text is sent when a block ends and when the message does.
"""

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, Struct

from switchtower.core import events
from switchtower.protocols.pi import event_messages

WHOLE_UP_TO = 1_024
"""Characters of a block up to which an update's `message` shows all of it."""
TAIL = 512
"""Characters that the update shows of a longer block."""
MAX_CALLS_SHOWN = 16
"""Tool calls that the `message` of an update shows with their arguments; later ones are shown without."""
MAX_CALLS_LISTED = 32
"""Tool calls that the update shows at all; later ones are only in their own events."""
MAX_ARGUMENTS_LENGTH = 1_024
"""Bytes of a call's arguments in the `message` of an update."""
SMALLEST_PIECE = 4_096
"""Adjacent pieces below this size, in bytes, are kept as one."""

FIELDS = {events.TextDelta.kind: "text", events.ThinkingDelta.kind: "thinking"}
"""The block that each kind of piece belongs to; a block's field has the name of its type."""

_STORED_OPEN = b'{"text":"'
_MESSAGE_OPEN = b'{"role":"assistant","content":['
_UPDATE_OPEN = b'{"type":"message_update","message":' + _MESSAGE_OPEN

_encode = msgspec.json.Encoder().encode
_decode_text = msgspec.json.Decoder(str).decode
_decode_piece = msgspec.json.Decoder(events.TextDelta).decode

Pieces = tuple["Pieces", bytes] | None
"""The content of a block so far, the last piece first, each the inside of a JSON string. All states of the block share it."""


class AssistantInfo(Struct, frozen=True):
    """The model that speaks as the assistant. `api` is the dialect's name, such as `openai-completions`."""

    provider: str
    model: str
    api: str = "openai-completions"


class StreamedBlock(Struct):
    field: str
    pieces: Pieces = None
    fresh: list[bytes] = []
    """Pieces of the current batch."""
    tail: str = ""
    length: int = 0
    told: int = -1
    """The length at which the block's end was last sent."""

    @property
    def is_cut(self) -> bool:
        return self.length > WHOLE_UP_TO

    def encode_tail(self) -> bytes:
        """Encodes the block as the `message` of an update has it."""
        text = f"…{self.tail}" if self.is_cut else self.tail
        return b'{"type":"%b","%b":%b}' % (self.field.encode(), self.field.encode(), _encode(text))

    def seal(self) -> None:
        """Adds the batch's pieces to the kept ones. Small pieces are joined, so that there are few."""
        if not self.fresh:
            return
        added = self.fresh[0] if len(self.fresh) == 1 else b"".join(self.fresh)
        self.fresh = []
        if self.pieces is not None and len(self.pieces[1]) < SMALLEST_PIECE:
            self.pieces = (self.pieces[0], self.pieces[1] + added)
        else:
            self.pieces = (self.pieces, added)

    def encode_whole(self) -> bytes:
        """Encodes all of the block's text as a JSON string."""
        self.seal()
        parts, pieces = [b'"'], self.pieces
        while pieces is not None:
            pieces, part = pieces
            parts.append(part)
        parts.append(b'"')
        return b"".join(reversed(parts))


class StreamedMessage(Struct):
    """A streamed message changes only within a batch, and only as a copy that the batch has made with `copy`."""

    session: bytes
    """The start of every frame of the session, up to its event."""
    cast: AssistantInfo
    ts_ms: int
    blocks: list[StreamedBlock] = []
    current: StreamedBlock | None = None
    lead: bytes = b""
    """An update, up to the text of the current block."""
    trail: bytes = b""
    """The update from there to the piece."""
    partial_lead: bytes = b""
    """The update from the piece to the text of the current block in `partial`, which is `message` again: pi's type has both."""
    partial_trail: bytes = b""

    def copy(self) -> "StreamedMessage":
        current = None
        blocks = []
        for block in self.blocks:
            copy = StreamedBlock(block.field, block.pieces, [], block.tail, block.length, block.told)
            blocks.append(copy)
            if block is self.current:
                current = copy
        return StreamedMessage(
            self.session, self.cast, self.ts_ms, blocks, current, self.lead, self.trail, self.partial_lead, self.partial_trail
        )

    def seal(self) -> None:
        for block in self.blocks:
            block.seal()

    def encode_start(self) -> bytes:
        """Encodes a `message_start` with all content so far."""
        return b'%b{"type":"message_start","message":%b}}' % (self.session, self.encode_message())

    def encode_message(self, stop_reason: event_messages.StopReason = "stop", error: str | None = None) -> bytes:
        """Encodes the message with its whole content as JSON."""
        content = b",".join(
            b'{"type":"%b","%b":%b}' % (block.field.encode(), block.field.encode(), block.encode_whole()) for block in self.blocks
        )
        return _MESSAGE_OPEN + content + self._encode_foot(stop_reason, error) + b"}"

    def add(self, field: str, data: bytes, frames: list[bytes]) -> None:
        """Adds one piece in its stored form."""
        block = self.current
        if block is None or block.field != field:
            block = self._switch_block(field, frames)
        # The stored form is the wire's: the JSON string is cut out, and only the visible part of the block is encoded again.
        piece = data[8:-1] if data.startswith(_STORED_OPEN) else _encode(_decode_piece(data).text)
        text = _decode_text(piece)
        block.fresh.append(piece[1:-1])
        was_cut = block.length > WHOLE_UP_TO
        block.length += len(text)
        if block.length > WHOLE_UP_TO:
            block.tail = (block.tail + text)[-TAIL:]
            if not was_cut:
                self._set_template(block)
            shown = _encode("…" + block.tail)
        else:
            block.tail += text
            shown = _encode(block.tail)
        frames.append(b"%b%b%b%b%b%b%b" % (self.lead, shown, self.trail, piece, self.partial_lead, shown, self.partial_trail))

    def abort(self, frames: list[bytes]) -> None:
        """Adds the last updates of a message that does not complete: each block ends at its current length."""
        for index, block in enumerate(self.blocks):
            if block.told != block.length:
                self._end_block(index, block, block.encode_whole(), frames)

    def complete(self, event: events.MessageCompleted, frames: list[bytes]) -> event_messages.Assistant:
        """Adds the last updates and returns the final message (its usage is not known yet)."""
        wholes = {"thinking": event.thinking, "text": event.text}
        streamed = {block.field for block in self.blocks}
        for field, whole in wholes.items():
            if whole and field not in streamed:  # its pieces were pruned: clients that draw from pieces get it as one
                self.add(field, _encode(events.TextDelta(whole)), frames)
        content: list[event_messages.Text | event_messages.Thinking | event_messages.ToolCall] = []
        for index, block in enumerate(self.blocks):
            if block.told != block.length:
                self._end_block(index, block, _encode(wholes[block.field]), frames)
            content.append(event_messages.Text(event.text) if block.field == "text" else event_messages.Thinking(event.thinking))
        calls = [event_messages.ToolCall(call.call_id, call.tool, call.args) for call in event.calls]
        self._append_calls(calls, frames)
        return event_messages.Assistant(
            content=(*content, *calls),
            api=self.cast.api,
            provider=self.cast.provider,
            model=self.cast.model,
            stopReason="length" if event.stop_reason == "length" else "toolUse" if calls else "stop",
            timestamp=self.ts_ms,
        )

    def _switch_block(self, field: str, frames: list[bytes]) -> StreamedBlock:
        """Returns the block that a piece belongs to. There is one of each type, however often a model alternates."""
        if self.current is not None and self.current.told < 0:
            self._end_block(self.blocks.index(self.current), self.current, self.current.encode_whole(), frames)
        block = next((block for block in self.blocks if block.field == field), None)
        if block is None:
            block = StreamedBlock(field)
            self.blocks.append(block)
            frames.append(self._encode_update(b'"type":"%b_start","contentIndex":%d' % (field.encode(), len(self.blocks) - 1)))
        self.current = block
        self._set_template(block)
        return block

    def _set_template(self, block: StreamedBlock) -> None:
        index, field = self.blocks.index(block), block.field.encode()
        before = b"".join(other.encode_tail() + b"," for other in self.blocks[:index])
        behind = b"".join(b"," + other.encode_tail() for other in self.blocks[index + 1 :])
        head = b'%b{"type":"%b","%b":' % (before, field, field)
        cut = b',"truncated":true' if any(other.is_cut for other in self.blocks) else b""
        foot = b"}%b%b%b}" % (behind, self._encode_foot(), cut)
        self.lead = b"%b%b%b" % (self.session, _UPDATE_OPEN, head)
        self.trail = b'%b,"assistantMessageEvent":{"type":"%b_delta","contentIndex":%d,"delta":' % (foot, field, index)
        self.partial_lead = b',"partial":%b%b' % (_MESSAGE_OPEN, head)
        self.partial_trail = b"%b}}}" % foot

    def _end_block(self, index: int, block: StreamedBlock, whole: bytes, frames: list[bytes]) -> None:
        block.told = block.length
        frames.append(
            self._encode_update(b'"type":"%b_end","contentIndex":%d,"content":%b' % (block.field.encode(), index, whole))
        )

    def _append_calls(self, calls: list[event_messages.ToolCall], frames: list[bytes]) -> None:
        shown: list[bytes] = []
        is_cut = False
        for index, call in enumerate(calls, start=len(self.blocks)):
            encoded = _encode(call)
            bare = _encode(event_messages.ToolCall(call.id, call.name, {}))
            is_listed = len(shown) < MAX_CALLS_LISTED
            if is_listed:
                shown.append(bare)
            is_cut = is_cut or not is_listed
            frames.append(self._encode_update(b'"type":"toolcall_start","contentIndex":%d' % index, shown, is_cut=is_cut))
            if is_listed and len(shown) <= MAX_CALLS_SHOWN and len(encoded) <= MAX_ARGUMENTS_LENGTH:
                shown[-1] = encoded
            else:
                is_cut = True
            arguments = _encode(_encode(call.arguments).decode())
            delta = b'"type":"toolcall_delta","contentIndex":%d,"delta":%b' % (index, arguments)
            frames.append(self._encode_update(delta, shown, is_cut=is_cut))
            ended = b'"type":"toolcall_end","contentIndex":%d,"toolCall":%b' % (index, encoded)
            frames.append(self._encode_update(ended, shown, is_cut=is_cut))

    def _encode_update(self, event: bytes, calls: list[bytes] = [], *, is_cut: bool = False) -> bytes:  # noqa: B006
        content = b",".join([*(block.encode_tail() for block in self.blocks), *calls])
        is_cut = is_cut or any(block.is_cut for block in self.blocks)
        message = b"%b%b%b%b}" % (_MESSAGE_OPEN, content, self._encode_foot(), b',"truncated":true' if is_cut else b"")
        return b'%b{"type":"message_update","message":%b,"assistantMessageEvent":{%b,"partial":%b}}}' % (
            self.session,
            message,
            event,
            message,
        )

    def _encode_foot(self, stop_reason: event_messages.StopReason = "stop", error: str | None = None) -> bytes:
        """Encodes the part of a message after its content, without the closing brace."""
        return _encode(make_empty_message(self.cast, self.ts_ms, stop_reason, error))[len(_MESSAGE_OPEN) : -1]


def make_empty_message(
    assistant: AssistantInfo, ts_ms: int, stop_reason: event_messages.StopReason, error: str | None = None
) -> event_messages.Assistant:
    """Makes an assistant message without content."""
    return event_messages.Assistant(
        content=(),
        api=assistant.api,
        provider=assistant.provider,
        model=assistant.model,
        stopReason=stop_reason,
        errorMessage=UNSET if error is None else error,
        timestamp=ts_ms,
    )


Chain = tuple["Chain", bytes] | None
"""Messages as JSON, the last first. Growing it copies nothing."""


class OpenCall(Struct, frozen=True):
    call_id: str
    tool: str
    args: bytes
    tail: str = ""
    """The end of the call's output."""
    is_cut: bool = False


class OpenUiRequest(Struct, frozen=True):
    asked_at_ms: int
    question: events.Approval | events.Dialog


class PiStreamState(Struct, frozen=True, kw_only=True, eq=False):
    session: bytes = b""
    """The start of every frame of the session, up to its event."""
    running: bool = False
    chore: str | None = None
    """The purpose of a run that is not work of the agent."""
    streamed: StreamedMessage | None = None
    """The assistant message that is being streamed. It must not be changed: the encoder takes a copy."""
    held: event_messages.Assistant | None = None
    """A finished assistant message that waits for its usage."""
    turn_open: bool = False
    turn_message: bytes | None = None
    awaited: int = 0
    """Calls of the turn's message that have no result yet."""
    results: Chain = None
    """The results of the turn."""
    said: Chain = None
    """All messages of this run."""
    said_bytes: int = 0
    calls: tuple[OpenCall, ...] = ()
    questions: tuple[OpenUiRequest, ...] = ()
    compacting: str | None = None
    failure: events.ErrorRaised | None = None

    @classmethod
    def empty(cls) -> "PiStreamState":
        """Returns always the same object."""
        return _EMPTY


_EMPTY = PiStreamState()


def list_chain(chain: Chain) -> list[bytes]:
    """Returns the messages, oldest first."""
    messages = []
    while chain is not None:
        chain, message = chain
        messages.append(message)
    messages.reverse()
    return messages


def take_newest(chain: Chain, limit: int) -> list[bytes]:
    """Returns as many of the newest messages as fit within the limit, oldest first; the last one in any case."""
    messages: list[bytes] = []
    while chain is not None:
        chain, message = chain
        limit -= len(message)
        if limit < 0 and messages:
            break
        messages.append(message)
    messages.reverse()
    return messages


def make_chain(messages: Iterable[bytes]) -> Chain:
    chain: Chain = None
    for message in messages:
        chain = (chain, message)
    return chain


UNKNOWN_ASSISTANT = AssistantInfo(provider="", model="")
"""The assistant of sessions without any known call of a model."""
