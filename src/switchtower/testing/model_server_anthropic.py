"""How Anthropic's messages API spells a scripted reply. Pure: steps in, bytes out."""

import json
from collections.abc import Iterator
from typing import Any

from switchtower.testing import model_server_pieces as pieces
from switchtower.testing import model_server_script as script

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
        deltas = ({"type": "text_delta", "text": piece} for piece in pieces.split_text(step.text, step.piece))
        yield from self._encode_content({"type": "text", "text": ""}, deltas)

    def encode_thinking(self, step: script.ThinkingStep) -> Iterator[bytes]:
        def deltas() -> Iterator[dict[str, Any]]:
            for piece in pieces.split_text(step.text, 0):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": step.signature}

        yield from self._encode_content({"type": "thinking", "thinking": "", "signature": ""}, deltas())

    def encode_call(self, step: script.CallStep) -> Iterator[bytes]:
        self._calls += 1
        block = {"type": "tool_use", "id": f"toolu_{self._calls}", "name": step.tool, "input": {}}
        deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces.split_arguments(step.args))
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
