"""`list_sessions`, one after the other; how long one takes, in microseconds."""

import time
from statistics import median

from bench.loads import peer, requests


async def load(socket: str, limit: int, count: int) -> float:
    client = await peer.PushLoadClient.connect(socket)
    durations = []
    for _ in range(count):
        frame = requests.request(peer.next_number(), "list_sessions", {"limit": limit})
        began = time.perf_counter()
        answer = await client.ask(frame)
        durations.append((time.perf_counter() - began) * 1e6)
        assert answer.count(b'"updatedAt"') == limit, answer
    return median(durations)


if __name__ == "__main__":
    peer.main(load)
