"""The mesh's contract in memory and over TCP."""

import pytest
from tests.contracts import mesh

from switchtower.testing.memory import mesh as memory_mesh


class TestMemoryMesh(mesh.MeshContract):
    @pytest.fixture
    def make_meshes(self) -> mesh.MakeMeshes:
        async def make(count: int) -> mesh.Meshes:
            return memory_mesh.make_cluster(count)

        return make


class TestTcpMesh(mesh.MeshContract):
    @pytest.fixture
    def make_meshes(self, make_meshes: mesh.MakeMeshes) -> mesh.MakeMeshes:
        return make_meshes
