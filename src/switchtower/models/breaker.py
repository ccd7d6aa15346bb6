"""A circuit breaker: a provider that fails repeatedly is paused for a while.

While it is closed, calls pass. After too many failures in a row it is open and refuses calls, with the time after which to retry.
When its time is over it is half-open: one call passes as a probe, and its outcome decides. Only failures of the provider count:
it is unreachable, drops the connection, or reports a server error. A refused request or key shows a provider that works; a rate
limit or a cancelled call shows nothing either way.
"""

import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from enum import StrEnum

from msgspec import Struct

from switchtower.models import port

_PROBE_TIMEOUT = 5.0
"""The seconds until a waiting call checks again whether the call that probes the provider has ended."""


class CircuitState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class BreakerSettings(Struct, frozen=True):
    """Times are in seconds."""

    failures: int = 6
    """The number of failures in a row. It is more than the attempts of one call, so that one unlucky run does not decide for
    all.
    """
    rest: float = 30.0
    longest_rest: float = 300.0
    """Each failed probe doubles the rest, up to this."""


class BreakerStats(Struct):
    """The outcomes of all calls so far. Times are in milliseconds."""

    calls: int = 0
    """The number of calls that passed."""
    rejected: int = 0
    successes: int = 0
    failures: int = 0
    last_failure_ms: int | None = None
    total_ms: float = 0.0

    @property
    def average_ms(self) -> float:
        """The average of the calls that succeeded or failed; cancelled calls do not count."""
        ended = self.successes + self.failures
        return self.total_ms / ended if ended else 0.0


def _get_now_ms() -> int:
    return time.time_ns() // 1_000_000


class Breaker:
    def __init__(
        self,
        name: str,
        clock: Callable[[], float],
        settings: BreakerSettings = BreakerSettings(),  # noqa: B008
        now_ms: Callable[[], int] = _get_now_ms,
    ) -> None:
        """`clock` measures; `now_ms` is the time of day, for people."""
        self._name = name
        self._clock = clock
        self._now_ms = now_ms
        self._settings = settings
        self.figures = BreakerStats()
        self._failures = 0
        self._rest = settings.rest
        self._rests_until: float | None = None
        self._probe: CallPermit | None = None
        self._era = 0
        """Counts changes of state: the outcome of a call that started in an earlier state is ignored."""

    @property
    def state(self) -> CircuitState:
        if self._rests_until is None:
            return CircuitState.CLOSED
        return CircuitState.OPEN if self._clock() < self._rests_until else CircuitState.HALF_OPEN

    @property
    def failures(self) -> int:
        """The current number of failures in a row."""
        return self._failures

    def acquire_permit(self) -> "CallPermit":
        """Returns a permit for one call, to be settled when it ends. Raises a `ModelError` with `is_paused` when there is
        none.
        """
        match self.state:
            case CircuitState.OPEN:
                assert self._rests_until is not None
                raise self._make_refusal(self._rests_until - self._clock())
            case CircuitState.HALF_OPEN if self._probe is not None:
                raise self._make_refusal(_PROBE_TIMEOUT)
            case CircuitState.HALF_OPEN:
                self._probe = self._make_permit()
                return self._probe
            case CircuitState.CLOSED:
                return self._make_permit()

    def settle(self, permit: "CallPermit", *, well: bool | None, failed: bool = False) -> None:
        """Records the outcome of a call: the provider is healthy, is not, or it is unknown. A call may have failed anyway, for
        instance when it was refused.
        """
        self._count(permit, success=None if well is None and not failed else bool(well) and not failed)
        if self._probe is permit:
            self._probe = None
        elif permit.era != self._era:
            return
        if well:
            self._close()
        elif well is False:
            self._failures += 1
            if self.state is CircuitState.HALF_OPEN:
                self._rest = min(self._rest * 2, self._settings.longest_rest)
                self._open()
            elif self._failures >= self._settings.failures:
                self._open()

    def _make_permit(self) -> "CallPermit":
        self.figures.calls += 1
        return CallPermit(self, self._era, self._clock())

    def _count(self, permit: "CallPermit", *, success: bool | None) -> None:
        if success is None:
            return
        self.figures.total_ms += (self._clock() - permit.entered_at) * 1_000
        if success:
            self.figures.successes += 1
        else:
            self.figures.failures += 1
            self.figures.last_failure_ms = self._now_ms()

    def _close(self) -> None:
        self._failures = 0
        if self._rests_until is not None:
            self._rests_until = None
            self._rest = self._settings.rest
            self._era += 1

    def _open(self) -> None:
        self._rests_until = self._clock() + self._rest
        self._era += 1

    def _make_refusal(self, wait: float) -> port.ModelError:
        self.figures.rejected += 1
        times = f"{self._failures} failures" if self._failures > 1 else "a failure"
        sentence = f"{self._name}: paused after {times}; next attempt in {max(1, round(wait))} s"
        return port.ModelError(sentence, transient=True, retry_after=max(0.0, wait), is_paused=True)


class CallPermit:
    """The right to make one call. Settling it twice does nothing; after the state has changed it is only counted."""

    def __init__(self, breaker: Breaker, era: int, entered_at: float) -> None:
        self._breaker = breaker
        self._settled = False
        self.era = era
        self.entered_at = entered_at

    def settle(self, *, well: bool | None, failed: bool = False) -> None:
        if not self._settled:
            self._settled = True
            self._breaker.settle(self, well=well, failed=failed)


_ASKED_TO_WAIT = frozenset({409, 425, 429})


def judge_provider(error: port.ModelError) -> bool | None:
    """Returns what an error shows about the provider: that it is healthy, that it is not, or neither."""
    if error.status in _ASKED_TO_WAIT:
        return None
    if error.transient or (error.status or 0) >= 500:
        return False
    return None if error.status is None else True


class GuardedModel:
    """A model behind a breaker."""

    def __init__(self, model: port.Model, breaker: Breaker) -> None:
        self._model = model
        self._breaker = breaker

    @property
    def provider(self) -> str:
        return self._model.provider

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def context_window(self) -> int | None:
        return self._model.context_window

    async def stream(self, request: port.CompletionRequest) -> AsyncIterator[port.Part]:
        permit = self._breaker.acquire_permit()
        try:
            async with _close_with(self._model.stream(request)) as parts:
                async for part in parts:
                    yield part
        except port.ModelError as trouble:
            permit.settle(well=judge_provider(trouble), failed=True)
            raise
        except BaseException:
            permit.settle(well=None)  # cancelled, closed half-way, or a bug in our code
            raise
        permit.settle(well=True)


@contextlib.asynccontextmanager
async def _close_with(parts: AsyncIterator[port.Part]) -> AsyncIterator[AsyncIterator[port.Part]]:
    """Closes the model's stream together with ours, not whenever it happens to be collected."""
    try:
        yield parts
    finally:
        if isinstance(parts, AsyncGenerator):
            await parts.aclose()
