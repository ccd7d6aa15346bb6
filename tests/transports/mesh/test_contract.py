"""The mesh's contract in memory and over TCP."""

import pytest

from switchtower.testing import mesh_contract, mesh_pair


class TestMemoryMesh(mesh_contract.MeshContract):
    @pytest.fixture
    def make_meshes(self) -> mesh_contract.MakeMeshes:
        async def make(count: int) -> mesh_contract.Meshes:
            return mesh_pair.make_cluster(count)

        return make


class TestTcpMesh(mesh_contract.MeshContract):
    @pytest.fixture
    def make_meshes(self, make_meshes: mesh_contract.MakeMeshes) -> mesh_contract.MakeMeshes:
        return make_meshes
