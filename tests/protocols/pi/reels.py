"""Runs to be told to pi's clients: events with their places, and what comes of them in short."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from switchtower.core import codec, events, journal
from switchtower.protocols.pi.view import reel
from switchtower.protocols.pi.view.footage import Reel
from switchtower.protocols.pi.view.streaming import MOST_CALLS_LISTED, Cast

SESSION, RUN = "sess_01JCQREEL", "run_01JCQREEL"
START_MS = 1_760_000_000_000
OWNER = events.Actor(name="owner", via="app")
CAST = Cast(provider="openai", model="gpt-6.1-terra", api="openai-completions")
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


def entries_of(told: Iterable[events.AnyEvent]) -> list[journal.Entry]:
    return [journal.Entry(seq, START_MS + seq, RUN, event.kind, codec.encode(event)) for seq, event in enumerate(told, start=1)]


def told(*happened: events.AnyEvent, state: Reel | None = None) -> list[dict[str, Any]]:
    """The events of the frames for these."""
    frames, _ = reel.translate(state or Reel.empty(), SESSION, entries_of(happened), CAST)
    return events_in(frames)


def after(*happened: events.AnyEvent) -> Reel:
    return reel.translate(Reel.empty(), SESSION, entries_of(happened), CAST)[1]


def events_in(frames: Sequence[bytes]) -> list[dict[str, Any]]:
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
        assert place >= MOST_CALLS_LISTED


def in_short(happened: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each event: its type, and whose message or what update it is."""
    return [" ".join([event["type"], *_remarks(event)]) for event in happened]


def _remarks(event: dict[str, Any]) -> list[str]:
    if event["type"] == "message_update":
        return [event["assistantMessageEvent"]["type"]]
    if event["type"] in ("message_start", "message_end"):
        message = event["message"]
        return [message["role"], *([message["stopReason"]] if event["type"] == "message_end" and "stopReason" in message else [])]
    return []


def only(happened: Sequence[dict[str, Any]], type_: str) -> list[dict[str, Any]]:
    return [event for event in happened if event["type"] == type_]
