"""Runs to be told to pi's clients: events with their places, and what comes of them in short."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from switchtower.core import codec, events
from switchtower.core.ports import journal
from switchtower.protocols.pi import encoder
from switchtower.protocols.pi.stream_state import MAX_CALLS_LISTED, AssistantInfo, PiStreamState

SESSION, RUN = "sess_01JCQREEL", "run_01JCQREEL"
START_MS = 1_760_000_000_000
OWNER = events.Actor(name="owner", via="app")
CAST = AssistantInfo(provider="openai", model="gpt-6.1-terra", api="openai-completions")
USAGE = events.UsageReported(
    provider="openai", model="gpt-6.1-terra-0901", input_tokens=100, output_tokens=20, cache_read_tokens=60, cost=0.25
)
STARTED = events.RunStarted(text="hello", by=OWNER)
THINKING = events.PhaseChanged("Thinking")
SUCCESS = events.RunCompleted(outcome=events.Outcome.SUCCESS, summary="done", exit_code_hint=0)
READ = events.ToolRequest(call_id="call_1", tool="read_file", args={"path": "a.txt"})
RULE = events.Rule(effect="allow", tool="run", command="make *")
APPROVAL = events.Approval(
    id="appr_1",
    call_id="call_1",
    kind="exec",
    title="Run a command",
    summary="make test",
    details={"command": "make test", "cwd": "/work", "reason": "it runs a program"},
    expires_at_ms=START_MS + 60_000,
    fingerprint="f" * 64,
    rule=RULE,
)


def make_entries(told: Iterable[events.AnyEvent]) -> list[journal.Entry]:
    return [journal.Entry(seq, START_MS + seq, RUN, event.kind, codec.encode(event)) for seq, event in enumerate(told, start=1)]


def encode_entries(*happened: events.AnyEvent, state: PiStreamState | None = None) -> list[dict[str, Any]]:
    """The events of the frames for these."""
    frames, _ = encoder.encode_batch(state or PiStreamState.empty(), SESSION, make_entries(happened), CAST)
    return list_events(frames)


def fold_entries(*happened: events.AnyEvent) -> PiStreamState:
    return encoder.encode_batch(PiStreamState.empty(), SESSION, make_entries(happened), CAST)[1]


def list_events(frames: Sequence[bytes]) -> list[dict[str, Any]]:
    decoded = [json.loads(frame) for frame in frames]
    for frame in decoded:
        assert frame.keys() == {"type", "sessionId", "event"}
        assert (frame["type"], frame["sessionId"]) == ("event", SESSION)
        if frame["event"]["type"] == "message_update":
            _check_update(frame["event"])
    return [frame["event"] for frame in decoded]


def _check_update(event: dict[str, Any]) -> None:
    """pi's type has the message twice. Takes the second one out, so that tests need not repeat it."""
    message, update = event["message"], event["assistantMessageEvent"]
    assert update.pop("partial") == message
    place = update["contentIndex"]
    if place < len(message["content"]):
        kind = {"toolcall": "toolCall"}.get(update["type"].partition("_")[0], update["type"].partition("_")[0])
        assert message["content"][place]["type"] == kind, "the block is there from its start on"
    else:
        assert place >= MAX_CALLS_LISTED


def summarise_frames(happened: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each event: its type, and whose message or what update it is."""
    return [" ".join([event["type"], *_list_remarks(event)]) for event in happened]


def _list_remarks(event: dict[str, Any]) -> list[str]:
    if event["type"] == "message_update":
        return [event["assistantMessageEvent"]["type"]]
    if event["type"] in ("message_start", "message_end"):
        message = event["message"]
        return [message["role"], *([message["stopReason"]] if event["type"] == "message_end" and "stopReason" in message else [])]
    return []


def filter_by_type(happened: Sequence[dict[str, Any]], type_: str) -> list[dict[str, Any]]:
    return [event for event in happened if event["type"] == type_]
