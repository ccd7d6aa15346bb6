"""Hosts as apps list them, and what an admin does with one."""

from typing import Any

from switchtower.core import registry
from switchtower.core.roles import Action
from switchtower.protocols.relay.http import bodies, ports, problems
from switchtower.protocols.relay.http.calls import HttpCall
from switchtower.protocols.relay.http.routing import EndpointRoute


class HostEndpoints:
    def __init__(self, hub: ports.HubPort) -> None:
        self._hub = hub

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        return (
            EndpointRoute("GET", "/hosts", self.list, action=Action.WATCH),
            EndpointRoute("PATCH", "/hosts/{host_id}", self.rename, action=Action.MANAGE_HOSTS),
            EndpointRoute("DELETE", "/hosts/{host_id}", self.remove, action=Action.MANAGE_HOSTS),
            EndpointRoute("POST", "/hosts/{host_id}/approve", self.approve, action=Action.MANAGE_HOSTS),
            EndpointRoute("POST", "/hosts/{host_id}/refuse", self.refuse, action=Action.MANAGE_HOSTS),
            EndpointRoute("POST", "/hosts/{host_id}/rotate", self.rotate, action=Action.MANAGE_HOSTS),
        )

    async def list(self, call: HttpCall) -> Any:
        return await self._hub.list_hosts()

    async def rename(self, call: HttpCall) -> Any:
        asked = await call.read_body(bodies.NewNameBody)
        _require_host(known=await self._hub.rename_host(call.host_id, asked.name, call.caller.make_actor()))

    async def remove(self, call: HttpCall) -> Any:
        _require_host(known=await self._hub.remove_host(call.host_id, call.caller.make_actor()))

    async def approve(self, call: HttpCall) -> Any:
        await self._set_state(call, registry.HostState.APPROVED)

    async def refuse(self, call: HttpCall) -> Any:
        await self._set_state(call, registry.HostState.REFUSED)

    async def _set_state(self, call: HttpCall, state: registry.HostState) -> None:
        _require_host(known=await self._hub.set_host_state(call.host_id, state.value, call.caller.make_actor()))

    async def rotate(self, call: HttpCall) -> Any:
        _require_host(known=await self._hub.rotate_host(call.host_id, call.caller.make_actor()))


def _require_host(*, known: bool) -> None:
    if not known:
        raise problems.make_unknown_host()
