"""RPCs on another node's machine: what is asked here of a run, or of a node, that is there. Files, git, logs and programs are
those of the machine that is asked; so is who waits for a decision."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

from switchtower.core import events, journal
from switchtower.protocols.relay import errors, messages
from switchtower.protocols.relay.host.rpc import HostRpc
from switchtower.protocols.relay.nodes import asking, letters
from switchtower.transports.mesh import ports

log = logging.getLogger(__name__)

MOST_AT_ONCE = 1_000
"""Of other nodes, on this machine."""

FindCard = Callable[[str], Awaitable[journal.Card]]
"""The card of a run. Raises `Refused`."""


class NodeCalls:
    def __init__(self, mesh: ports.Mesh, local: HostRpc, find_card: FindCard) -> None:
        self._mesh = mesh
        self._local = local
        self._find_card = find_card
        self._at_work: set[asyncio.Task[None]] = set()
        self._closed = False

    def open(self) -> None:
        self._mesh.answers(letters.RUN_RPC, self._asked)
        self._mesh.answers(letters.HOST_RPC, self._asked)

    async def close(self) -> None:
        self._closed = True
        for task in tuple(self._at_work):
            task.cancel()
        await asyncio.gather(*self._at_work, return_exceptions=True)

    # What is asked here

    async def run_rpc(self, node_id: str, type_: str, run_id: str, asked: messages.RunRpc, actor: events.Actor) -> Any:
        """Raises `Refused`, and `asking.Moved`."""
        letter = letters.Rpc(type_, letters.encode(asked), actor, run_id)
        return (await asking.ask(self._mesh, node_id, letters.RUN_RPC, letter)).result

    async def host_rpc(self, node_id: str, type_: str, asked: messages.HostRpc, actor: events.Actor) -> Any:
        letter = letters.Rpc(type_, letters.encode(asked), actor)
        return (await asking.ask(self._mesh, node_id, letters.HOST_RPC, letter)).result

    # What other nodes ask

    def _asked(self, node_id: str, body: bytes, reply: ports.Reply) -> None:
        if self._closed:
            reply(letters.encode(letters.Answer(False, error=errors.SHUTTING_DOWN)))
        elif len(self._at_work) >= MOST_AT_ONCE:
            reply(letters.encode(letters.Answer(False, error=errors.TOO_MANY_CALLS)))
        else:
            task = asyncio.get_running_loop().create_task(self._answer(node_id, body, reply))
            self._at_work.add(task)
            task.add_done_callback(self._at_work.discard)

    async def _answer(self, node_id: str, body: bytes, reply: ports.Reply) -> None:
        """Goes on to its end when the asking node goes: somebody else may decide, and the journal tells of it."""
        answer = letters.encode(letters.Answer(False, error=errors.SHUTTING_DOWN))
        try:
            answer = letters.encode(await self._outcome(body))
        except Exception:
            log.exception("a call of node %s failed", node_id)
            answer = letters.encode(letters.Answer(False, error=errors.INTERNAL))
        finally:
            reply(answer)

    async def _outcome(self, body: bytes) -> letters.Answer:
        try:
            rpc = letters.decode(body, letters.Rpc)
            wanted = messages.RPC_DATA.get(rpc.type)
            if wanted is None:
                return letters.Answer(False, error=errors.UNKNOWN_RPC)
            asked = letters.decode(rpc.data, wanted)
        except letters.Unreadable as problem:
            return letters.Answer(False, error=str(problem))
        try:
            if rpc.type in messages.HOST_RPCS:
                return letters.Answer(True, await self._local.on_host(rpc.type, cast(messages.HostRpc, asked), rpc.actor))
            if rpc.run_id is None:
                raise errors.UnknownRun
            card = await self._find_card(rpc.run_id)
            if not self._local.lives_here(card):
                return letters.Answer(False, why="moved")
            return letters.Answer(True, await self._local.on_run(rpc.type, card, cast(messages.RunRpc, asked), rpc.actor))
        except errors.Refused as refusal:
            return asking.of(refusal)
