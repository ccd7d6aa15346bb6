"""What the document asks of clients, shown with our client library at a daemon that says exactly what a test writes."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conformance import samples

from switchtower import config
from switchtower.client.subscription import SessionSubscription

CAPABILITIES: list[str] = []
HELLO = {"runtimeName": "pushd", "runtimeVersion": "9", "protocolVersion": "push.runtime.v1", "capabilities": CAPABILITIES}


@asynccontextmanager
async def serve_script(*events: dict[str, Any], gap: bool = False) -> AsyncIterator[config.Settings]:
    """A daemon that greets, attaches and sends these events."""
    answers = {
        "hello": HELLO,
        "attach_session": {
            "sessionId": "sess_01",
            "state": "running",
            "replay": {"fromSeq": 1, "toSeq": 9, "completed": True, "gap": gap},
        },
    }

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            request = json.loads(line)
            response = samples.make_response_frame(request["type"], answers[request["type"]], requestId=request["requestId"])
            following = events if request["type"] == "attach_session" else ()
            writer.write(b"".join(json.dumps(frame).encode() + b"\n" for frame in (response, *following)))
            await writer.drain()
        writer.close()

    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        settings = config.Settings(home=Path(home))
        settings.run_dir.mkdir(parents=True)
        server = await asyncio.start_unix_server(serve, settings.socket)
        try:
            yield settings
        finally:
            server.close()


def make_token(seq: int) -> dict[str, Any]:
    return samples.make_event_frame("assistant_token", {"text": str(seq)}, seq=seq)


async def collect_events(settings: config.Settings, count: int, last_seen_seq: int = 0) -> list[tuple[int, str]]:
    session = SessionSubscription(settings, "sess_01", last_seen_seq=last_seen_seq)
    found: list[tuple[int, str]] = []
    async with asyncio.timeout(60):
        async for event in session.stream_events():
            found.append((event.seq, event.type))
            if len(found) == count:
                break
    return found


@pytest.mark.requirement("push:event:clients-dedupe")
async def test_our_client_takes_each_number_once() -> None:
    async with serve_script(*map(make_token, [1, 1, 2, 1, 2, 3, 3, 4])) as settings:
        assert await collect_events(settings, 4) == [(number, "assistant_token") for number in (1, 2, 3, 4)]


@pytest.mark.requirement("push:version:unknown-events-ignored")
async def test_our_client_passes_over_events_of_unknown_types() -> None:
    unknown = samples.make_event_frame("from_the_future", {"a": 1}, seq=2, unknown=True)
    async with serve_script(make_token(1), unknown, make_token(3)) as settings:
        assert await collect_events(settings, 2) == [(1, "assistant_token"), (3, "assistant_token")]


@pytest.mark.requirement("push:replay:snapshot-is-baseline")
async def test_our_client_takes_a_snapshot_for_a_fresh_baseline_even_a_lower_one() -> None:
    warning = samples.make_event_frame("warning", samples.EVENTS["warning"], seq=4)
    snapshot = samples.make_event_frame("session_snapshot", samples.EVENTS["session_snapshot"], seq=5)
    async with serve_script(warning, snapshot, make_token(6), gap=True) as settings:
        expected = [(4, "warning"), (5, "session_snapshot"), (6, "assistant_token")]
        assert await collect_events(settings, 3, last_seen_seq=1_000) == expected


@pytest.mark.requirement("push:client:accepts-what-is-allowed")
@pytest.mark.parametrize("type_", sorted(samples.EVENTS))
async def test_our_client_reads_events_with_ids_and_words_of_any_shape(type_: str) -> None:
    def reshaped(value: Any) -> Any:
        if isinstance(value, dict):
            return {**{name: reshaped(inner) for name, inner in value.items()}, "fromTheFuture": [None]}
        if isinstance(value, list):
            return [reshaped(inner) for inner in value]
        return "of any shape" if isinstance(value, str) else value

    odd = samples.make_event_frame(type_, reshaped(samples.EVENTS[type_]), seq=1, runId="7", extra={})
    async with serve_script(odd, make_token(2)) as settings:
        assert await collect_events(settings, 2) == [(1, type_), (2, "assistant_token")]


@pytest.mark.requirement("push:client:accepts-what-is-allowed")
async def test_our_client_reads_a_snapshot_and_a_question_without_what_is_optional() -> None:
    meta = {"provider": "ollama", "sandboxProvider": "local"}
    snapshot = samples.make_event_frame("session_snapshot", {"state": "idle", "pendingApproval": None, "meta": meta}, seq=1)
    complete = samples.make_event_frame("run_complete", {"runId": "run_01", "outcome": "success", "summary": ""}, seq=2)
    async with serve_script(snapshot, complete) as settings:
        assert await collect_events(settings, 2) == [(1, "session_snapshot"), (2, "run_complete")]
