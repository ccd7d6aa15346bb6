"""Asks the daemon under test to write down what it noted since the last time."""

from bench.loads import peer, requests


async def report(socket: str, report_path: str) -> None:
    control = await peer.PushLoadClient.connect(socket)
    session_id = await control.start_session(requests.start_session(peer.next_number()))
    done = control.wait_for_last_frame()
    control.send_frame(requests.send(peer.next_number(), session_id, f"report {report_path}"))
    await done
    control.close()


if __name__ == "__main__":
    peer.main(report)
