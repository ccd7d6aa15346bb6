"""So many WebSockets that have asked once and then only wait. Tells by how much the daemon grew meanwhile."""

import asyncio

from bench.loads import peer, requests
from bench.processes import read_resident_bytes


async def load(http: str, token: str, count: int, pid: int) -> int:
    before = read_resident_bytes(pid)
    crowd = []
    for _ in range(count):
        crowd.append(await peer.PushLoadClient.connect(http=http, token=token))
        await crowd[-1].ask(requests.request(peer.next_number(), "ping", {}))
    await asyncio.sleep(0.2)
    grown = read_resident_bytes(pid) - before
    for client in crowd:
        client.close()
    return grown


if __name__ == "__main__":
    peer.main(load)
