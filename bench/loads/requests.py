"""Push requests as bytes. Written out by hand: a load must not share its encoder with what it measures."""

import json
from typing import Any


def request(number: int, type_: str, payload: dict[str, Any], session_id: str | None = None) -> bytes:
    envelope: dict[str, Any] = {"v": "push.runtime.v1", "kind": "request", "requestId": f"req_{number}", "type": type_}
    if session_id is not None:
        envelope["sessionId"] = session_id
    return json.dumps(envelope | {"payload": payload}, separators=(",", ":")).encode()


def start_session(number: int) -> bytes:
    repo = {"rootPath": "/tmp", "currentBranch": "main", "defaultBranch": "main"}
    payload = {"mode": "interactive", "provider": "demo", "sandboxProvider": "local", "repo": repo}
    return request(number, "start_session", payload)


def send(number: int, session_id: str, text: str) -> bytes:
    return request(number, "send_user_message", {"clientMessageId": f"msg_{number}", "text": text}, session_id)


def attach(number: int, session_id: str, last_seen_seq: int) -> bytes:
    return request(number, "attach_session", {"sessionId": session_id, "lastSeenSeq": last_seen_seq}, session_id)
