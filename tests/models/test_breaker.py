"""The circuit breaker: when it opens, whom it lets try, and what counts."""

from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.parts import MakeProvider, ask, make_user_message

from switchtower.models import breaker, port, provider_errors
from switchtower.testing import model_script as script

UNWELL = port.ModelError("down", transient=True, status=503)
REFUSED = port.ModelError("no", transient=False, status=400)
SLOW_DOWN = port.ModelError("slow down", transient=True, status=429)


class BreakerClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class ScriptedBreakerModel:
    """A model that does as it is told, one outcome a call."""

    provider = "scripted"
    name = "m"
    context_window = 7

    def __init__(self, *outcomes: Exception | None) -> None:
        self.outcomes = list(outcomes)
        self.closed = 0

    async def stream(self, request: port.CompletionRequest) -> AsyncIterator[port.Part]:
        outcome = self.outcomes.pop(0)
        try:
            yield port.TextPart("hello")
            if outcome is not None:
                raise outcome
        finally:
            self.closed += 1


SETTINGS = breaker.BreakerSettings(failures=3, rest=30.0, longest_rest=100.0)


def make(clock: BreakerClock) -> breaker.Breaker:
    return breaker.Breaker("openai", clock, SETTINGS)


def fail(guard: breaker.Breaker, times: int = 1) -> None:
    for _ in range(times):
        guard.acquire_permit().settle(well=False)


def test_it_opens_after_so_many_failures_in_a_row_and_says_when_it_tries_again() -> None:
    clock = BreakerClock()
    guard = make(clock)
    fail(guard, 2)
    assert guard.state is breaker.CircuitState.CLOSED
    fail(guard)
    assert guard.state is breaker.CircuitState.OPEN

    clock.now = 10.0
    with pytest.raises(port.ModelError) as refusal:
        guard.acquire_permit()

    assert (refusal.value.is_paused, refusal.value.transient, refusal.value.retry_after) == (True, True, 20.0)
    assert refusal.value.message == "openai: paused after 3 failures; next attempt in 20 s"


def test_a_success_between_failures_starts_the_count_again() -> None:
    guard = make(BreakerClock())
    fail(guard, 2)
    guard.acquire_permit().settle(well=True)
    fail(guard, 2)
    assert guard.state is breaker.CircuitState.CLOSED


def test_half_open_lets_one_probe_through_at_a_time() -> None:
    clock = BreakerClock()
    guard = make(clock)
    fail(guard, 3)
    clock.now = 30.0
    assert guard.state is breaker.CircuitState.HALF_OPEN

    probe = guard.acquire_permit()
    with pytest.raises(port.ModelError, match="paused after 3 failures; next attempt in 5 s"):
        guard.acquire_permit()
    probe.settle(well=True)

    assert guard.state is breaker.CircuitState.CLOSED
    guard.acquire_permit()
    guard.acquire_permit()


def test_a_probe_that_fails_doubles_the_rest_up_to_a_limit() -> None:
    clock = BreakerClock()
    guard = make(clock)
    fail(guard, 3)
    for rest in (30.0, 60.0, 100.0, 100.0):
        clock.now += rest - 0.5
        assert guard.state is breaker.CircuitState.OPEN
        clock.now += 0.5
        assert guard.state is breaker.CircuitState.HALF_OPEN
        fail(guard)
    clock.now += 100.0
    guard.acquire_permit().settle(well=True)
    fail(guard, 3)
    clock.now += 30.0
    assert guard.state is breaker.CircuitState.HALF_OPEN, "after a success the rest is short again"


def test_a_probe_that_nobody_waited_for_makes_room_for_the_next() -> None:
    clock = BreakerClock()
    guard = make(clock)
    fail(guard, 3)
    clock.now = 30.0
    guard.acquire_permit().settle(well=None)
    assert guard.state is breaker.CircuitState.HALF_OPEN
    guard.acquire_permit()


def test_what_a_call_from_before_comes_to_is_no_news() -> None:
    clock = BreakerClock()
    guard = make(clock)
    slow_failure, slow_success = guard.acquire_permit(), guard.acquire_permit()
    fail(guard, 3)
    slow_success.settle(well=True)
    assert guard.state is breaker.CircuitState.OPEN
    clock.now = 30.0
    slow_failure.settle(well=False)
    assert guard.state is breaker.CircuitState.HALF_OPEN


def test_a_permit_counts_once() -> None:
    guard = make(BreakerClock())
    permit = guard.acquire_permit()
    for _ in range(5):
        permit.settle(well=False)
    assert guard.failures == 1


def test_one_run_that_fails_with_all_its_attempts_does_not_open_it_for_others() -> None:
    assert breaker.BreakerSettings().failures > provider_errors.Backoff().max_attempts


@pytest.mark.parametrize(
    ("trouble", "verdict"),
    [
        (UNWELL, False),
        (port.ModelError("cut", transient=True), False),
        (port.ModelError("500, and says do not retry", transient=False, status=500), False),
        (SLOW_DOWN, None),
        (REFUSED, True),
        (port.ModelError("key", transient=False, status=401), True),
        (port.ModelError("too much", transient=False), None),
    ],
)
def test_only_what_says_that_the_provider_is_unwell_counts(trouble: port.ModelError, verdict: bool | None) -> None:
    assert breaker.judge_provider(trouble) is verdict


async def test_round_a_model_it_counts_what_the_calls_come_to() -> None:
    guard = make(BreakerClock())
    model = breaker.GuardedModel(ScriptedBreakerModel(UNWELL, SLOW_DOWN, UNWELL, UNWELL), guard)
    for _ in range(4):
        with pytest.raises(port.ModelError):
            await ask(model)
    assert guard.state is breaker.CircuitState.OPEN
    with pytest.raises(port.ModelError, match="paused"):
        await ask(model)
    assert (model.provider, model.name, model.context_window) == ("scripted", "m", 7)


