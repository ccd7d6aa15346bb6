"""One request as its handler sees it: who asks, what the path names, what the query and the body say."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

from msgspec import Struct
from starlette.requests import ClientDisconnect, Request

from switchtower.core import events, roles
from switchtower.protocols.relay import messages, names
from switchtower.protocols.relay.http import bodies, problems

Body = TypeVar("Body")
Answer = TypeVar("Answer")

_FALSE, _TRUE = ("false", "0", "no"), ("true", "1", "yes", "")
_MOST_DIGITS = 18
LONGEST_AGENT = 200


class Caller(Struct, frozen=True, kw_only=True):
    name: str
    via: str
    address: str = ""
    token_id: str | None = None
    """Of the access token it came with."""
    expires_at_ms: int | None = None
    """When that ends; None for one that does not."""
    run_id: str | None = None
    """The run that it is a process of, by the core's id."""
    role: roles.Role = roles.Role.VIEWER
    device: str = ""

    def actor(self, claimed: str | None = None) -> events.Actor:
        """`claimed` is what an app calls itself. Who came over the owner's socket is what it is."""
        return events.Actor(
            name=self.name,
            via=claimed if self.via == "web" and claimed in messages.ACTORS else self.via,
            device=self.device or None,
            address=self.address or None,
        )


class Call:
    def __init__(self, request: Request, caller: Caller, *, body_timeout_s: float) -> None:
        self.request = request
        self.caller = caller
        self._body_timeout_s = body_timeout_s

    # The path

    def named(self, part: str) -> str:
        """A part of the path as it was before it was spelled for a URL; it may hold anything, slashes too."""
        try:
            return unquote_to_bytes(self.request.path_params[part]).decode()
        except UnicodeDecodeError:
            raise problems.Problem(404, "not found") from None

    @property
    def run_id(self) -> str:
        run_id = self.named("run_id")
        try:
            names.session_of(run_id)
        except names.BadId:
            raise problems.unknown_run() from None
        return run_id

    @property
    def session_id(self) -> str:
        return names.session_of(self.run_id)

    @property
    def host_id(self) -> str:
        host_id = self.named("host_id")
        if len(host_id) > names.LONGEST:
            raise problems.unknown_host()
        return host_id

    # The query

    def text(self, name: str) -> str | None:
        return self.request.query_params.get(name) or None

    def number(self, name: str) -> int | None:
        said = self.text(name)
        if said is None:
            return None
        digits = said.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()) or len(digits) > _MOST_DIGITS:
            raise problems.Problem(400, f"`{name}` is not a whole number")
        return int(said)

    def clamped(self, name: str, otherwise: int, most: int) -> int:
        number = self.number(name)
        return min(max(otherwise if number is None else number, 1), most)

    def flag(self, name: str, *, otherwise: bool) -> bool:
        said = self.request.query_params.get(name)
        if said is None:
            return otherwise
        if said.lower() not in (*_FALSE, *_TRUE):
            raise problems.Problem(400, f"`{name}` is neither `true` nor `false`")
        return said.lower() in _TRUE

    # The body

    async def asked(self, type_: type[Body]) -> Body:
        return bodies.decoded(await self._content(), type_)

    async def asked_with(self, type_: type[Body], **otherwise: Any) -> Body:
        """As `asked`, with values for what the body does not name. Without a body these are all."""
        content = await self._content()
        fields: dict[str, Any] = bodies.decoded(content, dict[str, Any]) if content else {}
        return bodies.converted(otherwise | fields, type_)

    async def _content(self) -> bytes:
        return await bodies.read(self.request, self._body_timeout_s)

    async def unless_gone(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Does the work as long as somebody waits for it. To be used when the body has been read."""
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(gone(self.request))
        try:
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ClientDisconnect
            return working.result()
        finally:
            leaving.cancel()
            working.cancel()
            await asyncio.wait((working, leaving))
            if not working.cancelled():
                working.exception()  # looked at, so that nobody complains about one which came too late


async def gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def user_agent(request: Request) -> str:
    return request.headers.get("user-agent", "")[:LONGEST_AGENT]
