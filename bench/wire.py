"""The bytes of one streamed run, as the daemon would send and store them, for baselines that only move bytes."""

import itertools
import re

from switchtower.core import codec, events
from switchtower.core.ports import journal
from switchtower.protocols.push import encoder

SESSION_ID = "sess_01JCQ0000000000000000000000"
RUN_ID = "run_01JCQ0000000000000000000000"
TS_MS = 1_760_000_000_000
TEXT = "lorem "


def make_entries(deltas: int) -> list[journal.Entry]:
    """A whole session: started, a run, its text, its end."""
    who = events.SYSTEM
    started = events.SessionStarted(
        engine="agent",
        mode="interactive",
        provider="demo",
        sandbox="local",
        workspace=events.Workspace("/tmp"),
        by=who,
        attach_token_sha256="0" * 64,
    )
    story: list[tuple[str | None, events.AnyEvent]] = [
        (None, started),
        (RUN_ID, events.RunStarted("stream", who)),
        *((RUN_ID, delta) for delta in [events.TextDelta(TEXT)] * deltas),
        (RUN_ID, events.RunCompleted(events.Outcome.SUCCESS, "done", 0)),
    ]
    return [
        journal.Entry(seq, TS_MS, run_id, event.kind, codec.encode(event)) for seq, (run_id, event) in enumerate(story, start=1)
    ]


def make_batches(batches: list[int]) -> list[list[journal.Entry]]:
    """The text and the end of a run, in batches of these sizes."""
    whole = iter(make_entries(sum(batches) - 1)[2:])
    return [list(itertools.islice(whole, size)) for size in batches]


def make_frames(batches: list[int]) -> list[list[bytes]]:
    return [encoder.encode_batch(SESSION_ID, batch) for batch in make_batches(batches)]


def make_rows(batches: list[int]) -> list[list[tuple[object, ...]]]:
    return [[(1, *entry) for entry in batch] for batch in make_batches(batches)]


def make_canned_answer(request: bytes) -> bytes:
    """Enough of an answer for a load to go on."""
    named = re.search(rb'"requestId":"[^"]+"', request)
    assert named, "a request has an id"
    return b'{%b,"sessionId":"%b","ok":true,"payload":{},"error":null}' % (named[0], SESSION_ID.encode())
