"""Converts one message of a pi session file to an imported message. Pure; every claim of a file is checked.

Roles that only pi's own programs know become user messages for the model, as they do in pi; pi's clients see the role again.
"""

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from switchtower.core import events
from switchtower.core.ports import engine

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS = 253_402_300_799_999
"""The last moment of the calendar."""
_STOP_REASONS = ("stop", "length", "toolUse", "error", "aborted")


def convert_message(value: object, at_ms: int) -> events.MessageImported | None:
    """Returns None when the message has nothing for a model. Raises `ValueError` for a value that is not a message."""
    if not isinstance(value, dict):
        raise ValueError("a message is an object")
    at_ms = parse_milliseconds(value.get("timestamp"), at_ms)
    match value.get("role"):
        case "user" | "custom" | "hookMessage":
            return make_user_message(value.get("content"), at_ms)
        case "assistant":
            return _convert_assistant(value, at_ms)
        case "toolResult":
            return _convert_tool_result(value, at_ms)
        case "bashExecution":
            return _convert_bash(value, at_ms)
        case "branchSummary":
            return make_summary_message(value.get("summary"), at_ms)
        case "compactionSummary":
            return make_summary_message(value.get("summary"), at_ms, value.get("tokensBefore", 0))
        case role:
            raise ValueError(f"no role: {type(role).__name__}")


def make_user_message(content: object, at_ms: int) -> events.MessageImported | None:
    text, images = _join_text(content), _extract_images(content)
    return events.MessageImported(role="user", text=text, at_ms=at_ms, images=images) if text or images else None


def make_summary_message(text: object, at_ms: int, tokens_before: object = None) -> events.MessageImported | None:
    """Makes the summary of a compaction when `tokens_before` is given, otherwise that of a branch."""
    if not isinstance(text, str) or not text:
        return None
    told = f"{engine.SUMMARY_HEADING}\n\n{text}"
    if tokens_before is None:
        return events.MessageImported(role="user", text=told, at_ms=at_ms)
    origin = {"role": "compactionSummary", "summary": text, "tokensBefore": _parse_count(tokens_before)}
    return events.MessageImported(role="user", text=told, at_ms=at_ms, origin=origin)


def parse_milliseconds(value: object, otherwise: int) -> int:
    """Parses a moment as pi writes it: milliseconds in messages, ISO 8601 in entries."""
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


def _convert_assistant(value: dict[str, Any], at_ms: int) -> events.MessageImported | None:
    content = value.get("content")
    thinking = "".join(_iterate_strings(content, "thinking", "thinking"))
    # The calls of a message that was broken off were never run.
    calls = () if value.get("stopReason") in ("error", "aborted") else tuple(_iterate_calls(content))
    text = _join_text(content, between="")
    origin, usage = _read_origin(value), _convert_usage(value)
    if not (text or calls or "errorMessage" in origin):
        return None
    return events.MessageImported(
        role="assistant", text=text, at_ms=at_ms, thinking=thinking, calls=calls, usage=usage, origin=origin
    )


def _read_origin(value: dict[str, Any]) -> dict[str, Any]:
    """Returns the message's model and its stop reason in pi's terms, as far as the file has them."""
    origin = {name: value[name] for name in ("api", "provider", "model", "errorMessage") if _is_text(value.get(name))}
    if value.get("stopReason") in _STOP_REASONS:
        origin["stopReason"] = value["stopReason"]
    if isinstance(found := value.get("usage"), dict):
        counts = {name: _parse_count(found.get(name)) for name in ("input", "output", "cacheRead", "cacheWrite", "totalTokens")}
        cost: dict[str, Any] = found["cost"] if isinstance(found.get("cost"), dict) else {}
        origin["usage"] = {
            **counts,
            "cost": {name: _parse_amount(cost.get(name)) for name in ("input", "output", "cacheRead", "cacheWrite", "total")},
        }
    return origin


def _convert_usage(value: dict[str, Any]) -> events.UsageReported | None:
    found = _read_origin(value).get("usage")
    if found is None:
        return None
    cached = found["cacheRead"] + found["cacheWrite"]
    return events.UsageReported(
        provider=str(value.get("provider") or ""),
        model=str(value.get("model") or ""),
        input_tokens=found["input"] + cached,
        output_tokens=found["output"],
        cache_read_tokens=found["cacheRead"],
        cache_write_tokens=found["cacheWrite"],
        cost=found["cost"]["total"],
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _parse_count(value: object) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def _parse_amount(value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < 2**53 else 0.0  # type: ignore[operator, arg-type]


def _iterate_calls(content: object) -> Iterator[events.ToolRequest]:
    for block in _iterate_blocks(content, "toolCall"):
        call_id, name, arguments = block.get("id"), block.get("name"), block.get("arguments")
        if isinstance(call_id, str) and call_id and isinstance(name, str) and name:
            yield events.ToolRequest(call_id=call_id, tool=name, args=arguments if isinstance(arguments, dict) else {})


def _convert_tool_result(value: dict[str, Any], at_ms: int) -> events.MessageImported:
    call_id, name, content = value.get("toolCallId"), value.get("toolName"), value.get("content")
    if not isinstance(call_id, str) or not call_id:
        raise ValueError("a result of no call")
    return events.MessageImported(
        role="tool",
        text=_join_text(content),
        at_ms=at_ms,
        call_id=call_id,
        tool=name if isinstance(name, str) else None,
        is_error=value.get("isError") is True,
        images=_extract_images(content),
    )


def _convert_bash(value: dict[str, Any], at_ms: int) -> events.MessageImported | None:
    command, output = value.get("command"), value.get("output")
    if not isinstance(command, str):
        raise ValueError("no command")
    origin: dict[str, Any] = {
        "role": "bashExecution",
        "command": command,
        "output": output if isinstance(output, str) else "",
        "cancelled": value.get("cancelled") is True,
        "truncated": value.get("truncated") is True,
    }
    if isinstance(code := value.get("exitCode"), int) and not isinstance(code, bool) and abs(code) < 2**53:
        origin["exitCode"] = code
    if value.get("excludeFromContext") is True:
        return events.MessageImported(role="user", text="", at_ms=at_ms, origin={**origin, "excludeFromContext": True})
    shown = output if isinstance(output, str) and output else "(no output)"
    ended = "It was cancelled." if value.get("cancelled") is True else f"Exit code: {value.get('exitCode')}"
    text = f"I ran `{command}`:\n\n{shown}\n\n{ended}"
    return events.MessageImported(role="user", text=text, at_ms=at_ms, origin=origin)


def _join_text(content: object, between: str = "\n") -> str:
    return content if isinstance(content, str) else between.join(_iterate_strings(content, "text", "text"))


def _extract_images(content: object) -> tuple[events.Image, ...]:
    found = []
    for block in _iterate_blocks(content, "image"):
        data, media_type = block.get("data"), block.get("mimeType")
        if isinstance(data, str) and isinstance(media_type, str):
            found.append(events.Image(media_type, data))
    return tuple(found)


def _iterate_strings(content: object, type_: str, field: str) -> Iterator[str]:
    for block in _iterate_blocks(content, type_):
        text = block.get(field)
        if isinstance(text, str):
            yield text


def _iterate_blocks(content: object, type_: str) -> Iterator[dict[str, Any]]:
    if isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") == type_:
                yield block
