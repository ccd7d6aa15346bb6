"""Browsers that want to be told of decisions and of runs that end, also while the page is closed."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from switchtower.core.roles import Action
from switchtower.protocols.relay.http import ports, problems
from switchtower.protocols.relay.http.calls import Call
from switchtower.protocols.relay.http.routing import Row

Key = Annotated[str, Meta(min_length=1, max_length=256)]
Endpoint = Annotated[str, Meta(min_length=1, max_length=2_048)]


class Keys(Struct, frozen=True):
    p256dh: Key
    auth: Key


class Subscription(Struct, frozen=True):
    """What a browser's `PushSubscription` says of itself as JSON."""

    endpoint: Endpoint
    keys: Keys


class Ended(Struct, frozen=True):
    endpoint: Endpoint


class Subscriptions:
    def __init__(self, pushes: ports.Pushes) -> None:
        self._pushes = pushes

    def rows(self) -> tuple[Row, ...]:
        return (
            Row("GET", "/push/key", self.key, action=Action.WATCH),
            Row("POST", "/push/subscriptions", self.subscribe, action=Action.WATCH),
            Row("DELETE", "/push/subscriptions", self.unsubscribe, action=Action.WATCH),
        )

    async def key(self, call: Call) -> Any:
        return {"public_key": await self._pushes.public_key()}

    async def subscribe(self, call: Call) -> Any:
        asked = await call.asked(Subscription)
        await self._pushes.subscribe(call.caller.name, asked.endpoint, asked.keys.p256dh, asked.keys.auth)

    async def unsubscribe(self, call: Call) -> Any:
        asked = await call.asked(Ended)
        if not await self._pushes.unsubscribe(call.caller.name, asked.endpoint):
            raise problems.Problem(404, "nobody subscribed with this endpoint")
