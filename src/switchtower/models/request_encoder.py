"""Encodes a request as the library's own messages, tools and settings. It sends nothing.

Names of tools and ids of calls are spelled so that every provider accepts them; an empty text, which some refuse, is replaced by
words; and a call without a result, or a result without its call, which all refuse, is never sent.

A carry is the data that a provider needs back with a message: signatures of its thinking, marks on its calls. The texts are in
the conversation already, so a carry has only their division into parts and the data beside each part. It is used for the endpoint
and model that made it, and only while the texts are unchanged: a secret that was redacted since makes a signature worthless.
"""

import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from switchtower.core.ports import engine
from switchtower.models import port
from switchtower.models.providers import Dialect

if TYPE_CHECKING:
    from pydantic_ai import messages
    from pydantic_ai.models import ModelRequestParameters


LONGEST = 262_144
"""The most bytes. A larger carry is not kept; the conversation continues without it."""


class CarryPiece(Struct, frozen=True, array_like=True):
    """A part of a message. `kind` is `text`, `thinking` or `call`; a call is the next one of the message's calls."""

    kind: str
    length: int = 0
    """The characters of the message's text or thinking."""
    extras: dict[str, Any] = {}
    """The part's `id`, `signature` and `details`, as far as it has them."""


class PackedCarry(Struct, frozen=True):
    by: str
    """The endpoint and the model."""
    checksum: int
    pieces: list[CarryPiece]


class CarriedPart(Struct, frozen=True):
    """A piece together with its content."""

    kind: str
    text: str = ""
    call: int = 0
    extras: Mapping[str, Any] = {}


def pack_carry(by: str, text: str, thinking: str, pieces: Sequence[CarryPiece]) -> dict[str, Any] | None:
    """Returns None when there is nothing worth keeping, or nothing that can be kept."""
    if not any(piece.extras for piece in pieces):
        return None
    carried = PackedCarry(by, _compute_checksum(text, thinking), list(pieces))
    try:
        encoded = msgspec.json.encode(carried)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    if len(encoded) > LONGEST:
        return None
    data: dict[str, Any] = msgspec.json.decode(encoded)
    return data


def iterate_parts(message: engine.Message, by: str) -> Iterator[CarriedPart]:
    """Yields the parts of an assistant message, for this endpoint and model. Thinking is sent back only with a carry that they
    made.
    """
    carried = _unpack(message.carry, by)
    if carried is None or sum(piece.kind == "call" for piece in carried.pieces) != len(message.calls):
        yield CarriedPart("text", message.text)
        yield from (CarriedPart("call", call=index) for index in range(len(message.calls)))
        return
    if carried.checksum != _compute_checksum(message.text, message.thinking):
        yield CarriedPart("text", message.text)
        calls = [piece for piece in carried.pieces if piece.kind == "call"]
        yield from (CarriedPart("call", call=index, extras=piece.extras) for index, piece in enumerate(calls))
        return
    places = {"text": 0, "thinking": 0, "call": 0}
    for piece in carried.pieces:
        place = places[piece.kind]
        if piece.kind == "call":
            places["call"] = place + 1
            yield CarriedPart("call", call=place, extras=piece.extras)
        else:
            whole = message.text if piece.kind == "text" else message.thinking
            places[piece.kind] = place + piece.length
            yield CarriedPart(piece.kind, whole[place : place + piece.length], extras=piece.extras)


def _unpack(data: dict[str, Any] | None, by: str) -> PackedCarry | None:
    if data is None or data.get("by") != by:
        return None
    try:
        carried = msgspec.convert(data, PackedCarry)
    except msgspec.ValidationError:
        return None  # by an older version of the daemon, or of unknown origin
    return carried if all(piece.kind in ("text", "thinking", "call") for piece in carried.pieces) else None


def _compute_checksum(text: str, thinking: str) -> int:
    return zlib.crc32(f"{len(text)}:{text}{thinking}".encode(errors="replace"))


NOTHING = "(nothing)"
NOT_RUN = "not run"
UNREADABLE_PICTURE = "[a picture that could not be read]"

_LONGEST_TOOL_NAME = 64
_STRANGE = re.compile(r"[^A-Za-z0-9_-]")


def encode_tool_name(name: str) -> str:
    """Returns a name that every provider accepts. A model may call an invented tool by any name, and gets the error under this
    one.
    """
    return _STRANGE.sub("_", name)[:_LONGEST_TOOL_NAME] or "unnamed"


def encode_parameters(request: port.CompletionRequest) -> "ModelRequestParameters":
    from pydantic_ai.messages import InstructionPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    return ModelRequestParameters(
        function_tools=[
            # Strictness is for schemas that were written for it; those of foreign tools are not.
            ToolDefinition(
                name=encode_tool_name(tool.name),
                description=tool.description,
                parameters_json_schema=tool.parameters,
                strict=False,
            )
            for tool in request.tools
        ],
        instruction_parts=[InstructionPart(content=request.system)] if request.system.strip() else [],
    )


