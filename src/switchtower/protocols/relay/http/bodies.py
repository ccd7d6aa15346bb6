"""Bodies of requests: bounded in size and in time, and read as the type that is wanted. Nothing of a body is in a log."""

import asyncio
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from switchtower.core.roles import NEW_USER, Role
from switchtower.protocols.relay.http import problems

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
    """Whose it is; without it, who asks."""
    scope: Role | None = None
    """It allows no more than this; without it, as much as its user's role does now."""
    expires_in_s: Annotated[int, Meta(ge=60, le=10**9)] | None = None


class NewPasswordBody(Struct, frozen=True):
    password: str


class NewNameBody(Struct, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=128)]


async def read_body(request: Request, timeout_s: float) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MAX_BODY_BYTES:
        raise problems.make_body_too_large(MAX_BODY_BYTES)
    content = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for piece in request.stream():
                content += piece
                if len(content) > MAX_BODY_BYTES:
                    raise problems.make_body_too_large(MAX_BODY_BYTES)
    except TimeoutError:
        raise problems.make_body_timeout() from None
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


def _make_invalid_body_error(problem: Exception) -> problems.HttpError:
    # The library names fields and types, and the values of none that may be secret.
    said = str(problem) if isinstance(problem, msgspec.MsgspecError) else "not JSON, or nested too deep"
    return problems.HttpError(400, f"malformed request: {said}")
