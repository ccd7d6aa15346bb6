"""Passwords and their argon2 hashes. A hash takes a sixth of a second and 64 MiB, so it is made in a thread, never on the event
loop, few at a time, and not many may wait.

No error of this module contains a password or a hash.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    import argon2

Result = TypeVar("Result")

MIN_LENGTH = 8
MAX_PASSWORD_BYTES = 1_024
MAX_CONCURRENT_HASHES = 2
MAX_WAITING = 16


class PasswordHasherBusy(Exception):
    """Too many passwords are being checked already."""


class HashCost(NamedTuple):
    """The cost of a hash. The defaults are the library's, which follow RFC 9106."""

    time: int
    memory_kib: int
    lanes: int


def find_password_problem(password: str) -> str | None:
    """Returns the reason why the password is not allowed."""
    if len(password) < MIN_LENGTH:
        return f"the password is shorter than {MIN_LENGTH} characters"
    if len(_encode_password(password)) > MAX_PASSWORD_BYTES:
        return f"the password is longer than {MAX_PASSWORD_BYTES} bytes"
    return None


def can_be_checked(password: str) -> bool:
    """Returns whether a given text can be a password at all: no work is done for one that cannot. A short one may be from
    elsewhere."""
    return 0 < len(password) <= MAX_PASSWORD_BYTES and len(_encode_password(password)) <= MAX_PASSWORD_BYTES


def is_hash(text: str) -> bool:
    """Returns whether the text is an argon2 hash in the PHC format."""
    import argon2

    try:
        argon2.extract_parameters(text)
    except ValueError:
        return False
    return True


class PasswordHasher:
    def __init__(self, cost: HashCost | None = None) -> None:
        self._cost = cost
        self._threads = ThreadPoolExecutor(MAX_CONCURRENT_HASHES, thread_name_prefix="passwords")
        self._under_way = 0
        self._closed = False

    def close(self) -> None:
        """Waiting hashes are given up."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def hash(self, password: str) -> str:
        return await self._run_in_pool(lambda: hash_blocking(password, self._cost))

    async def check(self, password: str, hashed: str | None) -> bool:
        """Returns whether the password matches the hash. With None, for an unknown user, it takes as long and returns False."""
        return await self._run_in_pool(lambda: _check(_make_hasher(self._cost), password, hashed))

    async def is_outdated(self, hashed: str) -> bool:
        """Returns whether the hash was made at another cost than the current one."""
        return await self._run_in_pool(lambda: _make_hasher(self._cost).check_needs_rehash(hashed))

    async def _run_in_pool(self, work: Callable[[], Result]) -> Result:
        if self._closed or self._under_way >= MAX_CONCURRENT_HASHES + MAX_WAITING:
            raise PasswordHasherBusy
        self._under_way += 1
        try:
            # A cancelled caller does not stop the thread: there are never more hashes at a time than threads.
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._under_way -= 1


def hash_blocking(password: str, cost: HashCost | None = None) -> str:
    """Blocks: not for the event loop."""
    return _make_hasher(cost).hash(_encode_password(password))


def _check(hasher: "argon2.PasswordHasher", password: str, hashed: str | None) -> bool:
    from argon2 import exceptions

    if hashed is None:
        hasher.hash(_encode_password(password))  # as much work as checking against a hash
        return False
    try:
        return hasher.verify(hashed, _encode_password(password))
    except (exceptions.VerificationError, exceptions.InvalidHashError):
        return False


def _make_hasher(cost: HashCost | None) -> "argon2.PasswordHasher":
    import argon2

    if cost is None:
        return argon2.PasswordHasher()
    return argon2.PasswordHasher(time_cost=cost.time, memory_cost=cost.memory_kib, parallelism=cost.lanes)


def _encode_password(password: str) -> bytes:
    # JSON may contain half of a surrogate pair. An error about it would quote the password.
    return password.encode(errors="surrogatepass")
