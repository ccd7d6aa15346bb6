"""When each piece of a slow stream of one node arrives at a subscriber of another, on the clock that all processes share."""

import asyncio

from bench.loads import peer, requests
from bench.loads.arrivals import Listener
from bench.loads.report import report


async def load(socket: str, far_socket: str, order: str, report_path: str) -> list[int]:
    starter = await peer.PushLoadClient.connect(socket)
    session_id = await starter.start_session(requests.start_session(peer.next_number()))
    listener = await Listener.connect(far_socket)
    await listener.ask(requests.attach(peer.next_number(), session_id, 0))
    done = listener.wait_for_last_frame()
    await starter.ask(requests.send(peer.next_number(), session_id, order))
    async with asyncio.timeout(100):
        await done
    starter.close()
    listener.close()
    await report(socket, report_path)
    return listener.arrived_ns


if __name__ == "__main__":
    peer.main(load)
