"""The host services in a cluster: questions about the disk of a session are sent to the node that owns it.

A caller that knows only a folder is served from this machine; so are the models, the tools and the breakers, which each node
has for itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from switchtower.cluster.mesh import ports
from switchtower.core import errors, events
from switchtower.core.ports import cluster, host_services
from switchtower.core.session import WorkspaceChange

log = logging.getLogger(__name__)

SUBJECT = "workshop"

HomeOf = Callable[[str], Awaitable[str | None]]
"""Returns the node that owns a session; None when this node does, or none does."""


def make_owner_lookup(leases_: cluster.Leases, node_id: str) -> HomeOf:
    """Looks up owners in the leases, from the point of view of this node."""

    async def home_of(session_id: str) -> str | None:
        try:
            lease = await leases_.find_owner(session_id)
        except cluster.LeasesUnavailable as problem:
            raise errors.OwnerUnreachable(session_id, hint=problem.hint) from problem
        return None if lease is None or lease.node_id == node_id else lease.node_id

    return home_of


class DiffQuery(Struct, tag="diff"):
    workspace: events.Workspace
    changes: tuple[WorkspaceChange, ...]


class TemplatesQuery(Struct, tag="templates"):
    workspace: str


class PresetsQuery(Struct, tag="presets"):
    workspace: str


Question = DiffQuery | TemplatesQuery | PresetsQuery


class HostServicesReply(Struct):
    answer: bytes | None = None
    """The encoded answer; only the requesting node knows its type."""
    refusal: str | None = None
    """The code of the refusal."""
    detail: str | None = None
    hint: str | None = None


T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode
_decode_query = msgspec.msgpack.Decoder(Question).decode
_decode_reply = msgspec.msgpack.Decoder(HostServicesReply).decode
_REFUSALS = {kind.code: kind for kind in errors.CoreError.__subclasses__()}


class ClusterHostServices:
    """Implements `HostServices`, by way of `make_cluster_host_services`."""

    def __init__(self, local: host_services.HostServices, mesh: ports.Mesh, find_owner: HomeOf) -> None:
        self._local = local
        self._mesh = mesh
        self._find_owner = find_owner
        self._tasks: set[asyncio.Task[None]] = set()
        mesh.handle_requests(SUBJECT, self._on_request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    def get_workspace(self, session_id: str) -> host_services.WorkspaceServices:
        return _ClusterWorkspaceServices(session_id, self._local, self._mesh, self._find_owner)

    def _on_request(self, node_id: str, body: bytes, reply: ports.ReplyCallback) -> None:
        async def answer() -> None:
            try:
                told = HostServicesReply(answer=_encode(await self._answer(_decode_query(body))))
            except errors.CoreError as refusal:
                told = _make_error_reply(refusal)
            except msgspec.MsgspecError:
                told = HostServicesReply(
                    refusal=errors.InvalidCommand.code, detail="the session's home does not know it", hint="upgrade all nodes"
                )
            except Exception:
                log.exception("what node %s asked of the workshop failed", node_id)
                told = _make_error_reply(errors.OwnerUnreachable("it failed at this", hint="see that node's log"))
            reply(_encode(told))

        task = asyncio.get_running_loop().create_task(answer())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, question: Question) -> object:
        match question:
            case DiffQuery():
                return await self._local.diff(question.workspace, question.changes)
            case TemplatesQuery():
                return list(await self._local.list_templates(question.workspace))
            case PresetsQuery():
                return list(await self._local.list_presets(question.workspace))


def _make_error_reply(refusal: errors.CoreError) -> HostServicesReply:
    return HostServicesReply(refusal=refusal.code, detail=refusal.detail, hint=refusal.hint)


def make_cluster_host_services(
    local: host_services.HostServices, mesh: ports.Mesh, find_owner: HomeOf
) -> host_services.HostServices:
    """Returns the whole port: calls that are not about one session are passed to the local services."""
    return cast("host_services.HostServices", ClusterHostServices(local, mesh, find_owner))


class _ClusterWorkspaceServices:
    """Implements `WorkspaceServices`."""

    def __init__(self, session_id: str, local: host_services.HostServices, mesh: ports.Mesh, find_owner: HomeOf) -> None:
        self._session_id = session_id
        self._local = local
        self._mesh = mesh
        self._find_owner = find_owner

    async def diff(self, workspace: events.Workspace, changes: Sequence[WorkspaceChange]) -> str:
        if (home := await self._find_owner(self._session_id)) is None:
            return await self._local.diff(workspace, changes)
        return await self._request(home, DiffQuery(workspace, tuple(changes)), str)

    async def list_templates(self, workspace: str) -> Sequence[host_services.TemplateInfo]:
        if (home := await self._find_owner(self._session_id)) is None:
            return await self._local.list_templates(workspace)
        return await self._request(home, TemplatesQuery(workspace), list[host_services.TemplateInfo])

    async def list_presets(self, workspace: str) -> Sequence[host_services.PresetInfo]:
        if (home := await self._find_owner(self._session_id)) is None:
            return await self._local.list_presets(workspace)
        return await self._request(home, PresetsQuery(workspace), list[host_services.PresetInfo])

    async def _request(self, node_id: str, question: Question, answer_type: type[T]) -> T:
        answered: asyncio.Future[bytes | ports.MeshProblem] = asyncio.get_running_loop().create_future()

        def done(answer: bytes | ports.MeshProblem) -> None:
            if not answered.done():
                answered.set_result(answer)

        self._mesh.request(node_id, SUBJECT, _encode(question), done)
        answer = await answered
        if not isinstance(answer, bytes):
            raise errors.OwnerUnreachable(self._session_id, hint="ask again in a moment")
        try:
            told = _decode_reply(answer)
            if told.answer is not None:
                return msgspec.msgpack.decode(told.answer, type=answer_type)
        except msgspec.MsgspecError:
            raise errors.OwnerUnreachable(self._session_id, hint="its answer could not be read: upgrade all nodes") from None
        raise _REFUSALS.get(told.refusal or "", errors.OwnerUnreachable)(told.detail, hint=told.hint)
