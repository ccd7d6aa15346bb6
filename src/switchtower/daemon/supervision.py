"""Whoever came in with an access token stays only as long as that is good: a token that is revoked or has expired ends what it
opened, within a few seconds."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from switchtower.core import registry
from switchtower.transports.stream import Receiver, Stream

log = logging.getLogger(__name__)

EVERY = 5.0
POLICY_VIOLATION = 1008


class Supervised:
    """A `stream.Receiver` before another."""

    def __init__(self, receiver: Receiver, is_good: Callable[[], Awaitable[bool]], *, every_s: float = EVERY) -> None:
        self._receiver = receiver
        self._is_good = is_good
        self._every_s = every_s
        self._watch: asyncio.Task[None] | None = None

    def connected(self, stream: Stream) -> None:
        self._receiver.connected(stream)
        self._watch = asyncio.get_running_loop().create_task(self._look(stream))

    def received(self, frames: list[bytes]) -> None:
        self._receiver.received(frames)

    def refused(self, problem: str) -> None:
        self._receiver.refused(problem)

    def writable_again(self) -> None:
        self._receiver.writable_again()

    def disconnected(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._receiver.disconnected()

    async def _look(self, stream: Stream) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                if await self._is_good():
                    continue
            except registry.RegistryUnavailable as problem:
                log.warning("whether a token is still good cannot be told: %s", problem)
                continue
            except Exception:  # whoever cannot be judged now is judged again: nobody may stay unwatched
                log.exception("looking whether a token is still good failed")
                continue
            stream.close(POLICY_VIOLATION, "the access token is no longer good")
            return
