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

RequestBodyT = TypeVar("RequestBodyT")
ResultT = TypeVar("ResultT")

_FALSE, _TRUE = ("false", "0", "no"), ("true", "1", "yes", "")
_MAX_DIGITS = 18
MAX_USER_AGENT_LENGTH = 200


class HttpCaller(Struct, frozen=True, kw_only=True):
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

    def make_actor(self, claimed: str | None = None) -> events.Actor:
        """`claimed` is what an app calls itself. Who came over the owner's socket is what it is."""
        return events.Actor(
            name=self.name,
            via=claimed if self.via == "web" and claimed in messages.ACTORS else self.via,
            device=self.device or None,
            address=self.address or None,
        )


class HttpCall:
    def __init__(self, request: Request, caller: HttpCaller, *, body_timeout_s: float) -> None:
        self.request = request
        self.caller = caller
        self._body_timeout_s = body_timeout_s

    # The path

    def get_path_part(self, name: str) -> str:
        """A part of the path as it was before it was spelled for a URL; it may hold anything, slashes too."""
        try:
            return unquote_to_bytes(self.request.path_params[name]).decode()
        except UnicodeDecodeError:
            raise problems.HttpError(404, "not found") from None

    @property
    def run_id(self) -> str:
        run_id = self.get_path_part("run_id")
        try:
            names.parse_run_id(run_id)
        except names.InvalidRelayId:
            raise problems.make_unknown_run() from None
        return run_id

    @property
    def session_id(self) -> str:
        return names.parse_run_id(self.run_id)

    @property
    def host_id(self) -> str:
        host_id = self.get_path_part("host_id")
        if len(host_id) > names.MAX_ID_LENGTH:
            raise problems.make_unknown_host()
        return host_id

    # The query

    def get_text(self, name: str) -> str | None:
        return self.request.query_params.get(name) or None

    def get_number(self, name: str) -> int | None:
        said = self.get_text(name)
        if said is None:
            return None
        digits = said.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()) or len(digits) > _MAX_DIGITS:
            raise problems.HttpError(400, f"`{name}` is not a whole number")
        return int(said)

    def get_clamped(self, name: str, default: int, limit: int) -> int:
        number = self.get_number(name)
        return min(max(default if number is None else number, 1), limit)

    def get_flag(self, name: str, *, default: bool) -> bool:
        said = self.request.query_params.get(name)
        if said is None:
            return default
        if said.lower() not in (*_FALSE, *_TRUE):
            raise problems.HttpError(400, f"`{name}` is neither `true` nor `false`")
        return said.lower() in _TRUE

    # The body

    async def read_body(self, type_: type[RequestBodyT]) -> RequestBodyT:
        return bodies.decode_body(await self._read_content(), type_)

    async def read_body_with_defaults(self, type_: type[RequestBodyT], **defaults: Any) -> RequestBodyT:
        """As `asked`, with values for what the body does not name. Without a body these are all."""
        content = await self._read_content()
        fields: dict[str, Any] = bodies.decode_body(content, dict[str, Any]) if content else {}
        return bodies.convert_fields(defaults | fields, type_)

    async def _read_content(self) -> bytes:
        return await bodies.read_body(self.request, self._body_timeout_s)

    async def run_while_connected(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Does the work as long as somebody waits for it. To be used when the body has been read."""
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(wait_for_disconnect(self.request))
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


async def wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def get_user_agent(request: Request) -> str:
    return request.headers.get("user-agent", "")[:MAX_USER_AGENT_LENGTH]
