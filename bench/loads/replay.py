"""One client that attaches at the very beginning of a long session, until it has been sent the last frame."""

import asyncio
import time

from bench.loads import peer, requests


async def load(socket: str, session_id: str, events: int) -> float:
    client = await peer.PushLoadClient.connect(socket)
    done = client.wait_for_last_frame(keep=True)
    began = time.perf_counter()
    client.send_frame(requests.attach(peer.next_number(), session_id, 0))
    async with asyncio.timeout(100):
        ended = await done
    assert client.kept is not None
    received = b"".join(client.kept).count(b'"kind":"event"')
    assert received == events, f"{received} of {events} arrived"
    return events / (ended - began)


if __name__ == "__main__":
    peer.main(load)
