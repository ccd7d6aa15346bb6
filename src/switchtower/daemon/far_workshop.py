"""The workshop where there are several nodes: what the disk of a session's home can tell is asked of that node.

Who knows only a folder is answered from this machine's, as before: so are the models, the tools and the breakers, which each
node has for itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from switchtower.core import errors, events, leases, workshop
from switchtower.core.timeline import Change
from switchtower.transports.mesh import ports

log = logging.getLogger(__name__)

SUBJECT = "workshop"

HomeOf = Callable[[str], Awaitable[str | None]]
"""The node that is a session's home; None when that is this one, or nobody's."""


def homes(leases_: leases.Leases, node_id: str) -> HomeOf:
    """As the leases have it, seen from this node."""

    async def home_of(session_id: str) -> str | None:
        try:
            lease = await leases_.owner(session_id)
        except leases.LeasesUnavailable as problem:
            raise errors.HomeUnreachable(session_id, hint=problem.hint) from problem
        return None if lease is None or lease.node_id == node_id else lease.node_id

    return home_of


class Diff(Struct, tag="diff"):
    workspace: events.Workspace
    changes: tuple[Change, ...]


class Templates(Struct, tag="templates"):
    workspace: str


class Presets(Struct, tag="presets"):
    workspace: str


Question = Diff | Templates | Presets


class Told(Struct):
    answer: bytes | None = None
    """What was asked for, packed by itself: what it is only the asker knows."""
    refusal: str | None = None
    """The refusal's code."""
    detail: str | None = None
    hint: str | None = None


T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode
_question = msgspec.msgpack.Decoder(Question).decode
_told = msgspec.msgpack.Decoder(Told).decode
_REFUSALS = {kind.code: kind for kind in errors.CoreError.__subclasses__()}


class FarWorkshop:
    """Implements `workshop.Workshop`, by way of `shared`."""

    def __init__(self, here: workshop.Workshop, mesh: ports.Mesh, home_of: HomeOf) -> None:
        self._here = here
        self._mesh = mesh
        self._home_of = home_of
        self._tasks: set[asyncio.Task[None]] = set()
        mesh.answers(SUBJECT, self._asked)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._here, name)

    def of(self, session_id: str) -> workshop.Site:
        return _FarSite(session_id, self._here, self._mesh, self._home_of)

    def _asked(self, node_id: str, body: bytes, reply: ports.Reply) -> None:
        async def answer() -> None:
            try:
                told = Told(answer=_encode(await self._answer(_question(body))))
            except errors.CoreError as refusal:
                told = _refused(refusal)
            except msgspec.MsgspecError:
                told = Told(
                    refusal=errors.InvalidCommand.code, detail="the session's home does not know it", hint="upgrade all nodes"
                )
            except Exception:
                log.exception("what node %s asked of the workshop failed", node_id)
                told = _refused(errors.HomeUnreachable("it failed at this", hint="see that node's log"))
            reply(_encode(told))

        task = asyncio.get_running_loop().create_task(answer())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, question: Question) -> object:
        match question:
            case Diff():
                return await self._here.diff(question.workspace, question.changes)
            case Templates():
                return list(await self._here.templates(question.workspace))
            case Presets():
                return list(await self._here.presets(question.workspace))


def _refused(refusal: errors.CoreError) -> Told:
    return Told(refusal=refusal.code, detail=refusal.detail, hint=refusal.hint)


def shared(here: workshop.Workshop, mesh: ports.Mesh, home_of: HomeOf) -> workshop.Workshop:
    """The whole port: what is not about one session is passed on as it is."""
    return cast("workshop.Workshop", FarWorkshop(here, mesh, home_of))


class _FarSite:
    """Implements `workshop.Site`."""

    def __init__(self, session_id: str, here: workshop.Workshop, mesh: ports.Mesh, home_of: HomeOf) -> None:
        self._session_id = session_id
        self._here = here
        self._mesh = mesh
        self._home_of = home_of

    async def diff(self, workspace: events.Workspace, changes: Sequence[Change]) -> str:
        if (home := await self._home_of(self._session_id)) is None:
            return await self._here.diff(workspace, changes)
        return await self._ask(home, Diff(workspace, tuple(changes)), str)

    async def templates(self, workspace: str) -> Sequence[workshop.TemplateOffer]:
        if (home := await self._home_of(self._session_id)) is None:
            return await self._here.templates(workspace)
        return await self._ask(home, Templates(workspace), list[workshop.TemplateOffer])

    async def presets(self, workspace: str) -> Sequence[workshop.PresetOffer]:
        if (home := await self._home_of(self._session_id)) is None:
            return await self._here.presets(workspace)
        return await self._ask(home, Presets(workspace), list[workshop.PresetOffer])

    async def _ask(self, node_id: str, question: Question, answer_type: type[T]) -> T:
        answered: asyncio.Future[bytes | ports.Problem] = asyncio.get_running_loop().create_future()

        def done(answer: bytes | ports.Problem) -> None:
            if not answered.done():
                answered.set_result(answer)

        self._mesh.ask(node_id, SUBJECT, _encode(question), done)
        answer = await answered
        if not isinstance(answer, bytes):
            raise errors.HomeUnreachable(self._session_id, hint="ask again in a moment")
        try:
            told = _told(answer)
            if told.answer is not None:
                return msgspec.msgpack.decode(told.answer, type=answer_type)
        except msgspec.MsgspecError:
            raise errors.HomeUnreachable(self._session_id, hint="its answer could not be read: upgrade all nodes") from None
        raise _REFUSALS.get(told.refusal or "", errors.HomeUnreachable)(told.detail, hint=told.hint)