class ConversationEncoder:
    """Encodes a conversation as the library's messages, for one model."""

    def __init__(self, dialect: Dialect, by: str, system: str, profile: Mapping[str, Any]) -> None:
        self._dialect = dialect
        self._by = by
        self._system = system
        """The library's name for the provider, which must be on data that the provider gets back."""
        self._id_length: int | None = profile.get("tool_call_id_length")
        self._thinking_field: str | None = profile.get("openai_chat_thinking_field")

    def encode(self, conversation: Sequence[engine.Message]) -> "list[messages.ModelMessage]":
        from pydantic_ai import messages

        told: list[messages.ModelMessage] = []
        asked: list[messages.ModelRequestPart] = []
        for message in _pair_calls_with_results(conversation):
            if message.role == "assistant":
                if asked:
                    told.append(messages.ModelRequest(parts=asked))
                    asked = []
                if parts := list(self._encode_assistant(message)):
                    told.append(messages.ModelResponse(parts=parts, provider_name=self._system))
            elif message.role == "tool":
                asked.append(self._encode_tool_result(message))
            else:
                asked.append(_encode_user(message))
        if asked:
            told.append(messages.ModelRequest(parts=asked))
        return told

    def _encode_assistant(self, message: engine.Message) -> "Iterator[messages.ModelResponsePart]":
        from pydantic_ai import messages

        for part in iterate_parts(message, self._by):
            known: dict[str, Any] = {}
            if part.extras:
                known = {"provider_name": self._system, "provider_details": part.extras.get("details")}
            if part.kind == "call":
                call = message.calls[part.call]
                yield messages.ToolCallPart(encode_tool_name(call.tool), call.args, self._encode_call_id(call.call_id), **known)
            elif part.kind == "thinking":
                if self._can_return_thinking(part):
                    field, signature = part.extras.get("id"), part.extras.get("signature")
                    yield messages.ThinkingPart(part.text, id=field, signature=signature, **known)
            elif part.text.strip() or part.extras:
                yield messages.TextPart(part.text, **known)

    def _can_return_thinking(self, thinking: CarriedPart) -> bool:
        """Returns whether the API has a separate field for it; without one the library would mix it into the text."""
        if self._dialect is not Dialect.OPENAI or thinking.extras.get("details"):
            return True
        field = thinking.extras.get("id")
        return field not in (None, "content") and self._thinking_field in (None, field)

    def _encode_tool_result(self, message: engine.Message) -> "messages.ToolReturnPart":
        from pydantic_ai import messages

        text = _replace_blank(message.text)
        # OpenAI's API has no mark for an error, and the library's wording is harder to read than this.
        in_words = message.is_error and self._dialect is Dialect.OPENAI
        return messages.ToolReturnPart(
            tool_name=encode_tool_name(message.tool or ""),
            content=f"error: {text}" if in_words else text,
            tool_call_id=self._encode_call_id(message.call_id or ""),
            outcome="failed" if message.is_error and not in_words else "success",
        )

    def _encode_call_id(self, call_id: str) -> str:
        if self._id_length is None:
            return call_id
        return hashlib.sha256(call_id.encode()).hexdigest()[: self._id_length]


def _encode_user(message: engine.Message) -> "messages.UserPromptPart":
    from pydantic_ai import messages

    if not message.images:
        return messages.UserPromptPart(content=_replace_blank(message.text))
    content: list[messages.UserContent] = [message.text] if message.text.strip() else []
    for image in message.images:
        if port.find_image_problem(image) is None:
            content.append(messages.BinaryContent(port.decode_image(image), media_type=image.media_type))
        else:  # an old message: its own run failed because of it, later runs must not
            content.append(UNREADABLE_PICTURE)
    return messages.UserPromptPart(content=content)


def _replace_blank(text: str) -> str:
    return text if text.strip() else NOTHING


def _pair_calls_with_results(conversation: Sequence[engine.Message]) -> Iterator[engine.Message]:
    """Yields each assistant message with the results of its calls right behind it, all of them and no others."""
    waiting: dict[str, str] = {}
    for message in conversation:
        if message.role == "tool":
            if message.call_id in waiting:
                del waiting[message.call_id]
                yield message
            continue
        yield from _make_missing_results(waiting.items())
        waiting = {call.call_id: call.tool for call in message.calls}
        yield message
    yield from _make_missing_results(waiting.items())


def _make_missing_results(calls: Iterable[tuple[str, str]]) -> Iterator[engine.Message]:
    for call_id, tool in calls:
        yield engine.Message(role="tool", text=NOT_RUN, call_id=call_id, tool=tool, is_error=True)
