"""Runs on hosts that are away are marked as lost, and as found when their host is back. One pass over all runs serves however
many hosts went at once; what cannot be stored now is tried again."""

import asyncio
import logging

from switchtower.core import commands, errors, journal, states, tower
from switchtower.protocols.relay.hub.roster import ConnectedHosts

log = logging.getLogger(__name__)

MAX_CARDS = 100_000
RETRY_SECONDS = 1.0


class LostRunMarker:
    def __init__(self, tower_: tower.SessionService, hosts: ConnectedHosts, *, retry_s: float = RETRY_SECONDS) -> None:
        self._tower = tower_
        self._hosts = hosts
        self._retry_s = retry_s
        self._wanted: dict[str, bool] = {}
        """By host, whether its runs are lost. Only what holds at the moment of the mark is marked."""
        self._task: asyncio.Task[None] | None = None

    async def list_hosts_with_runs(self) -> set[str]:
        return {card.host for card in await self._list_cards() if card.host is not None}

    def mark(self, host_id: str, *, lost: bool) -> None:
        self._wanted[host_id] = lost
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._mark_all())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _mark_all(self) -> None:
        try:
            while self._wanted:
                wanted, self._wanted = self._wanted, {}
                again = await self._mark(wanted)
                if again:
                    self._wanted = again | self._wanted
                    await asyncio.sleep(self._retry_s)
        except Exception:
            log.exception("keeping books on the runs of hosts failed")
        finally:
            self._task = None

    async def _mark(self, wanted: dict[str, bool]) -> dict[str, bool]:
        """What has to be tried again."""
        again: dict[str, bool] = {}
        try:
            cards = await self._list_cards()
        except errors.CoreError as refusal:
            log.warning("the runs of hosts cannot be looked at: %s", refusal)
            return wanted
        for card in cards:
            host_id = card.host
            lost = None if host_id is None else wanted.get(host_id)
            if host_id is None or lost is None or card.host_lost is lost or (host_id in self._hosts) is lost:
                continue
            try:
                await self._tower.ask(commands.MarkHost(session_id=card.session_id, lost=lost))
            except errors.CoreError as refusal:
                log.warning("%s could not be marked: %s", card.session_id, refusal)
                if refusal.retryable:
                    again[host_id] = lost
        return again

    async def _list_cards(self) -> list[journal.Card]:
        cards = await self._tower.list_cards(MAX_CARDS)
        return [card for card in cards if card.host is not None and card.state in states.ACTIVE]
