"""A command of the tower, awaited."""

import asyncio

from switchtower.core import commands, errors, tower


async def ask(tower_: tower.Tower, command: commands.AnyCommand) -> tower.Outcome:
    """Raises the refusal. Once asked it happens, whether or not anybody still waits for the answer."""
    answer: asyncio.Future[tower.Outcome] = asyncio.get_running_loop().create_future()

    def done(outcome: tower.Outcome | errors.CoreError) -> None:
        if answer.done():
            return
        if isinstance(outcome, errors.CoreError):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    tower_.submit(command, done)
    return await answer
