"""Milliseconds from one message to the whole of its answer, each over a connection of its own."""

import re
import time

from bench.loads import peer
from bench.loads.pi import PiLoadClient, frame_message

_END = re.compile(rb'"event_id":1}')


async def load(url: str, times: int) -> float:
    took = []
    for _ in range(times):
        client = await PiLoadClient.connect(url, until=rb"HTTP/1.1 101[^\0]*\r\n\r\n")
        began = time.perf_counter()
        await client.exchange(frame_message(b"{}"), _END)
        took.append((time.perf_counter() - began) * 1_000)
        client.close()
    return sorted(took)[len(took) // 2]


if __name__ == "__main__":
    peer.main(load)
