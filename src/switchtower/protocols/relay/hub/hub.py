"""The hub: all runs, whether they live here or on a host that has dialled in. What apps ask finds its way from here.

Implements `tower.Elsewhere`: commands of other protocols for a session on another host go the same way.
"""

import asyncio
from typing import Any

from switchtower.core import events, journal, registry, tower
from switchtower.protocols.relay import errors, messages, names, outbound, rows
from switchtower.protocols.relay.host.rpc import HostRpc
from switchtower.protocols.relay.hub import screens
from switchtower.protocols.relay.hub.dispatch import NOBODY, Dispatch, Sender
from switchtower.protocols.relay.hub.host_peer import HostPeer
from switchtower.protocols.relay.hub.presence import Presence

MOST_ROWS = 200
HISTORY_PAGE = 500
MOST_PAGES = 40
"""How far one request for history reads: a page may be shorter than was asked for, but not for ever in the making."""


class Hub:
    def __init__(
        self, tower_: tower.Tower, hosts: registry.Registry, local: HostRpc, *, host_name: str, lost_after_s: float
    ) -> None:
        self.tower = tower_
        self._local = local
        own = messages.HostRow(id=local.host_id, name=host_name, last_seen_at=None, online=True, is_this_daemon=True)
        self._presence = presence = Presence(tower_, hosts, own, lost_after_s=lost_after_s)
        self._dispatch = Dispatch(tower_, presence.roster)
        self.forward = self._dispatch.forward
        self.hosts = presence.hosts
        self.set_host_state = presence.set_state
        self.rename_host = presence.rename
        self.remove_host = presence.remove
        self.rotate_host = presence.rotate

    @property
    def own_host_id(self) -> str:
        return self._local.host_id

    async def start(self) -> None:
        await self._presence.start()

    async def close(self) -> None:
        await self._presence.close()
        self._local.close()

    def welcome(self, host_id: str) -> HostPeer:
        """A peer for a host that has shown who it is."""
        presence = self._presence
        return HostPeer(
            self.tower,
            host_id,
            came=presence.came,
            went=presence.went,
            heard=presence.heard,
            failed=self._dispatch.refused,
        )

    # What apps see

    async def runs(self, limit: int) -> list[messages.RunRow]:
        cards = await self.tower.cards(min(max(limit, 1), MOST_ROWS))
        return [rows.run_row(card, self.own_host_id) for card in cards]

    async def run(self, run_id: str) -> messages.RunRow | None:
        try:
            return rows.run_row(await self.card(run_id), self.own_host_id)
        except errors.Refused:
            return None

    async def history(
        self, run_id: str, *, limit: int, before_id: int | None, include_output: bool
    ) -> list[messages.Message] | None:
        try:
            card = await self.card(run_id)
        except errors.Refused:
            return None
        about = outbound.About.card(card, self.own_host_id)
        found: list[messages.Message] = []
        before = tower.FROM_THE_HEAD if before_id is None else before_id
        pages = 0
        while True:
            entries = await self.tower.entries_before(card.session_id, before, HISTORY_PAGE, streamed=include_output)
            if not entries:
                break
            found = rows.history(about, entries, include_output=include_output) + found
            before = entries[0].seq
            pages += 1
            if len(found) >= limit or (found and pages >= MOST_PAGES):
                break
            await asyncio.sleep(0)
        return found[-limit:]

    async def screen(self, run_id: str) -> dict[str, Any] | None:
        try:
            return await screens.of(self.tower, names.session_of(run_id))
        except names.BadId:
            return None

    async def card(self, run_id: str) -> journal.Card:
        try:
            card = await self.tower.card(names.session_of(run_id))
        except names.BadId:
            card = None
        if card is None:
            raise errors.UnknownRun
        return card

    # What apps ask

    async def command(
        self, type_: str, run_id: str, asked: messages.RunCommand, actor: events.Actor, sender: Sender = NOBODY
    ) -> None:
        """Raises `Refused`. A host that refuses it does so later; then the sender hears of it."""
        card = await self.card(run_id)
        if card.host is None:
            await self._local.commands.obey(type_, card, asked, actor)
        else:
            self._dispatch.send(card.host, type_, run_id, asked, actor, sender)

    async def send_input(self, run_id: str, asked: messages.SendInput, actor: events.Actor) -> None:
        await self.command("run.send_input", run_id, asked, actor)

    async def run_rpc(self, type_: str, run_id: str, asked: messages.RunRpc, actor: events.Actor, sender: Sender = NOBODY) -> Any:
        card = await self.card(run_id)
        if card.host is None:
            return await self._local.on_run(type_, card, asked, actor)
        return await self._dispatch.call(card.host, type_, run_id, asked, actor, sender)

    async def host_rpc(
        self, type_: str, host_id: str, asked: messages.HostRpc, actor: events.Actor, sender: Sender = NOBODY
    ) -> Any:
        if host_id == self.own_host_id:
            return await self._local.on_host(type_, asked, actor)
        if not await self._presence.knows(host_id):
            raise errors.UnknownHost
        return await self._dispatch.call(host_id, type_, None, asked, actor, sender)
