"""Browsers that want to be told of decisions and of runs that end, also while the page is closed."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from switchtower.core.roles import Action
from switchtower.protocols.relay.http import ports, problems
from switchtower.protocols.relay.http.calls import HttpCall
from switchtower.protocols.relay.http.routing import EndpointRoute

SubscriptionKey = Annotated[str, Meta(min_length=1, max_length=256)]
SubscriptionEndpoint = Annotated[str, Meta(min_length=1, max_length=2_048)]


class SubscriptionKeys(Struct, frozen=True):
    p256dh: SubscriptionKey
    auth: SubscriptionKey


class SubscriptionBody(Struct, frozen=True):
    """What a browser's `PushSubscription` says of itself as JSON."""

    endpoint: SubscriptionEndpoint
    keys: SubscriptionKeys


class UnsubscribeBody(Struct, frozen=True):
    endpoint: SubscriptionEndpoint


class PushSubscriptionEndpoints:
    def __init__(self, pushes: ports.PushSubscriptionsPort) -> None:
        self._pushes = pushes

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        return (
            EndpointRoute("GET", "/push/key", self.get_public_key, action=Action.WATCH),
            EndpointRoute("POST", "/push/subscriptions", self.subscribe, action=Action.WATCH),
            EndpointRoute("DELETE", "/push/subscriptions", self.unsubscribe, action=Action.WATCH),
        )

    async def get_public_key(self, call: HttpCall) -> Any:
        return {"public_key": await self._pushes.get_public_key()}

    async def subscribe(self, call: HttpCall) -> Any:
        asked = await call.read_body(SubscriptionBody)
        await self._pushes.subscribe(call.caller.name, asked.endpoint, asked.keys.p256dh, asked.keys.auth)

    async def unsubscribe(self, call: HttpCall) -> Any:
        asked = await call.read_body(UnsubscribeBody)
        if not await self._pushes.unsubscribe(call.caller.name, asked.endpoint):
            raise problems.HttpError(404, "nobody subscribed with this endpoint")
