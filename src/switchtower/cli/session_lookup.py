"""Resolves a session reference: a whole id, a unique start or end of one, or `last`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from switchtower import config
from switchtower.client import errors
from switchtower.client.client import DaemonClient

MAX_LISTED = 200
_WHOLE_ID_LENGTH = len("sess_") + 26


@asynccontextmanager
async def open_session(session_ref: str, token: str | None = None) -> AsyncIterator[tuple[DaemonClient, str]]:
    """Yields a client and the id of the referenced session. It starts the daemon when none is running."""
    async with await DaemonClient.connect(config.load()) as client:
        found = await find_session_id(client, session_ref)
        if token is not None:
            client.remember_attach_token(found, token)
        yield client, found


async def find_session_id(client: DaemonClient, session_ref: str) -> str:
    """Raises `ClientError` when no session or more than one matches."""
    if session_ref == "last":
        if sessions := await client.list_sessions(limit=1):
            return sessions[0].sessionId
        raise errors.ClientError("there is no session yet", hint='start one with `tower run --headless "…"`')
    if session_ref.startswith("sess_") and len(session_ref) >= _WHOLE_ID_LENGTH:
        return session_ref
    wanted = session_ref.lower().removeprefix("sess_")
    listed = [session.sessionId for session in await client.list_sessions(limit=MAX_LISTED)]
    fitting = [known for known in listed if _matches(known.lower().removeprefix("sess_"), wanted)]
    match fitting:
        case [only]:
            return only
        case []:
            raise errors.ClientError(f"no session has an id like `{session_ref}`", hint="see `tower sessions`")
        case _:
            raise errors.ClientError(
                f"`{session_ref}` fits {len(fitting)} sessions: {', '.join(fitting[:5])}", hint="give more of the id, or its end"
            )


def _matches(known: str, wanted: str) -> bool:
    return bool(wanted) and (known.startswith(wanted) or known.endswith(wanted))
