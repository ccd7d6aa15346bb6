"""One message of a pi session file, as a message that was said elsewhere. Pure; whatever a file claims is looked at twice.

Roles that only pi's own programs know become user messages for the model, as they are there; pi's clients see the role again.
"""

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from switchtower.core import engine, events

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS = 253_402_300_799_999
"""The end of the calendar."""
_STOP_REASONS = ("stop", "length", "toolUse", "error", "aborted")


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
        case "branchSummary":
            return summary(said.get("summary"), at_ms)
        case "compactionSummary":
            return summary(said.get("summary"), at_ms, said.get("tokensBefore", 0))
        case role:
            raise ValueError(f"no role: {type(role).__name__}")


def user(content: object, at_ms: int) -> events.MessageImported | None:
    text, images = _text(content), _images(content)
    return events.MessageImported(role="user", text=text, at_ms=at_ms, images=images) if text or images else None


def summary(text: object, at_ms: int, tokens_before: object = None) -> events.MessageImported | None:
    """Of a compaction when it says how much it stands for, else of a branch."""
    if not isinstance(text, str) or not text:
        return None
    told = f"{engine.SUMMARY_HEADING}\n\n{text}"
    if tokens_before is None:
        return events.MessageImported(role="user", text=told, at_ms=at_ms)
    origin = {"role": "compactionSummary", "summary": text, "tokensBefore": _count(tokens_before)}
    return events.MessageImported(role="user", text=told, at_ms=at_ms, origin=origin)


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
    origin, usage = _spoken_by(said), _usage(said)
    if not (text or calls or "errorMessage" in origin):
        return None
    return events.MessageImported(
        role="assistant", text=text, at_ms=at_ms, thinking=thinking, calls=calls, usage=usage, origin=origin
    )


def _spoken_by(said: dict[str, Any]) -> dict[str, Any]:
    """Who said it and how it ended, as far as the file has it in pi's terms."""
    origin = {name: said[name] for name in ("api", "provider", "model", "errorMessage") if _is_text(said.get(name))}
    if said.get("stopReason") in _STOP_REASONS:
        origin["stopReason"] = said["stopReason"]
    if isinstance(found := said.get("usage"), dict):
        counts = {name: _count(found.get(name)) for name in ("input", "output", "cacheRead", "cacheWrite", "totalTokens")}
        cost: dict[str, Any] = found["cost"] if isinstance(found.get("cost"), dict) else {}
        origin["usage"] = {
            **counts,
            "cost": {name: _amount(cost.get(name)) for name in ("input", "output", "cacheRead", "cacheWrite", "total")},
        }
    return origin


def _usage(said: dict[str, Any]) -> events.UsageReported | None:
    found = _spoken_by(said).get("usage")
    if found is None:
        return None
    cached = found["cacheRead"] + found["cacheWrite"]
    return events.UsageReported(
        provider=str(said.get("provider") or ""),
        model=str(said.get("model") or ""),
        input_tokens=found["input"] + cached,
        output_tokens=found["output"],
        cache_read_tokens=found["cacheRead"],
        cache_write_tokens=found["cacheWrite"],
        cost=found["cost"]["total"],
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _count(value: object) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def _amount(value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < 2**53 else 0.0  # type: ignore[operator, arg-type]


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
    if not isinstance(command, str):
        raise ValueError("no command")
    origin: dict[str, Any] = {
        "role": "bashExecution",
        "command": command,
        "output": output if isinstance(output, str) else "",
        "cancelled": said.get("cancelled") is True,
        "truncated": said.get("truncated") is True,
    }
    if isinstance(code := said.get("exitCode"), int) and not isinstance(code, bool) and abs(code) < 2**53:
        origin["exitCode"] = code
    if said.get("excludeFromContext") is True:
        return events.MessageImported(role="user", text="", at_ms=at_ms, origin={**origin, "excludeFromContext": True})
    shown = output if isinstance(output, str) and output else "(no output)"
    ended = "It was cancelled." if said.get("cancelled") is True else f"Exit code: {said.get('exitCode')}"
    text = f"I ran `{command}`:\n\n{shown}\n\n{ended}"
    return events.MessageImported(role="user", text=text, at_ms=at_ms, origin=origin)


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
