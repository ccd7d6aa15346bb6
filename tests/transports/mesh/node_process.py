"""A node of its own in a process, for who stops and kills it. Reads the key from stdin, tells its address on stdout."""

import asyncio
import sys

import msgspec
import uvloop
from tests.contracts import mesh as contracts_mesh

from switchtower.cluster.mesh import tls
from switchtower.cluster.mesh.mesh import TcpMesh
from switchtower.cluster.mesh.ports import MeshPeer
from switchtower.testing.memory.stream import RecordingReceiver


async def main() -> None:
    key = msgspec.json.decode(sys.stdin.readline(), type=tls.MeshKey)
    node_id, port = sys.argv[1:]
    mesh = TcpMesh(MeshPeer(node_id, node_id, "0.1.0", node_id), key, host="127.0.0.1", port=int(port))
    await mesh.open()
    mesh.handle_requests("echo", contracts_mesh.reply_echo)
    mesh.handle_requests("never", contracts_mesh.reply_never)
    mesh.accept_tunnels("door", lambda _node_id, _opening: RecordingReceiver())
    print(mesh.address, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
