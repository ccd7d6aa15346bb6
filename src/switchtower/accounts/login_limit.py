"""Limits login attempts. The counts are in memory, bounded, and for this process alone.

By address: a few failures are free, then each costs a longer wait. By name, across all addresses: more are free and the waits
stay short. Failures of others delay neither a name that has logged in from this address before nor one that comes with the cookie
of a device that it has logged in with: only their own failures there do. So guessing is slow from one address and from many, no
user can be locked out by failures in their name, and the users behind one proxy do not lock each other out.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from switchtower.transports import origins

ROW_LIFETIME = 3_600.0
MAX_ROWS = 10_000
_FOR_ANOTHER = 1.0
"""Seconds to wait when only another running attempt blocks this one."""


class BackoffRule(NamedTuple):
    free: int
    """The number of failures that cost no wait."""
    first_wait: float
    longest_wait: float

    def compute_wait(self, failures: int) -> float:
        # The exponent is capped first, because the power would outgrow a float.
        return min(self.first_wait * 2.0 ** min(failures - self.free, 30), self.longest_wait)


BY_ADDRESS = BackoffRule(5, 30.0, 900.0)
BY_NAME = BackoffRule(20, 2.0, 30.0)


class TooManyAttempts(Exception):
    """Too many failed logins; a right password works after the wait."""

    def __init__(self, retry_after_s: float) -> None:
        self.retry_after_s = max(1, math.ceil(retry_after_s))
        super().__init__(f"too many attempts; hint: try again in {self.retry_after_s} s")


class LoginAttempt(NamedTuple):
    name: str
    place: str
    own: str = ""
    """The known device or address of the attempt, if any: then only its own failures count against it."""


class _AttemptRow:
    def __init__(self) -> None:
        self.failures = 0
        self.last_failure = -math.inf
        self.under_way = 0
        self.names: set[str] = set()
        """The names of these failures: at most two, which is enough to know that they do not belong to one user."""


class _AttemptTable:
    def __init__(self, rule: BackoffRule, now: Callable[[], float]) -> None:
        self._rule = rule
        self._now = now
        self._rows: OrderedDict[str, _AttemptRow] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def get_wait(self, key: str) -> float:
        """Returns seconds; 0 when an attempt may start. A running attempt counts as failed until its result is known."""
        row = self._rows.get(key)
        if row is None:
            return 0.0
        since_failure = max(0.0, self._now() - row.last_failure)
        if since_failure > ROW_LIFETIME:
            row.failures = 0
            row.names.clear()
        if row.failures >= self._rule.free:
            remaining = self._rule.compute_wait(row.failures) - since_failure
            return remaining if remaining > 0 else _FOR_ANOTHER if row.under_way else 0.0
        return _FOR_ANOTHER if row.failures + row.under_way >= self._rule.free else 0.0

    def begin(self, key: str) -> None:
        self._get_row(key).under_way += 1

    def end(self, key: str, name: str, *, succeeded: bool | None) -> None:
        row = self._get_row(key)
        row.under_way = max(0, row.under_way - 1)
        if succeeded is False:
            row.failures += 1
            row.last_failure = self._now()
            if len(row.names) < 2:
                row.names.add(name)
        elif succeeded and row.names <= {name}:
            # Only the user's own failures are cleared: otherwise a user's own login would pay for guesses at other names.
            row.failures = 0
            row.names.clear()
        if not row.failures and not row.under_way:
            del self._rows[key]

    def _get_row(self, key: str) -> _AttemptRow:
        row = self._rows.pop(key, None) or _AttemptRow()
        if len(self._rows) >= MAX_ROWS:
            self._rows.popitem(last=False)  # the one that was idle for longest
        self._rows[key] = row
        return row


class LoginLimit:
    def __init__(self, now: Callable[[], float]) -> None:
        self._places = _AttemptTable(BY_ADDRESS, now)
        self._names = _AttemptTable(BY_NAME, now)
        self._own = _AttemptTable(BY_ADDRESS, now)
        self._familiar: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Names, each with an address from which it has logged in."""

    @property
    def size(self) -> int:
        return max(len(self._places), len(self._names), len(self._own), len(self._familiar))

    def begin(self, name: str, address: str, *, device: str = "") -> LoginAttempt:
        """Raises `TooManyAttempts`. Every attempt that begins must `end`. `device` is one that this name has logged in with, as
        the caller has checked. An attempt without a name counts for its address alone."""
        place = origins.group_address(address)
        familiar = f"device {device}" if device else f"place {place}" if (name, place) in self._familiar else ""
        attempt = LoginAttempt(name, place, f"{name} {familiar}" if familiar else "")
        if attempt.own:
            wait = self._own.get_wait(attempt.own)
        else:
            wait = max(self._places.get_wait(place), self._names.get_wait(name) if name else 0.0)
        if wait > 0:
            raise TooManyAttempts(wait)
        for table, key in self._iterate_rows(attempt):
            table.begin(key)
        return attempt

    def end(self, attempt: LoginAttempt, *, succeeded: bool | None) -> None:
        """None: the failure was our own, and is not counted."""
        for table, key in self._iterate_rows(attempt):
            # A right password does not prove that earlier failures with this name elsewhere were its user's.
            counted = None if table is self._names and succeeded else succeeded
            table.end(key, attempt.name, succeeded=counted)
        if succeeded and attempt.name:
            pair = (attempt.name, attempt.place)
            self._familiar.pop(pair, None)
            if len(self._familiar) >= MAX_ROWS:
                self._familiar.popitem(last=False)
            self._familiar[pair] = None

    def _iterate_rows(self, attempt: LoginAttempt) -> Iterator[tuple[_AttemptTable, str]]:
        yield self._places, attempt.place
        if attempt.name:
            yield self._names, attempt.name
        if attempt.own:
            yield self._own, attempt.own
