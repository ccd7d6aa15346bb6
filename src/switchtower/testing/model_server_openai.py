"""How OpenAI's chat completions API spells a scripted reply. Pure: steps in, bytes out."""

import json
from collections.abc import Iterator
from typing import Any

from switchtower.testing import model_server_pieces as pieces
from switchtower.testing import model_server_script as script

OPENAI_PATH_END = "/chat/completions"


class OpenAIReplyEncoder:
    def __init__(self, reply: script.ScriptedReply) -> None:
        self._reply = reply
        self._calls = 0

    def begin(self) -> Iterator[bytes]:
        yield self._encode_chunk({"role": "assistant", "content": ""})

    def encode_text(self, step: script.TextStep) -> Iterator[bytes]:
        for piece in pieces.split_text(step.text, step.piece):
            yield self._encode_chunk({"content": piece})

    def encode_thinking(self, step: script.ThinkingStep) -> Iterator[bytes]:
        for piece in pieces.split_text(step.text, 0):
            yield self._encode_chunk({"reasoning_content": piece})

    def encode_call(self, step: script.CallStep) -> Iterator[bytes]:
        index, self._calls = self._calls, self._calls + 1
        extra = {"extra_content": step.details} if step.details else {}
        opening = {"index": index, "id": f"call_{index}", "type": "function", **extra}
        yield self._encode_chunk({"tool_calls": [{**opening, "function": {"name": step.tool, "arguments": ""}}]})
        for piece in pieces.split_arguments(step.args):
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
        # `provider` is OpenRouter's; others leave it out and nobody minds it.
        model = self._reply.model
        return {"id": "cmpl_1", "object": "chat.completion.chunk", "created": 1, "model": model, "provider": "script"}


def encode_openai_error(refusal: script.ScriptedRefusal) -> dict[str, Any]:
    return {"error": {"message": refusal.message, "type": refusal.type, "code": refusal.code, "param": None}}


def _encode_openai_event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n"
