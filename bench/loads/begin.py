"""Begins so many sessions at a node, and tells their names."""

from bench.loads import peer, requests


async def load(socket: str, count: int) -> list[str]:
    starter = await peer.PushLoadClient.connect(socket)
    names = [await starter.start_session(requests.start_session(peer.next_number())) for _ in range(count)]
    starter.close()
    return names


if __name__ == "__main__":
    peer.main(load)