async def test_a_refusal_and_a_success_show_that_it_is_well() -> None:
    guard = make(BreakerClock())
    for outcome in (REFUSED, None):
        fail(guard, 2)
        model = breaker.GuardedModel(ScriptedBreakerModel(outcome), guard)
        if outcome is None:
            await ask(model)
        else:
            with pytest.raises(port.ModelError):
                await ask(model)
        assert guard.failures == 0


async def test_a_stream_closed_half_way_is_neither_and_closes_the_models() -> None:
    guard = make(BreakerClock())
    fail(guard, 2)
    model = ScriptedBreakerModel(None)
    async with aclosing(breaker.GuardedModel(model, guard).stream(port.CompletionRequest((make_user_message("go"),)))) as parts:  # type: ignore[type-var]
        await anext(parts)
    assert guard.failures == 2
    assert model.closed == 1


async def test_a_bug_of_ours_is_not_the_providers_fault() -> None:
    guard = make(BreakerClock())
    with pytest.raises(KeyError):
        await ask(breaker.GuardedModel(ScriptedBreakerModel(KeyError("bug")), guard))
    assert guard.failures == 0


async def test_over_http_a_dead_provider_is_left_alone_and_found_well_again(provide_model: MakeProvider) -> None:
    clock = BreakerClock()
    provider = await provide_model(*[script.ScriptedRefusal(503)] * 6, script.reply_text("back"), clock=clock)
    for _ in range(6):
        await provider.refuse()

    trouble = await provider.refuse()

    assert "paused" in trouble.message
    assert len(provider.server.requests) == 6, "nobody was asked"
    assert provider.catalog.list_breakers()["work"].state is breaker.CircuitState.OPEN
    clock.now += 30.0
    assert (await provider.ask()).text == "back"
    assert provider.catalog.list_breakers()["work"].state is breaker.CircuitState.CLOSED


@given(st.lists(st.sampled_from(["ok", "bad", "unknown", "wait", "hold"]), max_size=60))
def test_whatever_happens_there_is_never_more_than_one_probe_and_always_a_way_back(steps: list[str]) -> None:
    clock = BreakerClock()
    guard = make(clock)
    held: list[breaker.CallPermit] = []
    for step in steps:
        if step == "wait":
            clock.now += 31.0
            continue
        before = guard.state
        try:
            permit = guard.acquire_permit()
        except port.ModelError:
            assert before is not breaker.CircuitState.CLOSED
            continue
        assert before is not breaker.CircuitState.OPEN
        if step == "hold":
            held.append(permit)
            if before is breaker.CircuitState.HALF_OPEN:
                with pytest.raises(port.ModelError):
                    guard.acquire_permit()
        else:
            permit.settle(well={"ok": True, "bad": False, "unknown": None}[step])
    for permit in held:
        permit.settle(well=None)
    clock.now += 1_000.0
    guard.acquire_permit().settle(well=True)
    assert guard.state is breaker.CircuitState.CLOSED


def test_figures_count_calls_refusals_and_how_long_they_took() -> None:
    clock = BreakerClock()
    guard = breaker.Breaker("openai", clock, SETTINGS, now_ms=lambda: 1_700_000_000_000 + round(clock.now * 1_000))
    assert (guard.figures.average_ms, guard.figures.last_failure_ms) == (0.0, None)
    for seconds, well in ((1.0, True), (2.0, False), (9.0, None), (3.0, False), (6.0, False)):
        permit = guard.acquire_permit()
        clock.now += seconds
        permit.settle(well=well)
        permit.settle(well=well)
    for _ in range(2):
        with pytest.raises(port.ModelError):
            guard.acquire_permit()

    figures = guard.figures
    assert (figures.calls, figures.rejected, figures.successes, figures.failures) == (5, 2, 1, 3)
    assert figures.average_ms == 3_000.0
    assert figures.last_failure_ms == 1_700_000_021_000


async def test_a_call_that_the_provider_refused_is_no_success_though_the_provider_is_well() -> None:
    guard = make(BreakerClock())
    model = breaker.GuardedModel(ScriptedBreakerModel(REFUSED, SLOW_DOWN, None), guard)
    for _ in range(2):
        with pytest.raises(port.ModelError):
            await ask(model)
    await ask(model)
    assert (guard.failures, guard.figures.failures, guard.figures.successes) == (0, 2, 1)


async def test_what_comes_late_is_counted_and_changes_nothing_else() -> None:
    guard = make(BreakerClock())
    late = guard.acquire_permit()
    fail(guard, 3)
    late.settle(well=True)
    assert guard.state is breaker.CircuitState.OPEN
    assert (guard.figures.successes, guard.figures.failures) == (1, 3)


async def test_the_catalog_tells_the_state_of_whom_it_has_asked(provide_model: MakeProvider) -> None:
    clock = BreakerClock()
    provider = await provide_model(script.reply_text("hello"), *[script.ScriptedRefusal(503)] * 6, clock=clock)
    assert provider.catalog.list_breaker_states() == [], "nobody was asked"
    await provider.ask()
    for _ in range(7):
        await provider.refuse()

    [state] = provider.catalog.list_breaker_states()

    assert (state.provider, state.state, state.failures) == ("work", "open", 6)
    assert (state.calls, state.rejected, state.successes, state.failed) == (7, 1, 1, 6)
    assert state.last_failure_ms is not None
    clock.now += 30.0
    assert [state.state for state in provider.catalog.list_breaker_states()] == ["half_open"]
