"""The daemon's own stdin and stdout as one client of the pi protocol. When the input ends, so does the daemon.

What was asked before that is answered first, as far as the client's receiver can tell that something is still owed.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import NamedTuple

from switchtower import config
from switchtower.core.access import Access
from switchtower.core.roles import Role
from switchtower.daemon import pi_doors
from switchtower.transports.stream import RespondingReceiver

POLL_SECONDS = 0.02
"""How often it is asked whether something is still owed."""


class StdioDescriptors(NamedTuple):
    """Claimed for the protocol: nobody else reads or writes them."""

    input: int
    output: int


class StdioPiClient:
    def __init__(
        self,
        descriptors: StdioDescriptors,
        settings: config.Settings,
        server: pi_doors.PiServerPort,
        *,
        cwd: str,
        ended: Callable[[], None],
    ) -> None:
        from switchtower.transports.stdio import StdioConnection

        # Ids are the client's own choice, and whoever starts a process of its own counts from one again.
        self._ended = ended
        self._timeout = settings.shutdown_timeout
        self._loop = asyncio.get_running_loop()
        access = Access(name="owner", via="cli", trusted=True, role=Role.ADMIN, address="local")
        self._receiver = receiver = server.accept(access, namespace=secrets.token_hex(8), cwd=cwd)
        self._connection = StdioConnection(
            receiver,
            descriptors.input,
            descriptors.output,
            max_line_bytes=settings.pi_max_frame_bytes,
            output_limit_bytes=settings.output_limit_bytes,
            ended=self._on_input_end,
            complaint=pi_doors.describe_oversized_frame,
        )

    def open(self) -> None:
        self._connection.start()

    async def close(self) -> None:
        """What was said is written out, unless nobody takes it."""
        self._connection.close()
        await self._connection.wait_closed()

    def _on_input_end(self) -> None:
        self._stop_when_answered(self._loop.time() + self._timeout)

    def _stop_when_answered(self, deadline: float) -> None:
        if (
            isinstance(self._receiver, RespondingReceiver)
            and self._receiver.has_pending_responses()
            and self._loop.time() < deadline
        ):
            self._loop.call_later(POLL_SECONDS, self._stop_when_answered, deadline)
        else:
            self._ended()
