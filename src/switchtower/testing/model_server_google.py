"""How Google's streamGenerateContent spells a scripted reply. Pure: steps in, bytes out."""

import base64
import json
from collections.abc import Iterator
from typing import Any

from switchtower.testing import model_server_pieces as pieces
from switchtower.testing import model_server_script as script

GOOGLE_PATH_END = ":streamGenerateContent"


class GoogleReplyEncoder:
    def __init__(self, reply: script.ScriptedReply) -> None:
        self._reply = reply

    def begin(self) -> Iterator[bytes]:
        return iter(())

    def encode_text(self, step: script.TextStep) -> Iterator[bytes]:
        for piece in pieces.split_text(step.text, step.piece):
            yield self._encode_chunk({"text": piece})

    def encode_thinking(self, step: script.ThinkingStep) -> Iterator[bytes]:
        for piece in pieces.split_text(step.text, 0):
            yield self._encode_chunk({"text": piece, "thought": True})

    def encode_call(self, step: script.CallStep) -> Iterator[bytes]:
        # Google sends arguments whole and parsed, so a text that is no JSON cannot be sent.
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
