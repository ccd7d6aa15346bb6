"""What the disk of a session's home can tell is asked of that node; all else is answered here."""

from collections.abc import Sequence

import pytest

from switchtower.cluster import host_services as cluster_host_services
from switchtower.core import errors, events
from switchtower.core.ports import host_services
from switchtower.core.session import WorkspaceChange
from switchtower.testing.host_services import StubHostServices
from switchtower.testing.memory.mesh import MemoryMesh, make_pair

CHANGES = (WorkspaceChange("run_1", "aaa", "bbb"), WorkspaceChange("run_2", "bbb"))
FOLDER = events.Workspace(root="/work", branch="main")


class NamedHostServices(StubHostServices):
    """Says whose disk it is that was looked at."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.failure: Exception | None = None

    async def diff(self, workspace: events.Workspace, changes: Sequence[WorkspaceChange]) -> str:
        if self.failure is not None:
            raise self.failure
        return f"{self.name} {workspace.root} {workspace.branch} {changes[-1].run_id} {changes[-1].after}"

    async def list_templates(self, workspace: str) -> Sequence[host_services.TemplateInfo]:
        return [host_services.TemplateInfo(self.name, "skill", "", workspace, "user")]

    async def list_presets(self, workspace: str) -> Sequence[host_services.PresetInfo]:
        return [host_services.PresetInfo(name=self.name, origin="user", path=workspace, servers=("a", "b"))]


class HostServiceNodes:
    """Two of them; `homes` says which sessions live at the second one."""

    def __init__(self) -> None:
        self.homes: set[str] = {"sess_far"}
        self.meshes: tuple[MemoryMesh, MemoryMesh] = make_pair()
        self.disks = NamedHostServices("here"), NamedHostServices("there")
        self.here, self.there = (
            cluster_host_services.make_cluster_host_services(disk, mesh, self._find_home)
            for disk, mesh in zip(self.disks, self.meshes, strict=True)
        )

    async def _find_home(self, session_id: str) -> str | None:
        return self.meshes[1].local_peer.node_id if session_id in self.homes else None


@pytest.fixture
async def nodes() -> HostServiceNodes:
    return HostServiceNodes()


async def test_a_session_with_its_home_elsewhere_is_looked_at_there(nodes: HostServiceNodes) -> None:
    site = nodes.here.get_workspace("sess_far")
    assert await site.diff(FOLDER, CHANGES) == "there /work main run_2 None"
    assert await site.list_templates("/work") == [host_services.TemplateInfo("there", "skill", "", "/work", "user")]
    assert await site.list_presets("/work") == [
        host_services.PresetInfo(name="there", origin="user", path="/work", servers=("a", "b"))
    ]


async def test_a_session_of_this_node_is_looked_at_here(nodes: HostServiceNodes) -> None:
    site = nodes.here.get_workspace("sess_near")
    assert (await site.diff(FOLDER, CHANGES)).startswith("here ")
    assert (await site.list_templates("/work"))[0].name == "here"
    assert (await site.list_presets("/work"))[0].name == "here"


async def test_who_knows_only_a_folder_is_answered_from_this_machine(nodes: HostServiceNodes) -> None:
    assert (await nodes.here.list_templates("/work"))[0].name == "here"
    assert (await nodes.here.list_presets("/work"))[0].name == "here"
    assert (await nodes.here.list_models())[0].name == "demo"
    assert nodes.here.kill_processes("run_1") == 0
    assert nodes.disks[0].killed == ["run_1"]


async def test_a_refusal_is_the_same_wherever_it_comes_from(nodes: HostServiceNodes) -> None:
    nodes.disks[1].failure = errors.NothingToRestore("no repository", hint="run `git init`")
    with pytest.raises(errors.NothingToRestore) as refused:
        await nodes.here.get_workspace("sess_far").diff(FOLDER, CHANGES)
    assert refused.value.message == nodes.disks[1].failure.message


async def test_a_bug_there_tells_nothing_of_itself(nodes: HostServiceNodes) -> None:
    nodes.disks[1].failure = RuntimeError("/home/owner/.ssh/id_ed25519")
    with pytest.raises(errors.OwnerUnreachable) as refused:
        await nodes.here.get_workspace("sess_far").diff(FOLDER, CHANGES)
    assert "ssh" not in refused.value.message


async def test_a_home_that_cannot_be_reached_is_said_to_be_so(nodes: HostServiceNodes) -> None:
    await nodes.meshes[1].close()
    with pytest.raises(errors.OwnerUnreachable):
        await nodes.here.get_workspace("sess_far").list_templates("/work")


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x80", b"\xff" * 100])
async def test_a_question_that_cannot_be_read_is_refused(nodes: HostServiceNodes, body: bytes) -> None:
    replies: list[bytes] = []
    subjects = nodes.meshes[1]._subjects
    subjects.answerers[cluster_host_services.SUBJECT]("node_1", body, replies.append)
    # It is still there for the next one.
    assert await nodes.here.get_workspace("sess_far").list_templates("/work")
    (reply,) = replies
    assert b"INVALID_COMMAND" in reply
