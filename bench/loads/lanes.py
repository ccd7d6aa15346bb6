"""Attaches to these sessions, one after the other, and stays for a moment. Tells by how much the daemon grew meanwhile."""

import asyncio

from bench.loads import peer, requests
from bench.processes import read_resident_bytes


async def load(socket: str, names: list[str], pid: int) -> int:
    before = read_resident_bytes(pid)
    watcher = await peer.PushLoadClient.connect(socket)
    for name in names:
        await watcher.ask(requests.attach(peer.next_number(), name, 0))
    await asyncio.sleep(0.2)
    grown = read_resident_bytes(pid) - before
    watcher.close()
    return grown


if __name__ == "__main__":
    peer.main(load)
