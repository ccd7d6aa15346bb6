"""One message of a pi session file, as a message that was said elsewhere. Pure; whatever a file claims is looked at twice.

Roles that only pi's own programs know become user messages, as they are for the model there.
"""

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from switchtower.core import engine, events

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS = 253_402_300_799_999
"""The end of the calendar."""


def message(said: object, at_ms: int) -> events.MessageImported | None:
    """None when there is nothing in it that a model could be told. Raises `ValueError` for what is no message at all."""
    if not isinstance(said, dict):
        raise ValueError("a message is an object")
    at_ms = milliseconds(said.get("timestamp"), at_ms)
    match said.get("role"):
        case "user" | "custom" | "hookMessage":
            return user(said.get("content"), at_ms)
        case "assistant":
            return _assistant(said, at_ms)
        case "toolResult":
            return _tool_result(said, at_ms)
        case "bashExecution":
            return _bash(said, at_ms)
        case "branchSummary" | "compactionSummary":
            return summary(said.get("summary"), at_ms)
        case role:
            raise ValueError(f"no role: {type(role).__name__}")


def user(content: object, at_ms: int) -> events.MessageImported | None:
    text, images = _text(content), _images(content)
    return events.MessageImported(role="user", text=text, at_ms=at_ms, images=images) if text or images else None


def summary(text: object, at_ms: int) -> events.MessageImported | None:
    if not isinstance(text, str) or not text:
        return None
    return events.MessageImported(role="user", text=f"{engine.SUMMARY_HEADING}\n\n{text}", at_ms=at_ms)


def milliseconds(value: object, otherwise: int) -> int:
    """A moment as pi writes them: milliseconds in messages, ISO 8601 in entries."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 <= value <= _LATEST_MS:
        return int(value)
    if isinstance(value, str) and len(value) <= 40:
        try:
            moment = datetime.fromisoformat(value)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return min(max(0, (moment - _EPOCH) // timedelta(milliseconds=1)), _LATEST_MS)
        except (ValueError, OverflowError):
            pass
    return otherwise


def _assistant(said: dict[str, Any], at_ms: int) -> events.MessageImported | None:
    content = said.get("content")
    thinking = "".join(_strings(content, "thinking", "thinking"))
    # A message that was broken off is no promise: nobody has run its calls.
    calls = () if said.get("stopReason") in ("error", "aborted") else tuple(_calls(content))
    text = _text(content, between="")
    if not (text or calls):
        return None
    return events.MessageImported(role="assistant", text=text, at_ms=at_ms, thinking=thinking, calls=calls)


def _calls(content: object) -> Iterator[events.ToolRequest]:
    for block in _blocks(content, "toolCall"):
        call_id, name, arguments = block.get("id"), block.get("name"), block.get("arguments")
        if isinstance(call_id, str) and call_id and isinstance(name, str) and name:
            yield events.ToolRequest(call_id=call_id, tool=name, args=arguments if isinstance(arguments, dict) else {})


def _tool_result(said: dict[str, Any], at_ms: int) -> events.MessageImported:
    call_id, name, content = said.get("toolCallId"), said.get("toolName"), said.get("content")
    if not isinstance(call_id, str) or not call_id:
        raise ValueError("a result of no call")
    return events.MessageImported(
        role="tool",
        text=_text(content),
        at_ms=at_ms,
        call_id=call_id,
        tool=name if isinstance(name, str) else None,
        is_error=said.get("isError") is True,
        images=_images(content),
    )


def _bash(said: dict[str, Any], at_ms: int) -> events.MessageImported | None:
    command, output = said.get("command"), said.get("output")
    if said.get("excludeFromContext") is True:
        return None
    if not isinstance(command, str):
        raise ValueError("no command")
    shown = output if isinstance(output, str) and output else "(no output)"
    ended = "It was cancelled." if said.get("cancelled") is True else f"Exit code: {said.get('exitCode')}"
    return events.MessageImported(role="user", text=f"I ran `{command}`:\n\n{shown}\n\n{ended}", at_ms=at_ms)


def _text(content: object, between: str = "\n") -> str:
    return content if isinstance(content, str) else between.join(_strings(content, "text", "text"))


def _images(content: object) -> tuple[events.Image, ...]:
    found = []
    for block in _blocks(content, "image"):
        data, media_type = block.get("data"), block.get("mimeType")
        if isinstance(data, str) and isinstance(media_type, str):
            found.append(events.Image(media_type, data))
    return tuple(found)


def _strings(content: object, type_: str, field: str) -> Iterator[str]:
    for block in _blocks(content, type_):
        text = block.get(field)
        if isinstance(text, str):
            yield text


def _blocks(content: object, type_: str) -> Iterator[dict[str, Any]]:
    if isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") == type_:
                yield block
