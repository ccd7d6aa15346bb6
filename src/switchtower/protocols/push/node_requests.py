"""The requests of `node_messages`, for one client."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from switchtower.core import errors, leases
from switchtower.protocols.push import inbound, node_messages

if TYPE_CHECKING:
    from switchtower.protocols.push.peer import PushConnection


def make_node_handlers(connection: "PushConnection") -> dict[str, Callable[[inbound.PushRequest], None]]:
    requests = _NodeRequests(connection)
    return {"list_nodes": requests.list_nodes, "drain_node": requests.drain_node}


class _NodeRequests:
    def __init__(self, connection: "PushConnection") -> None:
        self._connection = connection

    def list_nodes(self, request: inbound.PushRequest) -> None:
        known = self._connection.tower.nodes

        async def listing() -> Struct:
            if known is None:
                return node_messages.Nodes([])
            try:
                found = await known.list_nodes()
            except leases.LeasesUnavailable as problem:
                raise errors.JournalUnavailable(problem.message, hint=problem.hint) from None
            return node_messages.Nodes([_convert_node(one, known.node_id) for one in found])

        self._connection.respond_later(request, listing)

    def drain_node(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, node_messages.DrainNode)
        self._connection.check_is_operator()
        known, wait_s = self._connection.tower.nodes, request.payload.waitSeconds
        if known is None:
            raise errors.InvalidCommand(
                "this daemon is alone: there is nobody to hand its sessions to", hint="`tower stop` keeps them for its return"
            )

        async def drain() -> Struct:
            # Clients are let go on the way, this one too: what was begun goes on, whether or not anybody waits for it.
            try:
                drained = await asyncio.shield(known.drain(wait_s))
            except leases.LeasesUnavailable as problem:
                raise errors.JournalUnavailable(problem.message, hint=problem.hint) from None
            return node_messages.NodeDrained(sessions=drained.sessions, interrupted=drained.interrupted)

        self._connection.respond_later(request, drain)


def _convert_node(node: leases.Node, this_id: str) -> node_messages.Node:
    return node_messages.Node(
        id=node.node_id,
        name=node.name or node.node_id,
        address=node.address,
        version=node.version,
        alive=node.is_alive,
        draining=node.draining,
        sessions=node.sessions,
        joinedAt=node.joined_at_ms,
        isThis=node.node_id == this_id,
    )
