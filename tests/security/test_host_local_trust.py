"""`new_hosts = local`: only a process of the owner, on this machine and for itself, is a trusted host at its first visit."""

import asyncio
import os
import shlex
import shutil
import subprocess
import sys

import pytest
from tests.relay.seen import get_refusal_status
from tests.relay.stage import TIMEOUT, RelayNetwork
from tests.relay.stage import relay_network as relay_network
from tests.security import ordinary_user

NOBODY = 65_534
VISIT = """
import encodings.idna, os, socket, sys
host, port, host_id, uid = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
if uid != os.getuid():
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
with socket.create_connection((host, port), timeout=60) as made:
    made.sendall((
        f"GET /ws/host?host_id={host_id} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n"
        f"Authorization: Bearer token-of-{host_id}-0123456789\\r\\n"
        "Upgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Version: 13\\r\\n"
        "Sec-WebSocket-Key: c2l4dGVlbiBieXRlcyBvaw==\\r\\n\\r\\n"
    ).encode())
    print(made.recv(4096).split()[1].decode())
"""
"""Comes to a hub as a host, and prints the status that it was answered with."""


async def visit(hub_url: str, host_id: str, *, uid: int | None = None, before: tuple[str, ...] = ()) -> "tuple[int, str, str]":
    """By a process of its own: its exit code, and what it said."""
    host, _, port = hub_url.removeprefix("http://").rpartition(":")
    who = str(os.getuid() if uid is None else uid)
    command = [*before, sys.executable, "-c", VISIT, host, port, host_id, who]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    return done.returncode, done.stdout.strip(), done.stderr


async def test_a_process_of_the_owner_is_trusted(relay_network: RelayNetwork) -> None:
    hub = await relay_network.open_hub()
    assert await visit(hub.url, "near") == (0, "101", "")
    assert (await hub.http.list_hosts())["near"]["state"] == "approved"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
async def test_another_user_of_this_machine_waits_to_be_approved(relay_network: RelayNetwork) -> None:
    hub = await relay_network.open_hub()
    assert await visit(hub.url, "stranger", uid=NOBODY) == (0, "403", "")
    assert (await hub.http.list_hosts())["stranger"]["state"] == "pending"


def make_container_prefix() -> tuple[str, ...]:
    """The words before a command that runs it in a process namespace."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no `unshare`, which makes a process namespace")
    user = () if os.geteuid() == 0 else ("--user", "--map-current-user")
    enter = ("unshare", *user, "--pid", "--fork")
    tried = subprocess.run([*enter, "true"], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if tried.returncode:
        pytest.skip(f"process namespaces are not allowed here: {tried.stderr.strip()}")
    return enter


async def test_a_process_in_a_container_waits_to_be_approved(relay_network: RelayNetwork) -> None:
    """Of the owner's uid, in the machine's own network, and in a process namespace of its own."""
    enter = make_container_prefix()
    hub = await relay_network.open_hub()
    assert await visit(hub.url, "contained", before=enter) == (0, "403", "")
    assert (await hub.http.list_hosts())["contained"]["state"] == "pending"


ZOMBIE = """
import os, sys
child = os.fork()
if not child:
    os._exit(0)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
print("ended", flush=True)
sys.stdin.read()
"""
"""Leaves a child that has ended and whose exit code is not read, until its input is closed."""


async def test_an_ended_process_of_a_container_does_not_keep_the_owner_out(relay_network: RelayNetwork) -> None:
    """Its files look closed to its own user, as those of a process that hides them; but it holds no connection."""
    enter = make_container_prefix()
    hub = await relay_network.open_hub()
    container = subprocess.Popen(
        [*enter, sys.executable, "-c", ZOMBIE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert container.stdout is not None
        assert await asyncio.to_thread(container.stdout.readline) == "ended\n"
        assert await visit(hub.url, "near") == (0, "101", "")
    finally:
        await asyncio.to_thread(container.communicate, "")


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
async def test_what_a_proxy_forwards_waits_to_be_approved(relay_network: RelayNetwork, header: str) -> None:
    hub = await relay_network.open_hub()
    assert await get_refusal_status(relay_network.connect_host("proxied", headers={header: "203.0.113.9"})) == 403
    assert (await hub.http.list_hosts())["proxied"]["state"] == "pending"


async def test_a_page_is_no_host_of_this_machine(relay_network: RelayNetwork) -> None:
    """The browser has the owner's uid, and shows pages of anybody; one of the hub's own origin gets as far as this."""
    hub = await relay_network.open_hub()
    assert await get_refusal_status(relay_network.connect_host("page", headers={"Origin": hub.url})) == 403
    assert (await hub.http.list_hosts()).get("page", {"state": "unknown"})["state"] != "approved"


@pytest.mark.parametrize("new_hosts", ["local", "trust"])
async def test_a_process_of_a_run_is_no_host(relay_network: RelayNetwork, new_hosts: str) -> None:
    hub = await relay_network.open_hub(new_hosts=new_hosts, policy="yolo", sandbox="local")
    await (await relay_network.connect_host("known")).wait_until_read()
    (hub.workspace / "visit.py").write_text(VISIT)
    host, _, port = hub.url.removeprefix("http://").rpartition(":")
    visits = " && ".join(
        f"{shlex.quote(sys.executable)} visit.py {host} {port} {host_id} {os.getuid()} >> told.txt"
        for host_id in ("inside", "known")
    )
    async with await hub.push() as push:
        session = await push.start_session(hub.workspace)
        await push.run(session.session_id, f"run: {visits}")
    assert (hub.workspace / "told.txt").read_text().split() == ["403", "403"]
    assert "inside" not in await hub.http.list_hosts()


def test_all_of_this_as_an_ordinary_user() -> None:
    """For whom the files of other processes, and of a daemon that hides its own, are closed."""
    ordinary_user.run_tests("tests/security/test_host_local_trust.py")
