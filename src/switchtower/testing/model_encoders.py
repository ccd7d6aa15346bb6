"""Encodes scripted replies as the streams of Anthropic's messages API, Google's streamGenerateContent and OpenAI's chat
completions API, in the small pieces of a real stream. Pure: steps in, bytes out.
"""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

from switchtower.testing import model_script as script

_ARGUMENTS_PIECE = 7


def split_text(text: str, size: int) -> Iterator[str]:
    """Splits a text into pieces of this many characters; with 0, into words with the blanks around them."""
    if size:
        return (text[start : start + size] for start in range(0, len(text), size))
    return (found.group() for found in re.finditer(r"\s*\S+\s*|\s+\Z", text))


def split_arguments(args: dict[str, Any] | str) -> Iterator[str]:
    return split_text(args if isinstance(args, str) else json.dumps(args), _ARGUMENTS_PIECE)


ANTHROPIC_PATH_END = "/v1/messages"


class AnthropicReplyEncoder:
    def __init__(self, reply: script.ScriptedReply) -> None:
        self._reply = reply
        self._block = -1
        self._calls = 0

    def begin(self) -> Iterator[bytes]:
        usage = self._reply.usage or script.ScriptedUsage(0, 0)
        counted = {
            "input_tokens": usage.input,
            "cache_read_input_tokens": usage.cache_read,
            "cache_creation_input_tokens": usage.cache_write,
            "output_tokens": 1,
        }
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": self._reply.model, "content": []}
        yield _encode_anthropic_event(
            "message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": counted}
        )

    def encode_text(self, step: script.TextStep) -> Iterator[bytes]:
        deltas = ({"type": "text_delta", "text": piece} for piece in split_text(step.text, step.piece))
        yield from self._encode_content({"type": "text", "text": ""}, deltas)

    def encode_thinking(self, step: script.ThinkingStep) -> Iterator[bytes]:
        def deltas() -> Iterator[dict[str, Any]]:
            for piece in split_text(step.text, 0):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": step.signature}

        yield from self._encode_content({"type": "thinking", "thinking": "", "signature": ""}, deltas())

    def encode_call(self, step: script.CallStep) -> Iterator[bytes]:
        self._calls += 1
        block = {"type": "tool_use", "id": f"toolu_{self._calls}", "name": step.tool, "input": {}}
        deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in split_arguments(step.args))
        yield from self._encode_content(block, deltas)

    def encode_ping(self) -> Iterator[bytes]:
        yield _encode_anthropic_event("ping")

    def encode_failure(self, step: script.FailStep) -> Iterator[bytes]:
        yield _encode_anthropic_event("error", error={"type": step.type, "message": step.message})

    def end(self) -> Iterator[bytes]:
        finish = self._reply.finish or ("tool_use" if self._calls else "end_turn")
        output = self._reply.usage.output if self._reply.usage else 0
        yield _encode_anthropic_event(
            "message_delta", delta={"stop_reason": finish, "stop_sequence": None}, usage={"output_tokens": output}
        )
        yield _encode_anthropic_event("message_stop")

    def _encode_content(self, block: dict[str, Any], deltas: Iterator[dict[str, Any]]) -> Iterator[bytes]:
        self._block += 1
        yield _encode_anthropic_event("content_block_start", index=self._block, content_block=block)
        for delta in deltas:
            yield _encode_anthropic_event("content_block_delta", index=self._block, delta=delta)
        yield _encode_anthropic_event("content_block_stop", index=self._block)


def encode_anthropic_error(refusal: script.ScriptedRefusal) -> dict[str, Any]:
    return {"type": "error", "error": {"type": refusal.type, "message": refusal.message}}


def _encode_anthropic_event(kind: str, **content: Any) -> bytes:
    return f"event: {kind}\ndata: ".encode() + json.dumps({"type": kind, **content}, separators=(",", ":")).encode() + b"\n\n"


GOOGLE_PATH_END = ":streamGenerateContent"


