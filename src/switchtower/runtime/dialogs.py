"""What the extensions of one run have asked people, and who waits for the answers."""

import asyncio

from switchtower.core import commands, engine, events
from switchtower.runtime.lane import Lane


class PendingDialogs:
    def __init__(self, lane: Lane, run_id: str) -> None:
        self._lane = lane
        self._run_id = run_id
        self._waiting: dict[str, asyncio.Future[engine.DialogAnswer]] = {}

    async def open(self, dialog: events.Dialog) -> engine.DialogAnswer:
        opened = commands.OpenDialog(session_id=self._lane.session_id, run_id=self._run_id, dialog=dialog)
        dialog_id = str((await self._lane.ask(opened))["dialog_id"])
        return await self._get_future(dialog_id)

    def resolve(self, dialog_id: str, answer: engine.DialogAnswer) -> None:
        """An answer was committed. It may come before the asker has begun to wait."""
        future = self._get_future(dialog_id)
        if not future.done():
            future.set_result(answer)

    def _get_future(self, dialog_id: str) -> asyncio.Future[engine.DialogAnswer]:
        return self._waiting.setdefault(dialog_id, asyncio.get_running_loop().create_future())
