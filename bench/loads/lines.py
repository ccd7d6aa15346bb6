"""The commands of the load `commands` to a bare server, which knows no sessions."""

import asyncio
from typing import Any

from bench.loads import peer
from bench.loads.commands import Asker


async def load(socket: str, what: str, in_flight: int, seconds: float) -> Any:
    loop = asyncio.get_running_loop()
    transport, asker = await loop.create_unix_connection(
        lambda: Asker("sess_01JCQ0000000000000000000000", what, in_flight, seconds), socket
    )
    async with asyncio.timeout(60):
        rate, count = await asker.done
    transport.close()
    return {"per_second": rate, "count": count}


if __name__ == "__main__":
    peer.main(load)
