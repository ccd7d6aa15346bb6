"""RPCs on another node's machine: what is asked here of a run, or of a node, that is there. Files, git, logs and programs are
those of the machine that is asked; so is who waits for a decision."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

from switchtower.core import events, journal
from switchtower.protocols.relay import errors, messages
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.protocols.relay.nodes import asking, letters
from switchtower.transports.mesh import ports

log = logging.getLogger(__name__)

MAX_CONCURRENT_CALLS = 1_000
"""Of other nodes, on this machine."""

FindCard = Callable[[str], Awaitable[journal.Card]]
"""The card of a run. Raises `Refused`."""


class NodeRpc:
    def __init__(self, mesh: ports.Mesh, local: HostRpcHandler, find_card: FindCard) -> None:
        self._mesh = mesh
        self._local = local
        self._find_card = find_card
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def open(self) -> None:
        self._mesh.handle_requests(letters.RUN_RPC, self._on_request)
        self._mesh.handle_requests(letters.HOST_RPC, self._on_request)

    async def close(self) -> None:
        self._closed = True
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # What is asked here

    async def call_on_run(self, node_id: str, type_: str, run_id: str, request: messages.RunRpc, actor: events.Actor) -> Any:
        """Raises `Refused`, and `asking.Moved`."""
        letter = letters.NodeRpcMessage(type_, letters.encode(request), actor, run_id)
        return (await asking.request(self._mesh, node_id, letters.RUN_RPC, letter)).result

    async def call_on_host(self, node_id: str, type_: str, request: messages.HostRpc, actor: events.Actor) -> Any:
        letter = letters.NodeRpcMessage(type_, letters.encode(request), actor)
        return (await asking.request(self._mesh, node_id, letters.HOST_RPC, letter)).result

    # What other nodes ask

    def _on_request(self, node_id: str, body: bytes, reply: ports.ReplyCallback) -> None:
        if self._closed:
            reply(letters.encode(letters.NodeReply(False, error=errors.SHUTTING_DOWN)))
        elif len(self._tasks) >= MAX_CONCURRENT_CALLS:
            reply(letters.encode(letters.NodeReply(False, error=errors.TOO_MANY_CALLS)))
        else:
            task = asyncio.get_running_loop().create_task(self._respond(node_id, body, reply))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _respond(self, node_id: str, body: bytes, reply: ports.ReplyCallback) -> None:
        """Goes on to its end when the asking node goes: somebody else may decide, and the journal tells of it."""
        answer = letters.encode(letters.NodeReply(False, error=errors.SHUTTING_DOWN))
        try:
            answer = letters.encode(await self._execute(body))
        except Exception:
            log.exception("a call of node %s failed", node_id)
            answer = letters.encode(letters.NodeReply(False, error=errors.INTERNAL))
        finally:
            reply(answer)

    async def _execute(self, body: bytes) -> letters.NodeReply:
        try:
            rpc = letters.decode(body, letters.NodeRpcMessage)
            wanted = messages.RPC_DATA.get(rpc.type)
            if wanted is None:
                return letters.NodeReply(False, error=errors.UNKNOWN_RPC)
            asked = letters.decode(rpc.data, wanted)
        except letters.NodeMessageError as problem:
            return letters.NodeReply(False, error=str(problem))
        try:
            if rpc.type in messages.HOST_RPCS:
                return letters.NodeReply(True, await self._local.call_on_host(rpc.type, cast(messages.HostRpc, asked), rpc.actor))
            if rpc.run_id is None:
                raise errors.UnknownRun
            card = await self._find_card(rpc.run_id)
            if not self._local.is_local(card):
                return letters.NodeReply(False, why="moved")
            return letters.NodeReply(True, await self._local.call_on_run(rpc.type, card, cast(messages.RunRpc, asked), rpc.actor))
        except errors.RelayError as refusal:
            return asking.make_error_reply(refusal)
