"""What is kept between two polls."""

import re
from typing import Any

import msgspec

from switchtower.engines.flow.runtime import event_buffer


def drain_events(kept: event_buffer.EventBuffer, **options: int) -> list[dict[str, Any]]:
    return [msgspec.json.decode(event) for event in kept.drain(**options)[0]]


def test_events_come_once_and_in_their_order() -> None:
    kept = event_buffer.EventBuffer()
    kept.add_log("info", "first")
    kept.add_step("a", "started", 0)
    kept.add_log("info", "second", step_id="a")

    told = drain_events(kept)
    assert [event.get("message", event.get("state")) for event in told] == ["first", "started", "second"]
    assert [event.get("step_id") for event in told] == [None, "a", "a"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["timestamp"]) for event in told)
    assert kept.drain() == ([], True)


def test_a_flood_of_logs_keeps_the_newest_and_says_how_many_were_dropped() -> None:
    kept = event_buffer.EventBuffer(most_logs=3)
    kept.add_step("a", "started", 0)
    for number in range(10):
        kept.add_log("info", str(number))

    warning, step, *logs = drain_events(kept)
    assert (warning["level"], warning["message"].split()[0]) == ("warning", "7")
    assert step["type"] == "step"
    assert [log["message"] for log in logs] == ["7", "8", "9"]
    kept.add_log("info", "calm")
    assert [log["message"] for log in drain_events(kept)] == ["calm"]


def test_steps_and_bytes_are_bounded_too() -> None:
    kept = event_buffer.EventBuffer(most_steps=2, most_bytes=1500)
    for attempt in range(5):
        kept.add_step("a", "started", attempt)
    assert [event.get("attempt") for event in drain_events(kept)] == [None, 3, 4]
    for number in range(5):
        kept.add_log("info", f"{number}" * 900)
    assert [event["message"][0] for event in drain_events(kept)[1:]] == ["4"]


def test_one_poll_takes_only_so_much_and_at_least_one() -> None:
    kept = event_buffer.EventBuffer()
    for number in range(3):
        kept.add_log("info", f"{number}" * 500)

    first, is_all = kept.drain(most_bytes=900)
    assert (len(first), is_all) == (1, False)
    assert len(drain_events(kept, most_bytes=1)) == 1
    assert kept.drain()[1]


def test_a_long_message_is_cut() -> None:
    kept = event_buffer.EventBuffer()
    kept.add_log("info", "x" * 1_000_000)
    assert len(drain_events(kept)[0]["message"]) == event_buffer.LONGEST_MESSAGE
