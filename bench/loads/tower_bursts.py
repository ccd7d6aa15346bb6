"""Engines that stream in as many sessions on each of several nodes, all at once, while nobody listens. Returns when all is
committed and reported."""

import asyncio

from bench.loads import peer, requests
from bench.loads.report import report


async def load(sockets: list[str], sessions: int, order: str, report_paths: list[str]) -> None:
    for socket in sockets:
        control = await peer.PushLoadClient.connect(socket)
        for _ in range(sessions):
            session_id = await control.start_session(requests.start_session(peer.next_number()))
            await control.ask(requests.send(peer.next_number(), session_id, order))
        control.close()
    await asyncio.gather(*map(report, sockets, report_paths))


if __name__ == "__main__":
    peer.main(load)
