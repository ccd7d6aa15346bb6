"""Hosts as apps list them, and what an admin does with one."""

from typing import Any

from switchtower.core import registry
from switchtower.core.roles import Action
from switchtower.protocols.relay.http import bodies, ports, problems
from switchtower.protocols.relay.http.calls import Call
from switchtower.protocols.relay.http.routing import Row


class Hosts:
    def __init__(self, hub: ports.Hub) -> None:
        self._hub = hub

    def rows(self) -> tuple[Row, ...]:
        return (
            Row("GET", "/hosts", self.list, action=Action.WATCH),
            Row("PATCH", "/hosts/{host_id}", self.rename, action=Action.MANAGE_HOSTS),
            Row("DELETE", "/hosts/{host_id}", self.remove, action=Action.MANAGE_HOSTS),
            Row("POST", "/hosts/{host_id}/approve", self.approve, action=Action.MANAGE_HOSTS),
            Row("POST", "/hosts/{host_id}/refuse", self.refuse, action=Action.MANAGE_HOSTS),
            Row("POST", "/hosts/{host_id}/rotate", self.rotate, action=Action.MANAGE_HOSTS),
        )

    async def list(self, call: Call) -> Any:
        return await self._hub.hosts()

    async def rename(self, call: Call) -> Any:
        asked = await call.asked(bodies.NewName)
        _check(known=await self._hub.rename_host(call.host_id, asked.name, call.caller.actor()))

    async def remove(self, call: Call) -> Any:
        _check(known=await self._hub.remove_host(call.host_id, call.caller.actor()))

    async def approve(self, call: Call) -> Any:
        await self._set(call, registry.HostState.APPROVED)

    async def refuse(self, call: Call) -> Any:
        await self._set(call, registry.HostState.REFUSED)

    async def _set(self, call: Call, state: registry.HostState) -> None:
        _check(known=await self._hub.set_host_state(call.host_id, state.value, call.caller.actor()))

    async def rotate(self, call: Call) -> Any:
        _check(known=await self._hub.rotate_host(call.host_id, call.caller.actor()))


def _check(*, known: bool) -> None:
    if not known:
        raise problems.unknown_host()
