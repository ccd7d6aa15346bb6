"""Relay's RPCs on the owner's socket: each has a path of its own, and is journalled without the `rpc.` of its name."""

import uuid
from functools import partial
from typing import Any, cast

from switchtower.protocols.relay import messages, permissions
from switchtower.protocols.relay.host.rpc import HostRpc
from switchtower.protocols.relay.http import bodies
from switchtower.protocols.relay.http.calls import Call
from switchtower.protocols.relay.http.local_found import Finder
from switchtower.protocols.relay.http.routing import Entry, Row

READING = ("fs.read", "fs.search", "fs.list", "git.status", "git.diff")
TOOLS = (*READING, "fs.write", "bash")
"""A person decides about the last two, so a process of a run may ask for them."""


class LocalRpc:
    def __init__(self, rpc: HostRpc, finder: Finder) -> None:
        self._rpc = rpc
        self._finder = finder

    def rows(self) -> tuple[Row, ...]:
        return tuple(
            Row(
                method,
                f"/runs/{{run_id}}/{tool.replace('.', '/')}",
                partial(self.call, tool=tool),
                Entry.RUN,
                permissions.MESSAGES.get(f"rpc.{tool}"),
            )
            for tool in TOOLS
            for method in (("GET", "POST") if tool in READING else ("POST",))
        )

    async def call(self, call: Call, *, tool: str) -> Any:
        card = await self._finder.card(call)
        type_ = f"rpc.{tool}"
        wanted = messages.RPC_DATA[type_]
        own_id = str(uuid.uuid4())
        if call.request.method == "POST":
            asked = await call.asked_with(wanted, request_id=own_id)
        else:
            asked = bodies.converted({"request_id": own_id, **call.request.query_params}, wanted)
        # Nobody is asked, and nothing is searched, for one who has left.
        work = self._rpc.on_run(type_, card, cast(messages.RunRpc, asked), call.caller.actor(), tool=tool)
        return await call.unless_gone(work)
