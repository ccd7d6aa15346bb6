"""Ends a connection when the access token that opened it stops being good, or its user's role changes: at once after a change
that this daemon made, within a few seconds after one that another node made."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from switchtower.core import registry
from switchtower.transports.stream import Receiver, Stream

log = logging.getLogger(__name__)

CHECK_INTERVAL = 5.0
POLICY_VIOLATION = 1008

Watch = Callable[[Callable[[], None]], Callable[[], None]]
"""Calls back, synchronously, after each change of users or tokens; returns what ends that."""


class TokenBoundReceiver:
    """A `stream.Receiver` before another."""

    def __init__(
        self,
        receiver: Receiver,
        is_good: Callable[[], Awaitable[bool]],
        watch: Watch = lambda changed: lambda: None,
        *,
        every_s: float = CHECK_INTERVAL,
    ) -> None:
        self._receiver = receiver
        self._is_good = is_good
        self._watch_accounts = watch
        self._every_s = every_s
        self._watch: asyncio.Task[None] | None = None
        self._unwatch: Callable[[], None] = lambda: None
        self._changed = asyncio.Event()
        self._in_doubt = False
        """Something has changed and was not looked at yet: what arrives meanwhile is held."""
        self._held: list[bytes] = []
        self._ended = False

    @property
    def protocol(self) -> str:
        """The wrapped receiver's protocol, for the metrics."""
        label: str = getattr(self._receiver, "protocol", "http")
        return label

    def on_connected(self, stream: Stream) -> None:
        self._receiver.on_connected(stream)
        self._unwatch = self._watch_accounts(self._on_accounts_changed)
        self._watch = asyncio.get_running_loop().create_task(self._check_token(stream))

    def _on_accounts_changed(self) -> None:
        self._in_doubt = True
        self._changed.set()

    def on_frames(self, frames: list[bytes]) -> None:
        if self._ended:
            return
        if self._in_doubt:
            self._held += frames
        else:
            self._receiver.on_frames(frames)

    def on_oversized_frame(self, problem: str) -> None:
        self._receiver.on_oversized_frame(problem)

    def on_writable(self) -> None:
        self._receiver.on_writable()

    def on_disconnected(self) -> None:
        self._ended = True
        self._unwatch()
        if self._watch is not None:
            self._watch.cancel()
        self._receiver.on_disconnected()

    async def _check_token(self, stream: Stream) -> None:
        while True:
            try:
                async with asyncio.timeout(self._every_s):
                    await self._changed.wait()
            except TimeoutError:
                pass
            if not await self._is_token_valid():
                self._ended = True
                stream.close(POLICY_VIOLATION, "the access token is no longer good, or your role has changed")
                return

    async def _is_token_valid(self) -> bool:
        while True:
            self._changed.clear()
            try:
                good = await self._is_good()
            except registry.RegistryUnavailable as problem:
                log.warning("whether a token is still good cannot be told: %s", problem)
                good = not self._in_doubt
            except Exception:
                log.exception("looking whether a token is still good failed")
                good = not self._in_doubt
            if not self._changed.is_set():  # otherwise something changed while it was looked at
                break
        if good:
            self._in_doubt = False
            held, self._held = self._held, []
            if held and not self._ended:
                self._receiver.on_frames(held)
        return good
