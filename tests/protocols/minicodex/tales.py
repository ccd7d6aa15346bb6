"""Runs to be told to MiniCodex clients: events with their places, and a client that folds what it is told."""

from collections.abc import Iterable, Sequence
from typing import Any

from tests.protocols.minicodex import closed

from switchtower.core import codec, events, ids
from switchtower.core.ports import journal
from switchtower.protocols.minicodex import encoder
from switchtower.protocols.minicodex.encoder import MiniCodexStreamState

SESSION = "sess_01JCQ0TA0E"
START_MS = 1_760_000_000_000
RUN = ids.format_id("run", START_MS, 7)
RUN_UUID = str(ids.to_uuid(RUN))
OWNER = events.Actor(name="owner", via="web")
STARTED = events.RunStarted(text="hello", by=OWNER)
THINKING = events.PhaseChanged("Thinking")
CALL = events.ToolRequest(call_id="call_1", tool="docs_search", args={"query": "moss", "event_id": 1})
CALLED = events.ToolCalled("call_1", "docs_search", CALL.args)
FINISHED = events.ToolFinished("call_1", "docs_search", 3, "found")
APPROVAL = events.Approval(
    id="appr_1",
    call_id="call_1",
    kind="exec",
    title="Search",
    summary="moss",
    details={"command": "search moss"},
    expires_at_ms=START_MS + 60_000,
    fingerprint="f" * 64,
)
ASKED = events.ApprovalRequested(APPROVAL)


def make_run_completed(outcome: events.Outcome = events.Outcome.SUCCESS) -> events.RunCompleted:
    return events.RunCompleted(outcome, f"It was {outcome}", 0)


def make_entries(happened: Iterable[events.AnyEvent], *, run_id: str | None = RUN, first: int = 1) -> list[journal.Entry]:
    return [
        journal.Entry(seq, START_MS + seq, run_id, event.kind, codec.encode(event)) for seq, event in enumerate(happened, first)
    ]


def encode_entries(*happened: events.AnyEvent) -> list[dict[str, Any]]:
    frames, _ = encoder.encode_batch(MiniCodexStreamState.make_empty(), SESSION, make_entries(happened))
    return [closed.check(frame) for frame in frames]


def summarise_frames(told: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each frame: its type, and what matters in it."""
    return [" ".join([frame["type"], *_list_remarks(frame)]) for frame in told]


def _list_remarks(frame: dict[str, Any]) -> list[str]:
    match frame["type"]:
        case "run_status":
            return [frame["run_state"]["status"]]
        case "user_text" | "assistant_text" | "reasoning":
            return [frame["text"]]
        case "error":
            return [frame["code"]]
        case "approval_decision":
            return [frame["decision"]]
    return []


class FoldingClient:
    """Holds what it is told, and nothing that it works out for itself."""

    def __init__(self) -> None:
        self.transcript: list[dict[str, Any]] = []
        self._settled = 0
        """Items that no failed model call can void."""
        self.run_state: dict[str, Any] | None = None
        self.last_event_id: int | None = None
        self.active_run_id: str | None = None
        self.run_counter = 0

    def apply_frame(self, frame: bytes) -> None:
        told = closed.check(frame)
        assert self.last_event_id is None or told["event_id"] > self.last_event_id, "event ids are strictly monotonic"
        self.last_event_id = told["event_id"]
        if told["type"] == "error" and told["code"] == "RETRY":
            del self.transcript[self._settled :]
        if told["type"] in ("user_text", "assistant_text", "tool_call", "function_call_output", "reasoning"):
            self.transcript.append({name: value for name, value in told.items() if name not in ("event_id", "run_id", "ts")})
        if told["type"] not in ("assistant_text", "reasoning", "error") or told.get("code") == "RETRY":
            self._settled = len(self.transcript)
        if told["type"] == "run_status":
            self.run_state = told["run_state"]
            status = self.run_state["status"]
            self.run_counter += status == "starting"
            self.active_run_id = None if status in ("finished", "error") else self.run_state["run_id"]
        elif self.run_state is not None and told.get("run_id") == self.run_state["run_id"]:
            self.run_state = {**self.run_state, "last_event_id": told["event_id"]}

    def make_snapshot(self) -> dict[str, Any]:
        """As a snapshot says it."""
        session_state = {
            "session_id": SESSION,
            "version": "1.0.0",
            "capabilities": ["replay"],
            "last_event_id": self.last_event_id,
            "active_run_id": self.active_run_id,
            "run_counter": self.run_counter,
        }
        held: dict[str, Any] = {
            "type": "snapshot",
            "v": "1.0.0",
            "session_id": SESSION,
            "session_state": session_state,
            "run_state": self.run_state,
            "transcript": self.transcript,
            "event_id": self.last_event_id or 0,
        }
        return held
