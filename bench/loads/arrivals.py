"""When each piece of a slow stream arrives at a subscriber, on the clock that all processes share."""

import asyncio
import time
from typing import Any

from bench.loads import peer, requests
from bench.loads.report import report


class Listener(peer.PushLoadClient):
    def __init__(self) -> None:
        super().__init__()
        self.arrived_ns: list[int] = []

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self.arrived_ns += [now] * data.count(b'"assistant_token"')
        super().data_received(data)


async def load(socket: str, order: str, report_path: str) -> list[Any]:
    listener = await Listener.connect(socket)
    session_id = await listener.start_session(requests.start_session(peer.next_number()))
    done = listener.wait_for_last_frame()
    listener.send_frame(requests.send(peer.next_number(), session_id, order))
    async with asyncio.timeout(100):
        await done
    listener.close()
    await report(socket, report_path)
    return listener.arrived_ns


if __name__ == "__main__":
    peer.main(load)
