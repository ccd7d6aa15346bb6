"""One request as its handler sees it: the caller, the parts of the path, the query and the body.

Bodies are bounded in size and in time, and decoded as the wanted type. No part of a body is logged. The transport identifies the
process at the other end of a request's connection.
"""

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Meta, Struct
from starlette.requests import ClientDisconnect, Request

from switchtower.core import events, roles
from switchtower.core.roles import NEW_USER, ProcessUnattributed, Role
from switchtower.protocols.relay import messages, wire_values
from switchtower.transports.http import Attribution, HttpPeer
from switchtower.transports.origins import strip_port
from switchtower.transports.stream import ConnectionOrigin
from switchtower.web_api import ports, responses

MAX_BODY_BYTES = 1_048_576

BodyT = TypeVar("BodyT")


class TokenExchangeBody(Struct, frozen=True):
    token: str


class NewUserBody(Struct, frozen=True):
    name: str
    password: str
    role: Role = NEW_USER


class NewRoleBody(Struct, frozen=True):
    role: Role


class NewTokenBody(Struct, frozen=True):
    """A token for a program."""

    name: str
    user: str | None = None
    """The token's user; by default the caller."""
    scope: Role | None = None
    """The token allows no more than this; without it, as much as its user's current role."""
    expires_in_s: Annotated[int, Meta(ge=60, le=10**9)] | None = None


class NewPasswordBody(Struct, frozen=True):
    password: str


class NewNameBody(Struct, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=128)]


async def read_body(request: Request, timeout_s: float) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MAX_BODY_BYTES:
        raise responses.make_body_too_large(MAX_BODY_BYTES)
    content = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for piece in request.stream():
                content += piece
                if len(content) > MAX_BODY_BYTES:
                    raise responses.make_body_too_large(MAX_BODY_BYTES)
    except TimeoutError:
        raise responses.make_body_timeout() from None
    return bytes(content)


def decode_body(content: bytes, type_: type[BodyT]) -> BodyT:
    try:
        return msgspec.json.decode(content, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise _make_invalid_body_error(problem) from None


def convert_fields(fields: dict[str, Any], type_: type[BodyT]) -> BodyT:
    try:
        return msgspec.convert(fields, type_)
    except msgspec.MsgspecError as problem:
        raise _make_invalid_body_error(problem) from None


def _make_invalid_body_error(problem: Exception) -> responses.HttpError:
    # The library names fields and types, but no values, which may be secret.
    said = str(problem) if isinstance(problem, msgspec.MsgspecError) else "not JSON, or nested too deep"
    return responses.HttpError(400, f"malformed request: {said}")


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
    """The id of the caller's access token."""
    expires_at_ms: int | None = None
    """The end of that token; None for one without an end."""
    run_id: str | None = None
    """The run, by the core's id, of which the caller is a process."""
    role: roles.Role = roles.Role.VIEWER
    device: str = ""

    def make_actor(self, claimed: str | None = None) -> events.Actor:
        """`claimed` is the app's own label. It does not count on the owner's socket."""
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
        """Returns a decoded part of the path; it may contain anything, slashes too."""
        try:
            return unquote_to_bytes(self.request.path_params[name]).decode()
        except UnicodeDecodeError:
            raise responses.HttpError(404, "not found") from None

    @property
    def run_id(self) -> str:
        run_id = self.get_path_part("run_id")
        try:
            wire_values.parse_run_id(run_id)
        except wire_values.InvalidRelayId:
            raise responses.make_unknown_run() from None
        return run_id

    @property
    def session_id(self) -> str:
        return wire_values.parse_run_id(self.run_id)

    @property
    def host_id(self) -> str:
        host_id = self.get_path_part("host_id")
        if len(host_id) > wire_values.MAX_ID_LENGTH:
            raise responses.make_unknown_host()
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
            raise responses.HttpError(400, f"`{name}` is not a whole number")
        return int(said)

    def get_clamped(self, name: str, default: int, limit: int) -> int:
        number = self.get_number(name)
        return min(max(default if number is None else number, 1), limit)

    def get_flag(self, name: str, *, default: bool) -> bool:
        said = self.request.query_params.get(name)
        if said is None:
            return default
        if said.lower() not in (*_FALSE, *_TRUE):
            raise responses.HttpError(400, f"`{name}` is neither `true` nor `false`")
        return said.lower() in _TRUE

    # The body

    async def read_body(self, type_: type[RequestBodyT]) -> RequestBodyT:
        return decode_body(await self._read_content(), type_)

    async def read_body_with_defaults(self, type_: type[RequestBodyT], **defaults: Any) -> RequestBodyT:
        """Like `read_body`, with defaults for fields that the body does not name. Without a body these are all."""
        content = await self._read_content()
        fields: dict[str, Any] = decode_body(content, dict[str, Any]) if content else {}
        return convert_fields(defaults | fields, type_)

    async def _read_content(self) -> bytes:
        return await read_body(self.request, self._body_timeout_s)

    async def run_while_connected(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Runs the work while the client is connected. The body must have been read before."""
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
                working.exception()  # retrieved, so that asyncio does not report a late exception


async def wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def get_user_agent(request: Request) -> str:
    return request.headers.get("user-agent", "")[:MAX_USER_AGENT_LENGTH]


def get_origin(request: Request) -> ConnectionOrigin:
    peer = _get_peer(request)
    headers = {name: ",".join(request.headers.getlist(name)) for name in ("forwarded", "x-forwarded-for")}
    client = peer.proxies.find_client(
        strip_port(peer.origin.address), forwarded=headers["forwarded"], x_forwarded_for=headers["x-forwarded-for"]
    )
    return msgspec.structs.replace(peer.origin, client=client) if client else peer.origin


def mark_authenticated(request: Request) -> None:
    """The connection no longer counts as unauthenticated."""
    _get_peer(request).authenticate()


def find_calling_run(request: Request, find_run: ports.FindRun) -> str | None:
    """Returns the run whose process sends the request. It is found once per connection: that may require a scan of all processes.
    Raises `HttpError` when it is not known."""
    peer = _get_peer(request)
    if peer.attribution is None:
        try:
            peer.attribution = Attribution(find_run(peer.origin))
        except ProcessUnattributed:
            peer.attribution = Attribution(refused=True)
    if peer.attribution.refused:
        raise responses.make_unattributed()
    return peer.attribution.run_id


def _get_peer(request: Request) -> HttpPeer:
    peer: HttpPeer = request.state.peer
    return peer
