"""Slow streams in so many sessions of one node, each watched by clients of its own at a given node, or by nobody."""

import asyncio
from typing import Any

from bench.loads import peer, requests


async def load(socket: str, far_socket: str | None, sessions: int, events: int, pause_us: int, clients: int = 1) -> Any:
    starter = await peer.PushLoadClient.connect(socket)
    names = [await starter.start_session(requests.start_session(peer.next_number())) for _ in range(sessions)]
    watchers = []
    for name in names * clients if far_socket is not None else ():
        watcher = await peer.PushLoadClient.connect(far_socket)
        await watcher.ask(requests.attach(peer.next_number(), name, 0))
        watchers.append(watcher)
    starter.close()
    sender = await peer.PushLoadClient.connect(socket)
    ends = [watcher.wait_for_last_frame() for watcher in watchers]
    for name in names:
        await sender.ask(requests.send(peer.next_number(), name, f"random {events} {pause_us}"))
    async with asyncio.timeout(100):
        if ends:
            await asyncio.gather(*ends)
        else:
            await asyncio.gather(*(_has_ended(socket, name) for name in names))
    for connection in (sender, *watchers):
        connection.close()
    return {"events": sessions * events, "bytes": sum(watcher.bytes_received for watcher in watchers)}


async def _has_ended(socket: str, session_id: str) -> None:
    """Looks now and then, so that next to nothing is added to what is measured."""
    while True:
        looker = await peer.PushLoadClient.connect(socket)
        answer = await looker.ask(requests.request(peer.next_number(), "get_session", {}, session_id))
        looker.close()
        if b'"activeRunId":"' not in answer:
            return
        await asyncio.sleep(0.5)


if __name__ == "__main__":
    peer.main(load)
