"""What a process of a run tries in order to act for the owner, at every listener. Run by itself, inside a run:

    python run_attacker.py WAY TARGET.json REPORT.json

`TARGET.json` names the listeners and the approval of another session; the answers go to `REPORT.json`.
"""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from switchtower.protocols.push import messages
from switchtower.testing.pi_client import PiClient
from switchtower.testing.push_client import PushClient
from switchtower.testing.wire import ClientWire, SocketWire, UpgradeRefused, WebSocketWire

UNREACHABLE, CLOSED = "unreachable", "closed"
Target = dict[str, Any]


def request_approval(target: Target) -> dict[str, Any]:
    session_id = target["session"]
    payload = {"sessionId": session_id, "approvalId": target["approval"], "runId": target["run"], "decision": "approve"}
    return {
        "v": messages.VERSION,
        "kind": "request",
        "requestId": "req_1",
        "type": "submit_approval",
        "sessionId": session_id,
        "payload": payload,
    }


async def attempt(what: Awaitable[Any]) -> Any:
    try:
        async with asyncio.timeout(60):
            return await what
    except UpgradeRefused as refused:
        return refused.status
    except EOFError:
        return CLOSED
    except (BrokenPipeError, ConnectionResetError, asyncio.IncompleteReadError):
        return CLOSED
    except OSError:
        return UNREACHABLE


async def decide_over_push(target: Target) -> Any:
    async with await PushClient.connect_socket(target["socket"]) as push:
        await push.send_frames(request_approval(target))
        return (await push.wait_for_response()).code or "approved"


async def open_websocket(target: Target, path: str) -> Any:
    await WebSocketWire.open(target["http"], target["token"], path)
    return "open"


async def connect_as_host(target: Target) -> Any:
    await WebSocketWire.open(target["http"], None, "/ws/host?host_id=host_forged&host_token=0123456789")
    return "open"


async def greet_pi(wire: ClientWire) -> Any:
    try:
        return (await PiClient(wire).receive())["type"]
    except EOFError:
        return getattr(wire, "close_code", None) or CLOSED


async def connect_pi_port(target: Target, token: str | None) -> Any:
    return await greet_pi(await WebSocketWire.open(target["pi"].replace("ws://", "http://"), token, path="/"))


async def connect_pi_socket(target: Target) -> Any:
    return await greet_pi(await SocketWire.open(target["piSocket"]))


def rename_request(target: Target, host: str) -> bytes:
    body = b'{"title":"renamed by a run"}'
    head = f"PATCH /runs/{target['session']} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {target['token']}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def rename_over_http(target: Target) -> Any:
    address = urlsplit(target["http"])
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(rename_request(target, address.netloc))
    return int((await reader.readuntil(b"\r\n")).split()[1])


async def decide_at_host_socket(target: Target) -> Any:
    reader, writer = await asyncio.open_unix_connection(target["hostd_socket"])
    body = json.dumps({"request_id": target["approval"], "decision": "approve"}).encode()
    head = f"POST /runs/{target['session']}/permission HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    return int((await reader.readuntil(b"\r\n")).split()[1])


async def everywhere(target: Target) -> dict[str, Any]:
    """Plainly, at each listener."""
    return {
        "push": await attempt(decide_over_push(target)),
        "ws push": await attempt(open_websocket(target, "/ws/push")),
        "ws app": await attempt(open_websocket(target, "/ws/app")),
        "ws minicodex": await attempt(open_websocket(target, "/ws/minicodex")),
        "ws pi": await attempt(open_websocket(target, "/ws/pi")),
        "ws host": await attempt(connect_as_host(target)),
        "http": await attempt(rename_over_http(target)),
        "pi": await attempt(connect_pi_port(target, None)),
        "pi with token": await attempt(connect_pi_port(target, target["token"])),
        "pi socket": await attempt(connect_pi_socket(target)),
        "host socket": await attempt(decide_at_host_socket(target)),
    }


def connected_by_a_child(target: Target) -> dict[str, Any]:
    """A child connects and ends at once; its parent, whom the kernel does not name, decides over the connection."""
    answers: set[str] = set()
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as shared:
            shared.settimeout(20)
            if os.fork() == 0:
                shared.connect(target["socket"])
                os._exit(0)
            os.wait()
            try:
                shared.sendall(json.dumps(request_approval(target)).encode() + b"\n")
                answer = shared.recv(65_536)
            except OSError:
                answer = b""
            answers.add(str((json.loads(answer)["error"] or {}).get("code", "approved")) if answer else CLOSED)
    return {"push": sorted(answers)}


def asked_by_a_child_that_ends(target: Target) -> dict[str, Any]:
    """A child connects, asks and ends, so that nothing is left of it when the daemon looks. Nothing can be read of the answers;
    whether the session was renamed, and whether the approval was given, the test sees from outside."""
    address = urlsplit(target["http"])
    assert address.hostname is not None
    for _ in range(40):
        if os.fork() == 0:
            with socket.create_connection((address.hostname, address.port or 0)) as over_http:
                over_http.sendall(rename_request(target, address.netloc))
            with socket.socket(socket.AF_UNIX) as over_push:
                over_push.connect(target["socket"])
                over_push.sendall(json.dumps(request_approval(target)).encode() + b"\n")
                os._exit(0)
        os.wait()
    return {}


def passed_in_flight(target: Target) -> dict[str, Any]:
    """The connection's only descriptor is on its way between two processes when the daemon looks for who holds it."""
    address = urlsplit(target["http"])
    ours, theirs = socket.socketpair()
    answers = set()
    for _ in range(10):
        over_http = socket.create_connection((address.hostname or "", address.port or 0))
        over_http.settimeout(20)
        socket.send_fds(ours, [b"x"], [over_http.fileno()])
        over_http.sendall(rename_request(target, address.netloc))
        over_http.close()
        [descriptor] = _received_later(theirs)
        with socket.socket(fileno=descriptor) as taken:
            taken.settimeout(20)
            answers.add(int(taken.recv(65_536).split()[1]))
    return {"http": sorted(answers)}


def _received_later(theirs: socket.socket) -> list[int]:
    import time

    time.sleep(0.2)  # long enough for the daemon to look; it is the attacker who waits here, and no test depends on it
    return list(socket.recv_fds(theirs, 1, 1)[1])


def unreadable(target: Target) -> dict[str, Any]:
    """A process whose descriptors no other process of its user may list."""
    import ctypes

    assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0  # PR_SET_DUMPABLE
    return asyncio.run(everywhere(target))


def main() -> None:
    way, target, report = sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[3])
    ways = {
        "everywhere": lambda: asyncio.run(everywhere(target)),
        "connected_by_a_child": lambda: connected_by_a_child(target),
        "asked_by_a_child_that_ends": lambda: asked_by_a_child_that_ends(target),
        "passed_in_flight": lambda: passed_in_flight(target),
        "unreadable": lambda: unreadable(target),
    }
    answers = ways[way]()
    whole = report.with_suffix(".part")
    whole.write_text(json.dumps(answers))
    whole.rename(report)


if __name__ == "__main__":
    main()
