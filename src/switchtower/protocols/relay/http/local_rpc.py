"""Relay's RPCs on the owner's socket: each has a path of its own, and is journalled without the `rpc.` of its name."""

import uuid
from functools import partial
from typing import Any, cast

from switchtower.protocols.relay import messages, permissions
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.protocols.relay.http import bodies
from switchtower.protocols.relay.http.calls import HttpCall
from switchtower.protocols.relay.http.local_found import LocalRunFinder
from switchtower.protocols.relay.http.routing import RouteAccess, EndpointRoute

READ_TOOLS = ("fs.read", "fs.search", "fs.list", "git.status", "git.diff")
TOOLS = (*READ_TOOLS, "fs.write", "bash")
"""A person decides about the last two, so a process of a run may ask for them."""


class LocalRpcEndpoints:
    def __init__(self, rpc: HostRpcHandler, finder: LocalRunFinder) -> None:
        self._rpc = rpc
        self._finder = finder

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        return tuple(
            EndpointRoute(
                method,
                f"/runs/{{run_id}}/{tool.replace('.', '/')}",
                partial(self.call, tool=tool),
                RouteAccess.RUN,
                permissions.MESSAGE_ACTIONS.get(f"rpc.{tool}"),
            )
            for tool in TOOLS
            for method in (("GET", "POST") if tool in READ_TOOLS else ("POST",))
        )

    async def call(self, call: HttpCall, *, tool: str) -> Any:
        card = await self._finder.find_card(call)
        type_ = f"rpc.{tool}"
        wanted = messages.RPC_DATA[type_]
        own_id = str(uuid.uuid4())
        if call.request.method == "POST":
            asked = await call.read_body_with_defaults(wanted, request_id=own_id)
        else:
            asked = bodies.convert_fields({"request_id": own_id, **call.request.query_params}, wanted)
        # Nobody is asked, and nothing is searched, for one who has left.
        work = self._rpc.call_on_run(type_, card, cast(messages.RunRpc, asked), call.caller.make_actor(), tool=tool)
        return await call.run_while_connected(work)
