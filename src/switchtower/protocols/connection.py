"""Attaches a subscriber to a session and waits for the answer. What several protocols need of a connection is here."""

import asyncio

from switchtower.core import errors
from switchtower.core.ports import session_service


async def attach(
    tower_: session_service.SessionService, session_id: str, after_seq: int, subscriber: session_service.Subscriber
) -> session_service.Attachment:
    """Returns an attachment whose subscription has not started yet. Raises the core's refusals."""
    answer: asyncio.Future[session_service.Attachment] = asyncio.get_running_loop().create_future()

    def done(outcome: session_service.Attachment | errors.CoreError) -> None:
        if isinstance(outcome, errors.CoreError):
            if not answer.done():
                answer.set_exception(outcome)
        elif answer.done():
            outcome.subscription.close()  # the caller was cancelled
        else:
            answer.set_result(outcome)

    tower_.attach(session_id, after_seq, subscriber, admit=lambda _: None, done=done)
    return await answer
