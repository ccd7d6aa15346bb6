"""How often somebody may try to log in. Kept in memory, bounded, for this process alone.

By address: a few failures are free, then each costs a longer wait. By name, across all addresses: more are free and the waits
stay short, and an address from which that name has logged in before does not have to wait for others' failures. So guessing
is slow from one address and from many, and nobody can lock a user out by failing in their name.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from switchtower.transports import addresses

FORGOTTEN_AFTER = 3_600.0
MOST_ROWS = 10_000
_FOR_ANOTHER = 1.0
"""How long to wait when only another attempt under way is in the way."""


class Rule(NamedTuple):
    free: int
    """How many failures cost nothing."""
    first_wait: float
    longest_wait: float

    def wait_after(self, failures: int) -> float:
        # Capped before the power, which would outgrow a float.
        return min(self.first_wait * 2.0 ** min(failures - self.free, 30), self.longest_wait)


BY_ADDRESS = Rule(5, 30.0, 900.0)
BY_NAME = Rule(20, 2.0, 30.0)


class TooManyAttempts(Exception):
    """Too many failed logins; a right password works after the wait."""

    def __init__(self, retry_after_s: float) -> None:
        self.retry_after_s = max(1, math.ceil(retry_after_s))
        super().__init__(f"too many attempts; hint: try again in {self.retry_after_s} s")


class Attempt(NamedTuple):
    name: str
    place: str


class _Row:
    def __init__(self) -> None:
        self.failures = 0
        self.last_failure = -math.inf
        self.under_way = 0
        self.names: set[str] = set()
        """Whose failures these are: at most two, which is enough to know that they are not one person's."""


class _Table:
    def __init__(self, rule: Rule, now: Callable[[], float]) -> None:
        self._rule = rule
        self._now = now
        self._rows: OrderedDict[str, _Row] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def wait(self, key: str) -> float:
        """Seconds; 0 when an attempt may begin. One under way counts as failed until it is known."""
        row = self._rows.get(key)
        if row is None:
            return 0.0
        since_failure = max(0.0, self._now() - row.last_failure)
        if since_failure > FORGOTTEN_AFTER:
            row.failures = 0
            row.names.clear()
        if row.failures >= self._rule.free:
            remaining = self._rule.wait_after(row.failures) - since_failure
            return remaining if remaining > 0 else _FOR_ANOTHER if row.under_way else 0.0
        return _FOR_ANOTHER if row.failures + row.under_way >= self._rule.free else 0.0

    def begin(self, key: str) -> None:
        self._row(key).under_way += 1

    def end(self, key: str, name: str, *, succeeded: bool | None) -> None:
        row = self._row(key)
        row.under_way = max(0, row.under_way - 1)
        if succeeded is False:
            row.failures += 1
            row.last_failure = self._now()
            if len(row.names) < 2:
                row.names.add(name)
        elif succeeded and row.names <= {name}:
            # Only one's own failures: else a right login of one's own would pay for guessing at others'.
            row.failures = 0
            row.names.clear()
        if not row.failures and not row.under_way:
            del self._rows[key]

    def _row(self, key: str) -> _Row:
        row = self._rows.pop(key, None) or _Row()
        if len(self._rows) >= MOST_ROWS:
            self._rows.popitem(last=False)  # the one that was quiet for longest
        self._rows[key] = row
        return row


class LoginLimit:
    def __init__(self, now: Callable[[], float]) -> None:
        self._places = _Table(BY_ADDRESS, now)
        self._names = _Table(BY_NAME, now)
        self._familiar: OrderedDict[Attempt, None] = OrderedDict()

    @property
    def size(self) -> int:
        return max(len(self._places), len(self._names), len(self._familiar))

    def begin(self, name: str, address: str) -> Attempt:
        """Raises `TooManyAttempts`. Every attempt that begins must `end`."""
        attempt = Attempt(name, addresses.place_of(address))
        wait = self._places.wait(attempt.place)
        if attempt not in self._familiar:
            wait = max(wait, self._names.wait(name))
        if wait > 0:
            raise TooManyAttempts(wait)
        self._places.begin(attempt.place)
        self._names.begin(name)
        return attempt

    def end(self, attempt: Attempt, *, succeeded: bool | None) -> None:
        """None: it was our own fault, and is not counted."""
        self._places.end(attempt.place, attempt.name, succeeded=succeeded)
        self._names.end(attempt.name, attempt.name, succeeded=None if succeeded else succeeded)
        if succeeded:
            self._familiar.pop(attempt, None)
            if len(self._familiar) >= MOST_ROWS:
                self._familiar.popitem(last=False)
            self._familiar[attempt] = None
