"""A subscriber's place in a session, awaited."""

import asyncio

from switchtower.core import errors, tower


async def attach(tower_: tower.SessionService, session_id: str, after_seq: int, subscriber: tower.Subscriber) -> tower.Attachment:
    """Not started yet. Raises the core's refusals."""
    answer: asyncio.Future[tower.Attachment] = asyncio.get_running_loop().create_future()

    def done(outcome: tower.Attachment | errors.CoreError) -> None:
        if isinstance(outcome, errors.CoreError):
            if not answer.done():
                answer.set_exception(outcome)
        elif answer.done():
            outcome.subscription.close()  # nobody waits any more
        else:
            answer.set_result(outcome)

    tower_.attach(session_id, after_seq, subscriber, admit=lambda _: None, done=done)
    return await answer
