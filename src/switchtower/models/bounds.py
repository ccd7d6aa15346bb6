"""Keeps one answer of a provider from filling the memory, and from outliving whoever asked.

The libraries gather a line, and an error's body, to any length; streams of many short lines pass untouched, however long
they are in all. And not every library closes its connection when nobody listens any more.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2

LONGEST_LINE = 16 * 1_048_576
LONGEST_REFUSAL = 262_144


_responses: ContextVar["list[httpx2.Response] | None"] = ContextVar("heard", default=None)


@contextlib.contextmanager
def track_responses() -> "Iterator[list[httpx2.Response]]":
    """The answers that arrive meanwhile, for closing. Must not be left open over a generator's `yield`."""
    responses: list[httpx2.Response] = []
    token = _responses.set(responses)
    try:
        yield responses
    finally:
        _responses.reset(token)


async def limit_response(response: "httpx2.Response") -> None:
    """A hook for the HTTP client, called before a body is read."""
    import httpx2

    whole = response.stream
    assert isinstance(whole, httpx2.AsyncByteStream), "the client is an asynchronous one"
    stream: httpx2.AsyncByteStream = whole

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            held = 0
            async for chunk in stream:
                if not response.is_success:
                    yield chunk[: LONGEST_REFUSAL - held]
                    held += len(chunk)
                    if held >= LONGEST_REFUSAL:
                        return  # enough to know what is wrong
                    continue
                line_end = chunk.rfind(b"\n")
                held = held + len(chunk) if line_end < 0 else len(chunk) - line_end - 1
                if held > LONGEST_LINE:
                    raise httpx2.RemoteProtocolError("a line longer than any answer", request=response.request)
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    response.stream = Bounded()
    if (responses := _responses.get()) is not None:
        responses.append(response)
