"""A node of its own in a process, for who stops and kills it. Reads the key from stdin, tells its address on stdout."""

import asyncio
import sys

import msgspec
import uvloop

from switchtower.testing import mesh_contract
from switchtower.transports.mesh import identity
from switchtower.transports.mesh.mesh import TcpMesh
from switchtower.transports.mesh.ports import Peer
from switchtower.transports.pair import Inbox


async def main() -> None:
    key = msgspec.json.decode(sys.stdin.readline(), type=identity.Key)
    node_id, port = sys.argv[1:]
    mesh = TcpMesh(Peer(node_id, node_id, "0.1.0", node_id), key, host="127.0.0.1", port=int(port))
    await mesh.open()
    mesh.answers("echo", mesh_contract.echo)
    mesh.answers("never", mesh_contract.never)
    mesh.hosts("door", lambda _node_id, _opening: Inbox())
    print(mesh.address, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
