"""How often a client may ask: in any sixty seconds, to one session and in all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocols.pi.ensemble import DispatcherHarness

from switchtower.protocols.pi.dispatch import limits
from switchtower.protocols.pi.dispatch.limits import DispatchLimits


def test_the_defaults_are_the_originals() -> None:
    limits = DispatchLimits()
    assert (limits.session_rate, limits.client_rate, limits.in_flight, limits.outcomes) == (100, 1_000, 10_000, 2_000)


def test_a_session_has_its_own_limit_and_the_window_slides() -> None:
    limiter = limits.RateLimiter(DispatchLimits(session_rate=2, client_rate=100))
    assert [limiter.find_exceeded("c", "s", now) for now in (0.0, 30.0, 59.0, 60.0, 61.0, 90.0)] == [
        None,
        None,
        "session",
        None,
        "session",
        None,
    ]
    assert limiter.find_exceeded("c", "t", 61.0) is None
    assert limiter.find_exceeded("another", "s", 61.0) is None


def test_the_limit_in_all_counts_every_session_and_the_server() -> None:
    limiter = limits.RateLimiter(DispatchLimits(session_rate=2, client_rate=3))
    assert [limiter.find_exceeded("c", session, 0.0) for session in ("s", "t", None, None, "u")] == [
        None,
        None,
        None,
        "client",
        "client",
    ]
    assert limiter.get_usage("c", 0.0) == 3
    assert limiter.get_usage("c", 60.0) == 0


def test_what_is_refused_does_not_count() -> None:
    limiter = limits.RateLimiter(DispatchLimits(session_rate=1, client_rate=0))
    assert limiter.find_exceeded("c", "s", 0.0) is None
    assert all(limiter.find_exceeded("c", "s", float(now)) == "session" for now in range(1, 60))
    assert limiter.find_exceeded("c", "s", 60.0) is None


def test_no_limit_where_none_is_set() -> None:
    limiter = limits.RateLimiter(DispatchLimits(session_rate=0, client_rate=0))
    assert all(limiter.find_exceeded("c", "s", 0.0) is None for _ in range(5_000))


def test_invented_sessions_and_clients_do_not_grow_the_memory() -> None:
    limiter = limits.RateLimiter(DispatchLimits(session_rate=5, client_rate=0))
    for number in range(limits.SESSIONS_WATCHED * 3):
        assert limiter.find_exceeded("c", f"s{number}", 0.0) is None
    assert len(limiter._clients["c"].sessions) == limits.SESSIONS_WATCHED
    for number in range(limits.CLIENTS_WATCHED + 10):
        limiter.find_exceeded(f"c{number}", None, 0.0)
    assert len(limiter._clients) == limits.CLIENTS_WATCHED
    limiter.forget("c5000")
    assert len(limiter._clients) == limits.CLIENTS_WATCHED - 1


def test_a_client_cannot_shed_the_count_of_a_session_that_it_keeps_using() -> None:
    limiter = limits.RateLimiter(DispatchLimits(session_rate=3, client_rate=0))
    limiter.find_exceeded("c", "s", 0.0)
    for round_ in range(2):
        for number in range(limits.SESSIONS_WATCHED - 1):
            limiter.find_exceeded("c", f"{round_}-{number}", 0.0)
        assert limiter.find_exceeded("c", "s", 0.0) is None
    assert limiter.find_exceeded("c", "s", 0.0) == "session"


@given(st.lists(st.tuples(st.floats(0, 20), st.sampled_from(["s", "t", None])), max_size=60))
def test_no_window_ever_holds_more_than_the_limits_and_none_is_refused_too_early(steps: list[tuple[float, str | None]]) -> None:
    limiter = limits.RateLimiter(DispatchLimits(session_rate=3, client_rate=5))
    taken: list[tuple[float, str | None]] = []
    now = 0.0
    for wait, session_id in steps:
        now += wait
        recent = [session for time, session in taken if time > now - limits.WINDOW_S]
        full = session_id is not None and recent.count(session_id) >= 3
        expected = "session" if full else "client" if len(recent) >= 5 else None
        assert limiter.find_exceeded("c", session_id, now) == expected
        if expected is None:
            taken.append((now, session_id))


async def test_who_asks_too_often_is_told_and_can_be_answered_from_before() -> None:
    ensemble = DispatcherHarness(DispatchLimits(session_rate=2, client_rate=3))
    client = ensemble.make_client()
    first = await client.ask("get_state", id="a", sessionId="s")
    await client.ask("get_state", id="b", sessionId="s")
    refused = await client.ask("get_state", id="c", sessionId="s")
    assert refused["error"] == "Rate limit exceeded (2 commands/minute)"
    assert ensemble.list_phases("c") == ["command_accepted", "command_finished", "response"]
    assert (await client.ask("list_sessions", id="d"))["success"]
    assert (await client.ask("list_sessions", id="e"))["error"] == "Rate limit exceeded (3 commands/minute)"
    # a replay costs nothing, and a rejection is no outcome
    assert await client.ask("get_state", id="a", sessionId="s") == {**first, "replayed": True}
    other = ensemble.make_client("other")
    assert "replayed" not in await other.ask("get_state", id="c", sessionId="s")
    ensemble.conductor.forget_client(client)
    assert (await client.ask("list_sessions", id="e"))["success"]


@pytest.mark.requirement("pi:limit:control")
async def test_what_stops_or_decides_passes_a_rate_that_is_used_up_and_has_a_generous_one() -> None:
    ensemble = DispatcherHarness(DispatchLimits(session_rate=2, client_rate=3))
    client = ensemble.make_client()
    for _ in range(4):
        client.send("get_state", sessionId="s")
    assert client.responses[-1]["error"] == "Rate limit exceeded (2 commands/minute)"
    answer = {"requestId": "r", "response": {"method": "cancelled"}}
    for command in ("abort", "abort_bash", "abort_retry", "abort_compaction", "delete_session", "extension_ui_response"):
        fields = answer if command == "extension_ui_response" else {}
        assert (await client.ask(command, sessionId="s", **fields))["success"], command
    for _ in range(3 * limits.CONTROL_SHARE - 6):
        assert (await client.ask("abort", sessionId="s"))["success"]
    assert (await client.ask("abort", sessionId="s"))["error"] == "Rate limit exceeded (30 commands/minute)"
