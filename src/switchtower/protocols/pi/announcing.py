"""Frames for everybody that are about no command: the server's own state, and sessions that came or went."""

from msgspec import json

from switchtower.protocols.pi import messages
from switchtower.protocols.pi.view import shapes

_encode_announcement = json.Encoder().encode


def encode_server_ready(version: str) -> bytes:
    """pi-server 16.1: the first frame of every connection."""
    data = {
        "serverVersion": version,
        "protocolVersion": messages.PROTOCOL_VERSION,
        "transports": ["websocket", "stdio"],
    }
    return _encode_announcement({"type": "server_ready", "data": data})


def encode_server_shutdown(timeout_ms: int) -> bytes:
    return _encode_announcement({"type": "server_shutdown", "data": {"reason": "graceful_shutdown", "timeoutMs": timeout_ms}})


def encode_session_created(info: shapes.SessionInfo) -> bytes:
    return _encode_announcement({"type": "session_created", "data": {"sessionId": info.sessionId, "sessionInfo": info}})


def encode_session_deleted(session_id: str) -> bytes:
    return _encode_announcement({"type": "session_deleted", "data": {"sessionId": session_id}})
