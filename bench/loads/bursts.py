"""Engines that stream all at once, in as many sessions, while nobody listens. Returns when all is committed and reported."""

from bench.loads import peer, requests
from bench.loads.report import report


async def load(socket: str, sessions: int, order: str, report_path: str) -> None:
    control = await peer.PushLoadClient.connect(socket)
    for _ in range(sessions):
        session_id = await control.start_session(requests.start_session(peer.next_number()))
        await control.ask(requests.send(peer.next_number(), session_id, order))
    control.close()
    await report(socket, report_path)


if __name__ == "__main__":
    peer.main(load)
