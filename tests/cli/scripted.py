"""A daemon that says what a test tells it to, on the socket where commands look for one. Keeps what it was asked."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from switchtower import __version__
from switchtower.protocols.push import extension_messages

SESSION = "sess_01JZZZZZZZZZZZZZZZZZZZZZZZ"
RUN = "run_1"

Answer = dict[str, Any] | Callable[[dict[str, Any]], dict[str, Any]] | Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class ScriptedDaemonRefusal(Exception):
    def __init__(self, code: str, message: str = "No") -> None:
        super().__init__(message)
        self.code = code


class ScriptedDaemon:
    """`answers` are by request type: a payload, or a function of the request's payload. What has none is unknown to it."""

    def __init__(self, home: Path) -> None:
        self.capabilities = [*extension_messages.CAPABILITIES]
        self.version = __version__
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.journal: list[dict[str, Any]] = []
        self.state = "idle"
        self.pending: dict[str, Any] | None = None
        self.answers: dict[str, Answer] = {
            "hello": lambda _: {
                "runtimeName": "scripted",
                "runtimeVersion": self.version,
                "protocolVersion": "push.runtime.v1",
                "capabilities": self.capabilities,
            },
            "list_sessions": lambda _: {
                "sessions": [
                    {
                        "sessionId": SESSION,
                        "state": self.state,
                        "updatedAt": 1,
                        "repo": {"rootPath": "/w", "currentBranch": "main"},
                    }
                ]
            },
            "attach_session": self._answer_attach,
            "resume_session": self._answer_resume,
            "submit_approval": {"accepted": True},
            "list_terminals": {"terminals": []},
            "list_cards": {"cards": []},
            "list_approvals": lambda _: {"approvals": [self._list_pending_approvals()] if self.pending else []},
        }
        self.home = home
        self._socket = home / "run/pushd.sock"
        self._watchers: list[asyncio.StreamWriter] = []
        self.unwatched = asyncio.Event()
        """Somebody who watched has gone."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "ScriptedDaemon":
        self._socket.parent.mkdir()
        self._thread.start()
        opening = asyncio.start_unix_server(self._accept, self._socket, limit=2**24)
        asyncio.run_coroutine_threadsafe(opening, self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._socket.unlink(missing_ok=True)

    def list_requests(self, type: str) -> list[dict[str, Any]]:
        return [payload for asked, payload in self.requests if asked == type]

    def add_event(self, type: str, payload: dict[str, Any], *, run_id: str | None = RUN) -> None:
        """The next event of the session, for those who attach and those who have."""
        event = {
            "v": "push.runtime.v1",
            "kind": "event",
            "sessionId": SESSION,
            "seq": len(self.journal) + 1,
            "ts": 1,
            "type": type,
            "payload": payload,
        }
        self.journal.append(event if run_id is None else {**event, "runId": run_id})
        for writer in self._watchers:
            writer.write(json.dumps(self.journal[-1]).encode() + b"\n")

    def send_event(self, type: str, payload: dict[str, Any]) -> None:
        """As `happened`, from a test's own thread while commands are attached."""
        self._loop.call_soon_threadsafe(self.add_event, type, payload)

    def send_completion(self) -> None:
        self._loop.call_soon_threadsafe(self.add_completion)

    def add_status(self, phase: str, detail: str | None = None, *, source: str = "orchestrator") -> None:
        self.add_event("status", {"source": source, "phase": phase, **({} if detail is None else {"detail": detail})})

    def add_completion(self, outcome: str = "success", summary: str = "done", *, hint: int = 0) -> None:
        payload = {
            "runId": RUN,
            "outcome": outcome,
            "summary": summary,
            "acceptance": {"total": 0, "passed": 0, "results": []},
            "headless": {"exitCodeHint": hint},
        }
        self.add_event("run_complete", payload)

    def make_run_reply(self, *happening: Callable[[], None]) -> Callable[[dict[str, Any]], dict[str, Any]]:
        """An answer that starts a run in which all this happens at once, when it is watched."""

        def start(_: dict[str, Any]) -> dict[str, Any]:
            for happen in happening:
                happen()
            return {"runId": RUN, "accepted": True}

        return start

    def _answer_attach(self, payload: dict[str, Any]) -> dict[str, Any]:
        head = len(self.journal)
        replay = {"fromSeq": min(payload["lastSeenSeq"], head) + 1, "toSeq": head, "completed": True, "gap": False}
        return {"sessionId": SESSION, "state": self.state, "replay": replay}

    def _answer_resume(self, payload: dict[str, Any]) -> dict[str, Any]:
        snapshot = {
            "state": self.state,
            "activeRunId": RUN,
            "lastAssistantText": "",
            "pendingApproval": self.pending,
            "meta": {"provider": "demo", "sandboxProvider": "local"},
        }
        self.add_event("session_snapshot", snapshot, run_id=None)
        return self._answer_attach(payload)

    def _list_pending_approvals(self) -> dict[str, Any]:
        about = {"sessionId": SESSION, "runId": RUN, "sessionTitle": "", "rootPath": "/w", "host": None}
        return {**about, "approval": self.pending}

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            request = json.loads(line)
            type_, payload = request["type"], request["payload"]
            self.requests.append((type_, payload))
            response = {"v": "push.runtime.v1", "kind": "response", "requestId": request["requestId"], "type": type_}
            try:
                answer = await self._answer(type_, payload)
            except ScriptedDaemonRefusal as refusal:
                error = {"code": refusal.code, "message": str(refusal), "retryable": False}
                response |= {"ok": False, "payload": {}, "error": error}
            else:
                response |= {"ok": True, "payload": answer, "error": None}
            writer.write(json.dumps(response).encode() + b"\n")
            if type_ in ("attach_session", "resume_session") and response["ok"]:
                for event in self.journal[payload["lastSeenSeq"] :]:
                    writer.write(json.dumps(event).encode() + b"\n")
                self._watchers.append(writer)
        if writer in self._watchers:
            self._watchers.remove(writer)
            self.unwatched.set()
        writer.close()

    async def _answer(self, type_: str, payload: dict[str, Any]) -> dict[str, Any]:
        if type_ not in self.answers:
            raise ScriptedDaemonRefusal("UNSUPPORTED_REQUEST_TYPE", f"Unknown request type `{type_}`")
        answer = self.answers[type_]
        if isinstance(answer, dict):
            return answer
        given = answer(payload)
        return given if isinstance(given, dict) else await given


def make_approval_request(**details: Any) -> dict[str, Any]:
    """An open approval about these details."""
    return {
        "approvalId": "appr_1",
        "kind": "exec",
        "title": "Run a command",
        "summary": "make test",
        "details": details,
        "options": ["approve", "deny"],
        "expiresAt": 1,
    }


def make_refusal(code: str, message: str = "No") -> Callable[[dict[str, Any]], dict[str, Any]]:
    def refuse(_: dict[str, Any]) -> dict[str, Any]:
        raise ScriptedDaemonRefusal(code, message)

    return refuse
