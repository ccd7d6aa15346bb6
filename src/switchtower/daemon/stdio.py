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
from switchtower.transports.stream import Debtor

ASK_AGAIN_SECONDS = 0.02
"""How often it is asked whether something is still owed."""


class Descriptors(NamedTuple):
    """Claimed for the protocol: nobody else reads or writes them."""

    input: int
    output: int


class PiStdio:
    def __init__(
        self,
        descriptors: Descriptors,
        settings: config.Settings,
        house: pi_doors.Reception,
        *,
        cwd: str,
        ended: Callable[[], None],
    ) -> None:
        from switchtower.transports.stdio import StdioConnection

        # Ids are the client's own choice, and whoever starts a process of its own counts from one again.
        self._ended = ended
        self._patience = settings.shutdown_timeout
        self._loop = asyncio.get_running_loop()
        access = Access(name="owner", via="cli", trusted=True, role=Role.ADMIN, address="local")
        self._receiver = receiver = house.accept(access, namespace=secrets.token_hex(8), cwd=cwd)
        self._connection = StdioConnection(
            receiver,
            descriptors.input,
            descriptors.output,
            max_line_bytes=settings.pi_max_frame_bytes,
            output_limit_bytes=settings.output_limit_bytes,
            ended=self._input_ended,
            complaint=pi_doors.oversize,
        )

    def open(self) -> None:
        self._connection.start()

    async def close(self) -> None:
        """What was said is written out, unless nobody takes it."""
        self._connection.close()
        await self._connection.wait_closed()

    def _input_ended(self) -> None:
        self._end_when_even(self._loop.time() + self._patience)

    def _end_when_even(self, deadline: float) -> None:
        if isinstance(self._receiver, Debtor) and self._receiver.owes() and self._loop.time() < deadline:
            self._loop.call_later(ASK_AGAIN_SECONDS, self._end_when_even, deadline)
        else:
            self._ended()
