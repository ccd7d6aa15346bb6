"""Kills a node in the middle of its runs, and waits for the first append in a session's next epoch. Told by the database."""

import asyncio
import os
import signal
import time
from typing import Any

from bench.loads import peer, requests
from switchtower.stores.postgres import database as postgres_database

POLL = 0.005


async def load(socket: str, pid: int, dsn: str, sessions: int) -> Any:
    control = await peer.PushLoadClient.connect(socket)
    names = []
    for _ in range(sessions):
        names.append(await control.start_session(requests.start_session(peer.next_number())))
        # It waits for a starting shot that never comes, so the run is active.
        await control.ask(requests.send(peer.next_number(), names[-1], "each 1"))
    database = await postgres_database.connect(dsn)
    query = "SELECT session_id, epoch, head FROM homes WHERE session_id = ANY ($1)"
    before = {name: (epoch, head) for name, epoch, head in await database.fetch(query, names)}
    os.kill(pid, signal.SIGKILL)
    killed = time.perf_counter()
    moved: dict[str, float] = {}
    async with asyncio.timeout(60):
        while len(moved) < sessions:
            for name, epoch, head in await database.fetch(query, names):
                if name not in moved and epoch > before[name][0] and head > before[name][1]:
                    moved[name] = time.perf_counter() - killed
            await asyncio.sleep(POLL)
    await database.close()
    return {"first": min(moved.values()), "last": max(moved.values())}


if __name__ == "__main__":
    peer.main(load)
