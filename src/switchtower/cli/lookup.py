"""The session that somebody means: a whole id, a unique beginning or end of one, or `last`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from switchtower import config
from switchtower.client import errors
from switchtower.client.client import Client

MOST_LISTED = 200
_WHOLE_ID_LENGTH = len("sess_") + 26


@asynccontextmanager
async def opened(meant: str, token: str | None = None) -> AsyncIterator[tuple[Client, str]]:
    """A client, and the id of the session that is meant. The daemon is started when none runs."""
    async with await Client.connect(config.load()) as client:
        found = await session_id(client, meant)
        if token is not None:
            client.remember(found, token)
        yield client, found


async def session_id(client: Client, meant: str) -> str:
    """Raises `ClientError` when it is none or several."""
    if meant == "last":
        if sessions := await client.list_sessions(limit=1):
            return sessions[0].sessionId
        raise errors.ClientError("there is no session yet", hint='start one with `tower run --headless "…"`')
    if meant.startswith("sess_") and len(meant) >= _WHOLE_ID_LENGTH:
        return meant
    wanted = meant.lower().removeprefix("sess_")
    listed = [session.sessionId for session in await client.list_sessions(limit=MOST_LISTED)]
    fitting = [known for known in listed if _fits(known.lower().removeprefix("sess_"), wanted)]
    match fitting:
        case [only]:
            return only
        case []:
            raise errors.ClientError(f"no session has an id like `{meant}`", hint="see `tower sessions`")
        case _:
            raise errors.ClientError(
                f"`{meant}` fits {len(fitting)} sessions: {', '.join(fitting[:5])}", hint="give more of the id, or its end"
            )


def _fits(known: str, wanted: str) -> bool:
    return bool(wanted) and (known.startswith(wanted) or known.endswith(wanted))
