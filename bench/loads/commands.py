"""Commands to one session over one connection, a fixed number in flight: such that are refused, and such that are stored.

The session is begun at one node and the commands are given at another, which is the same one for a comparison.
"""

import asyncio
import time
from typing import Any, cast

from bench.loads import peer, requests

REFUSED, STORED = "refused", "stored"


class Asker(asyncio.Protocol):
    """Whatever is answered is asked again at once, with another number."""

    def __init__(self, session_id: str, what: str, in_flight: int, seconds: float) -> None:
        self.done: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        """Answers a second, and how many."""
        self._session_id = session_id
        self._what = what
        self._in_flight = in_flight
        self._seconds = seconds
        self._answers = 0
        self._unfinished = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._began = time.perf_counter()
        self._ask(self._in_flight)

    def data_received(self, data: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        answers = [line for line in lines if b'"kind":"response"' in line]
        expected = b'"ok":true' if self._what == STORED else b'"ok":false'
        wrong = next((line for line in answers if expected not in line), None)
        if wrong is not None and not self.done.done():
            self.done.set_exception(RuntimeError(f"not what was expected: {wrong!r}"))
        self._answers += len(answers)
        elapsed = time.perf_counter() - self._began
        if elapsed < self._seconds:
            self._ask(len(answers))
        elif not self.done.done():
            self.done.set_result([self._answers / elapsed, self._answers])

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError("the server went away"))

    def _ask(self, count: int) -> None:
        self._transport.write(b"".join(make_command(self._what, self._session_id) + b"\n" for _ in range(count)))


def make_command(what: str, session_id: str) -> bytes:
    number = peer.next_number()
    if what == REFUSED:
        payload = {"runId": "run_01JCQ0000000000000000000000", "reason": "there is no such run"}
        return requests.request(number, "cancel_run", payload, session_id)
    return requests.request(number, "configure_session", {"title": f"title {number}"}, session_id)


async def load(socket: str, far_socket: str, what: str, in_flight: int, seconds: float) -> Any:
    starter = await peer.PushLoadClient.connect(socket)
    session_id = await starter.start_session(requests.start_session(peer.next_number()))
    loop = asyncio.get_running_loop()
    # Once before the clock runs, so that the way to the session's home is known.
    for share, wanted in ((0.05, 1), (seconds, in_flight)):
        transport, asker = await loop.create_unix_connection(
            lambda share=share, wanted=wanted: Asker(session_id, what, wanted, share),  # type: ignore[misc]
            far_socket,
        )
        async with asyncio.timeout(60):
            found = await asker.done
        transport.close()
    starter.close()
    return {"per_second": found[0], "count": found[1]}


if __name__ == "__main__":
    peer.main(load)
