"""Notices of a node that is not there, as many as wanted: what all others hear of each commit, and none of them follows it."""

from bench.loads import peer
from switchtower.stores.postgres import database, pool


async def load(dsn: str, count: int, sessions: int) -> None:
    connection = await database.connect(dsn)
    moved = {f"sess_01JCQ{number:022d}": (1, 2) for number in range(sessions)}
    text = pool.encode_notice("node_bench", moved)
    for _ in range(count):
        await connection.fetchval("SELECT pg_notify($1, $2)", pool.CHANNEL, text)
    await connection.close()


if __name__ == "__main__":
    peer.main(load)
