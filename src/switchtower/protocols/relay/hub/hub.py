"""The hub: all runs, whether they live here, on another node or on a host that has dialled in. What apps ask finds its way
from here.

Implements `tower.Elsewhere`: commands of other protocols for a session on another host go the same way.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from switchtower.core import events, journal, registry, tower
from switchtower.core.session import Session
from switchtower.protocols.relay import errors, frame_limits, messages, names, outbound, rows
from switchtower.protocols.relay.host.rpc import HostRpc
from switchtower.protocols.relay.hub import screens
from switchtower.protocols.relay.hub.dispatch import NOBODY, Dispatch, Sender
from switchtower.protocols.relay.hub.host_peer import HostPeer
from switchtower.protocols.relay.hub.presence import Presence
from switchtower.protocols.relay.hub.quotas import UNLIMITED, HostUsage, Quotas
from switchtower.protocols.relay.nodes import asking
from switchtower.transports.mesh.ports import Mesh

if TYPE_CHECKING:
    from switchtower.protocols.relay.hub.app_peer import AppPeer
    from switchtower.protocols.relay.nodes.nodes import Nodes

MOST_ROWS = 200
HISTORY_PAGE = 500
MOST_PAGES = 40
"""How far one request for history reads: a page may be shorter than was asked for, but not for ever in the making."""
MOST_MOVES = 3
"""How often a call follows a run whose home moves."""


class Hub:
    def __init__(
        self,
        tower_: tower.Tower,
        hosts: registry.Registry,
        local: HostRpc,
        *,
        host_name: str,
        lost_after_s: float,
        mesh: Mesh | None = None,
        quotas: Quotas = UNLIMITED,
        max_frame_bytes: int = frame_limits.DEFAULT_BYTES,
    ) -> None:
        """`mesh` is the way to the other nodes of the tower; None when it is alone. `quotas` are those of each host, which reads
        frames up to `max_frame_bytes`."""
        self.tower = tower_
        self._quotas = quotas
        self._usages: dict[str, HostUsage] = {}
        self._local = local
        self._nodes = nodes = None if mesh is None else self._among_nodes(mesh)
        own = messages.HostRow(
            id=local.host_id, name=host_name, last_seen_at=None, online=True, is_this_daemon=True, is_node=mesh is not None
        )
        far = None if nodes is None else nodes.reach
        self._presence = presence = Presence(tower_, hosts, own, lost_after_s=lost_after_s, far=far)
        self._dispatch = Dispatch(tower_, presence.roster, mesh, max_frame_bytes=max_frame_bytes)
        self.forward = self._dispatch.forward
        self.apps: set[AppPeer] = set()
        """Those that are connected."""
        self._is_open = False
        self._looking: dict[str, asyncio.Future[journal.Card | None]] = {}
        self.set_host_state = presence.set_state
        self.rename_host = presence.rename
        self.remove_host = presence.remove
        self.rotate_host = presence.rotate

    def _among_nodes(self, mesh: Mesh) -> "Nodes":
        """Who is alone does not pay for loading them."""
        from switchtower.protocols.relay.nodes.nodes import Nodes

        return Nodes(mesh, self._local, self.card)

    @property
    def own_host_id(self) -> str:
        return self._local.host_id

    async def start(self) -> None:
        """May be asked again where it failed."""
        if self._nodes is not None and not self._is_open:
            self._nodes.open(self._presence.roster, self._presence)
        self._is_open = True
        await self._presence.start()

    async def close(self) -> None:
        if self._nodes is not None:
            await self._nodes.close()
        await self._presence.close()
        self._local.close()

    def let_go(self, code: int, reason: str) -> None:
        """Apps and hosts, which dial again and may find another node."""
        for app in tuple(self.apps):
            app.let_go(code, reason)
        self._presence.roster.let_go(code, reason)

    # Where runs live

    def host_of(self, card: journal.Card) -> str:
        """Sessions that no host has told of live on the machine of their home."""
        if card.host is not None:
            return card.host
        return self.own_host_id if self._nodes is None else self._nodes.directory.host_of(card.home)

    def knows_host_of(self, session: Session) -> bool:
        """Whether `session.host`, or else our own id, is where it lives. Otherwise its card has to be looked at."""
        return self._nodes is None or session.host is not None

    async def home_of(self, session_id: str) -> str:
        """The host that it lives on by its card. However many ask at once, it is looked at once."""
        look = self._looking.get(session_id)
        if look is None:
            look = self._looking[session_id] = asyncio.ensure_future(self.tower.card(session_id))
            look.add_done_callback(lambda _: self._looking.pop(session_id))
        card = await asyncio.shield(look)
        return self.own_host_id if card is None else self.host_of(card)

    def is_a_node(self, host_id: str) -> bool:
        """Whether this is one of the machines that the tower is made of."""
        if host_id == self.own_host_id:
            return True
        return self._nodes is not None and self._nodes.directory.node_on(host_id) is not None

    async def hosts(self) -> list[messages.HostRow]:
        """This daemon, the other nodes, and the hosts that dial in."""
        others = () if self._nodes is None else self._nodes.rows()
        return await self._presence.hosts(others)

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
            usage=self._usages.setdefault(host_id, HostUsage(self.tower, host_id, self._quotas)),
        )

    # What apps see

    async def runs(self, limit: int) -> list[messages.RunRow]:
        cards = await self.tower.cards(min(max(limit, 1), MOST_ROWS))
        return [rows.run_row(card, self.host_of(card)) for card in cards]

    async def run(self, run_id: str) -> messages.RunRow | None:
        try:
            card = await self.card(run_id)
        except errors.Refused:
            return None
        return rows.run_row(card, self.host_of(card))

    async def history(
        self, run_id: str, *, limit: int, before_id: int | None, include_output: bool
    ) -> list[messages.Message] | None:
        try:
            card = await self.card(run_id)
        except errors.Refused:
            return None
        about = outbound.About.card(card, self.host_of(card))
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
            # On whichever node it lives: the runtime finds its home, also when that has just moved.
            await self._local.commands.obey(type_, card, asked, actor)
        else:
            await self._dispatch.send(card.host, type_, run_id, asked, actor, sender)

    async def send_input(self, run_id: str, asked: messages.SendInput, actor: events.Actor) -> None:
        await self.command("run.send_input", run_id, asked, actor)

    async def other_rpc(
        self, type_: str, run_id: str | None, asked: messages.OtherRpc, actor: events.Actor, sender: Sender = NOBODY
    ) -> Any:
        """A call of a type that we do not know: forwarded to the host that is named, or else to the run's, unless that is a
        machine of ours. Raises `Refused`."""
        if asked.host_id is not None:
            if not self.is_a_node(asked.host_id) and await self._presence.knows(asked.host_id):
                return await self._dispatch.call(asked.host_id, type_, run_id, asked, actor, sender)
        elif run_id is not None:
            with contextlib.suppress(errors.UnknownRun):
                card = await self.card(run_id)
                if card.host is not None:
                    return await self._dispatch.call(card.host, type_, run_id, asked, actor, sender)
        raise errors.Refused(errors.UNKNOWN_RPC)

    async def run_rpc(self, type_: str, run_id: str, asked: messages.RunRpc, actor: events.Actor, sender: Sender = NOBODY) -> Any:
        """Done on the machine that the run lives on. Raises `Refused`."""
        for _ in range(MOST_MOVES):
            card = await self.card(run_id)
            if card.host is not None:
                return await self._dispatch.call(card.host, type_, run_id, asked, actor, sender)
            # To stop a run is a command of the core, which finds the home by itself.
            if self._nodes is None or self._local.lives_here(card) or isinstance(asked, messages.RunStop):
                return await self._local.on_run(type_, card, asked, actor)
            assert card.home is not None, "what nobody has is ours"
            try:
                return await self._nodes.calls.run_rpc(card.home, type_, run_id, asked, actor)
            except asking.Moved:
                continue
        raise errors.Refused(errors.TRY_AGAIN)

    async def host_rpc(
        self, type_: str, host_id: str, asked: messages.HostRpc, actor: events.Actor, sender: Sender = NOBODY
    ) -> Any:
        if host_id == self.own_host_id:
            return await self._local.on_host(type_, asked, actor)
        if self._nodes is not None and (node_id := self._nodes.directory.node_on(host_id)) is not None:
            return await self._nodes.calls.host_rpc(node_id, type_, asked, actor)
        if not await self._presence.knows(host_id):
            if self._nodes is not None and self._nodes.directory.remembers(host_id):
                raise errors.HostOffline
            raise errors.UnknownHost
        return await self._dispatch.call(host_id, type_, None, asked, actor, sender)
