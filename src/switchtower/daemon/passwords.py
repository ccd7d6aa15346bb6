"""Passwords and their argon2 hashes. A hash takes a sixth of a second and 64 MiB, so it is made in a thread, never on the event
loop, few at a time, and not many may wait.

No password and no hash is in an error of this room.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    import argon2

Result = TypeVar("Result")

SHORTEST = 8
LONGEST_BYTES = 1_024
MOST_AT_ONCE = 2
MOST_WAITING = 16


class Busy(Exception):
    """Too many passwords are being checked already."""


class Cost(NamedTuple):
    """How dear a hash is. The defaults are the library's, which follow RFC 9106."""

    time: int
    memory_kib: int
    lanes: int


def problem_with(password: str) -> str | None:
    """Why it cannot be anybody's password."""
    if len(password) < SHORTEST:
        return f"the password is shorter than {SHORTEST} characters"
    if len(_bytes_of(password)) > LONGEST_BYTES:
        return f"the password is longer than {LONGEST_BYTES} bytes"
    return None


def can_be_checked(password: str) -> bool:
    """A stranger's text: no work is done for what is nobody's password. A short one may be from elsewhere."""
    return 0 < len(password) <= LONGEST_BYTES and len(_bytes_of(password)) <= LONGEST_BYTES


def is_hash(text: str) -> bool:
    """Whether it is an argon2 hash in the PHC format."""
    import argon2

    try:
        argon2.extract_parameters(text)
    except ValueError:
        return False
    return True


class Passwords:
    def __init__(self, cost: Cost | None = None) -> None:
        self._cost = cost
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="passwords")
        self._under_way = 0
        self._closed = False

    def close(self) -> None:
        """What waits is given up."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def hash(self, password: str) -> str:
        return await self._do(lambda: hash_now(password, self._cost))

    async def check(self, password: str, hashed: str | None) -> bool:
        """Whether it is the password behind the hash. None is nobody's hash, and takes as long to find out."""
        return await self._do(lambda: _check(_hasher(self._cost), password, hashed))

    async def is_outdated(self, hashed: str) -> bool:
        """Whether it was made at another cost than would be now."""
        return await self._do(lambda: _hasher(self._cost).check_needs_rehash(hashed))

    async def _do(self, work: Callable[[], Result]) -> Result:
        if self._closed or self._under_way >= MOST_AT_ONCE + MOST_WAITING:
            raise Busy
        self._under_way += 1
        try:
            # Who stops waiting does not stop the thread: there are never more hashes at a time than threads.
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._under_way -= 1


def hash_now(password: str, cost: Cost | None = None) -> str:
    """Takes its time here and now: not for the event loop."""
    return _hasher(cost).hash(_bytes_of(password))


def _check(hasher: "argon2.PasswordHasher", password: str, hashed: str | None) -> bool:
    from argon2 import exceptions

    if hashed is None:
        hasher.hash(_bytes_of(password))  # as much work as checking against a hash
        return False
    try:
        return hasher.verify(hashed, _bytes_of(password))
    except (exceptions.VerificationError, exceptions.InvalidHashError):
        return False


def _hasher(cost: Cost | None) -> "argon2.PasswordHasher":
    import argon2

    if cost is None:
        return argon2.PasswordHasher()
    return argon2.PasswordHasher(time_cost=cost.time, memory_cost=cost.memory_kib, parallelism=cost.lanes)


def _bytes_of(password: str) -> bytes:
    # JSON can bring half of a surrogate pair. An error about it would quote the password.
    return password.encode(errors="surrogatepass")
