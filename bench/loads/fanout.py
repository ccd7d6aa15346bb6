"""One session's stream to many subscribers, all in this process: from the message that starts it to the last one's last frame."""

import asyncio
import time
from typing import Any

from bench.loads import peer, requests


async def load(
    subscribers: int, order: str, deltas: int, socket: str | None = None, http: str | None = None, token: str = ""
) -> dict[str, Any]:
    first = await peer.PushLoadClient.connect(socket, http, token)
    session_id = await first.start_session(requests.start_session(peer.next_number()))
    others = []
    for _ in range(subscribers - 1):
        other = await peer.PushLoadClient.connect(socket, http, token)
        await other.ask(requests.attach(peer.next_number(), session_id, 1))
        others.append(other)
    watched = [first.wait_for_last_frame(keep=True), *(other.wait_for_last_frame() for other in others)]
    began = time.perf_counter()
    first.send_frame(requests.send(peer.next_number(), session_id, order))
    async with asyncio.timeout(100):
        ended = max(await asyncio.gather(*watched))
    assert first.kept is not None
    delivered = b"".join(first.kept).count(b'"assistant_token"')
    assert delivered == deltas, f"{delivered} of {deltas} arrived"
    assert len({other.bytes_received for other in others}) <= 1, "every subscriber is sent the same"
    return {"deliveries_per_second": subscribers * deltas / (ended - began), "seconds": ended - began}


if __name__ == "__main__":
    peer.main(load)
