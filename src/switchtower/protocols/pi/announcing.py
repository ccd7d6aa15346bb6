"""Frames for everybody that are about no command: the server's own state, and sessions that came or went."""

from msgspec import json

from switchtower.protocols.pi import messages
from switchtower.protocols.pi.view import shapes

encode = json.Encoder().encode


def server_ready(version: str) -> bytes:
    """pi-server 16.1: the first frame of every connection."""
    data = {
        "serverVersion": version,
        "protocolVersion": messages.PROTOCOL_VERSION,
        "transports": ["websocket", "stdio"],
    }
    return encode({"type": "server_ready", "data": data})


def server_shutdown(timeout_ms: int) -> bytes:
    return encode({"type": "server_shutdown", "data": {"reason": "graceful_shutdown", "timeoutMs": timeout_ms}})


def session_created(info: shapes.SessionInfo) -> bytes:
    return encode({"type": "session_created", "data": {"sessionId": info.sessionId, "sessionInfo": info}})


def session_deleted(session_id: str) -> bytes:
    return encode({"type": "session_deleted", "data": {"sessionId": session_id}})
