"""Meshes on loopback with one key, made once: it costs more than most tests."""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from switchtower.cluster.mesh import tls
from switchtower.cluster.mesh.link import LinkLimits
from switchtower.cluster.mesh.mesh import TcpMesh
from switchtower.cluster.mesh.ports import MeshPeer

if TYPE_CHECKING:
    from tests.contracts.mesh import MakeMeshes

pytest.register_assert_rewrite("tests.contracts.mesh")

MakeMesh = Callable[..., Awaitable[TcpMesh]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What never comes makes a test fail, not hang."""
    for item in items:
        if (
            isinstance(item, pytest.Function)
            and item.path.parent == Path(__file__).parent
            and inspect.iscoroutinefunction(item.obj)
        ):
            item.obj = _limit_time(item.obj)


def _limit_time(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def timed(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(60):
            await test(*args, **kwargs)

    return timed


def make_peer(node_id: str) -> MeshPeer:
    return MeshPeer(node_id=node_id, name=f"name of {node_id}", version="0.1.0", host_id=f"host of {node_id}")


@pytest.fixture(scope="session")
def key() -> tls.MeshKey:
    return tls.generate_key()


@pytest.fixture
async def make_mesh(key: tls.MeshKey) -> AsyncIterator[MakeMesh]:
    """An open mesh. It is closed at the end, if it is not before."""
    async with AsyncExitStack() as stack:

        async def make(node_id: str, *, key: tls.MeshKey = key, host: str = "127.0.0.1", port: int = 0, **limits: Any) -> TcpMesh:
            mesh = TcpMesh(make_peer(node_id), key, host=host, port=port, limits=LinkLimits(**limits))
            await mesh.open()
            stack.push_async_callback(mesh.close)
            return mesh

        yield make


@pytest.fixture
def make_meshes(make_mesh: MakeMesh) -> "MakeMeshes":
    from tests.contracts import mesh as contracts_mesh  # late: its assertions are rewritten

    async def make(count: int) -> list[TcpMesh]:
        meshes = [await make_mesh(f"node_{number}") for number in range(1, count + 1)]
        nodes = [(mesh.local_peer.node_id, mesh.address) for mesh in meshes]
        for mesh in meshes:
            mesh.update_nodes(nodes)
        for mesh in meshes:
            for node_id, _address in nodes:
                if node_id != mesh.local_peer.node_id:
                    await contracts_mesh.wait_until_met(mesh, node_id)
        return meshes

    return make
