"""Bodies of requests: bounded in size and in time, and read as the type that is wanted. Nothing of a body is in a log."""

import asyncio
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from switchtower.core.roles import NEW_USER, Role
from switchtower.protocols.relay.http import problems

LIMIT = 1_048_576

Body = TypeVar("Body")


class FirstToken(Struct, frozen=True):
    token: str


class NewUser(Struct, frozen=True):
    name: str
    password: str
    role: Role = NEW_USER


class NewRole(Struct, frozen=True):
    role: Role


class NewToken(Struct, frozen=True):
    """A token for a program."""

    name: str
    user: str | None = None
    """Whose it is; without it, who asks."""
    scope: Role | None = None
    """It allows no more than this; without it, as much as its user's role does now."""
    expires_in_s: Annotated[int, Meta(ge=60, le=10**9)] | None = None


class NewPassword(Struct, frozen=True):
    password: str


class NewName(Struct, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=128)]


async def read(request: Request, timeout_s: float) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > LIMIT:
        raise problems.too_large(LIMIT)
    content = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for piece in request.stream():
                content += piece
                if len(content) > LIMIT:
                    raise problems.too_large(LIMIT)
    except TimeoutError:
        raise problems.too_slow() from None
    return bytes(content)


def decoded(content: bytes, type_: type[Body]) -> Body:
    try:
        return msgspec.json.decode(content, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise _not_understood(problem) from None


def converted(fields: dict[str, Any], type_: type[Body]) -> Body:
    try:
        return msgspec.convert(fields, type_)
    except msgspec.MsgspecError as problem:
        raise _not_understood(problem) from None


def _not_understood(problem: Exception) -> problems.Problem:
    # The library names fields and types, and the values of none that may be secret.
    said = str(problem) if isinstance(problem, msgspec.MsgspecError) else "not JSON, or nested too deep"
    return problems.Problem(400, f"malformed request: {said}")