class GoogleReplyEncoder:
    def __init__(self, reply: script.ScriptedReply) -> None:
        self._reply = reply

    def begin(self) -> Iterator[bytes]:
        return iter(())

    def encode_text(self, step: script.TextStep) -> Iterator[bytes]:
        for piece in split_text(step.text, step.piece):
            yield self._encode_chunk({"text": piece})

    def encode_thinking(self, step: script.ThinkingStep) -> Iterator[bytes]:
        for piece in split_text(step.text, 0):
            yield self._encode_chunk({"text": piece, "thought": True})

    def encode_call(self, step: script.CallStep) -> Iterator[bytes]:
        # Google sends arguments whole and parsed, so a text that is not JSON cannot be sent.
        args = json.loads(step.args) if isinstance(step.args, str) else step.args
        part: dict[str, Any] = {"functionCall": {"name": step.tool, "args": args}}
        if step.details:
            part["thoughtSignature"] = base64.b64encode(json.dumps(step.details).encode()).decode()
        yield self._encode_chunk(part)

    def encode_ping(self) -> Iterator[bytes]:
        yield b": ping\n\n"

    def encode_failure(self, step: script.FailStep) -> Iterator[bytes]:
        yield _encode_google_event({"error": {"code": 503, "message": step.message, "status": step.type}})

    def end(self) -> Iterator[bytes]:
        candidate = {
            "content": {"role": "model", "parts": [{"text": ""}]},
            "finishReason": self._reply.finish or "STOP",
            "index": 0,
        }
        last: dict[str, Any] = {"candidates": [candidate], "modelVersion": self._reply.model, "responseId": "resp_1"}
        if (usage := self._reply.usage) is not None:
            going_in = usage.input + usage.cache_read
            last["usageMetadata"] = {
                "promptTokenCount": going_in,
                "cachedContentTokenCount": usage.cache_read,
                "candidatesTokenCount": usage.output,
                "totalTokenCount": going_in + usage.output,
            }
        yield _encode_google_event(last)

    def _encode_chunk(self, part: dict[str, Any]) -> bytes:
        candidate = {"content": {"role": "model", "parts": [part]}, "index": 0}
        return _encode_google_event({"candidates": [candidate], "modelVersion": self._reply.model, "responseId": "resp_1"})


def encode_google_error(refusal: script.ScriptedRefusal) -> dict[str, Any]:
    return {"error": {"code": refusal.status, "message": refusal.message, "status": refusal.code or "UNKNOWN"}}


def _encode_google_event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\r\n\r\n"


OPENAI_PATH_END = "/chat/completions"


class OpenAIReplyEncoder:
    def __init__(self, reply: script.ScriptedReply) -> None:
        self._reply = reply
        self._calls = 0

    def begin(self) -> Iterator[bytes]:
        yield self._encode_chunk({"role": "assistant", "content": ""})

    def encode_text(self, step: script.TextStep) -> Iterator[bytes]:
        for piece in split_text(step.text, step.piece):
            yield self._encode_chunk({"content": piece})

    def encode_thinking(self, step: script.ThinkingStep) -> Iterator[bytes]:
        for piece in split_text(step.text, 0):
            yield self._encode_chunk({"reasoning_content": piece})

    def encode_call(self, step: script.CallStep) -> Iterator[bytes]:
        index, self._calls = self._calls, self._calls + 1
        extra = {"extra_content": step.details} if step.details else {}
        opening = {"index": index, "id": f"call_{index}", "type": "function", **extra}
        yield self._encode_chunk({"tool_calls": [{**opening, "function": {"name": step.tool, "arguments": ""}}]})
        for piece in split_arguments(step.args):
            yield self._encode_chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})

    def encode_ping(self) -> Iterator[bytes]:
        yield b": ping\n\n"

    def encode_failure(self, step: script.FailStep) -> Iterator[bytes]:
        yield _encode_openai_event({"error": {"message": step.message, "type": step.type, "code": step.type}})

    def end(self) -> Iterator[bytes]:
        yield self._encode_chunk({}, finish=self._reply.finish or ("tool_calls" if self._calls else "stop"))
        if (usage := self._reply.usage) is not None:
            going_in = usage.input + usage.cache_read + usage.cache_write
            counted = {
                "prompt_tokens": going_in,
                "completion_tokens": usage.output,
                "total_tokens": going_in + usage.output,
                "prompt_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
            }
            yield _encode_openai_event({**self._make_frame(), "choices": [], "usage": counted})
        yield b"data: [DONE]\n\n"

    def _encode_chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        return _encode_openai_event({**self._make_frame(), "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def _make_frame(self) -> dict[str, Any]:
        # `provider` is OpenRouter's; other servers leave it out, and clients ignore it.
        model = self._reply.model
        return {"id": "cmpl_1", "object": "chat.completion.chunk", "created": 1, "model": model, "provider": "script"}


def encode_openai_error(refusal: script.ScriptedRefusal) -> dict[str, Any]:
    return {"error": {"message": refusal.message, "type": refusal.type, "code": refusal.code, "param": None}}


def _encode_openai_event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n"
