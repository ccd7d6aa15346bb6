"""The hub: all runs, whether they are on this node, on another node or on a connected host. It routes the requests of apps.

It implements `session_service.HostForwarder`: commands of other protocols for a session on another host take the same way. A new
subscriber to a run's terminal gets the last whole screen, and all output since.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from switchtower.cluster.mesh.ports import Mesh
from switchtower.core import codec, events
from switchtower.core import errors as core_errors
from switchtower.core.ports import journal, registry, session_service
from switchtower.core.session import Session
from switchtower.protocols.relay import encoder, errors, messages, rows, wire_values
from switchtower.protocols.relay.errors import RunMoved
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.protocols.relay.hub.dispatcher import NO_SENDER, HostDispatcher, RequestSender
from switchtower.protocols.relay.hub.host_connection import HostConnection
from switchtower.protocols.relay.hub.mirror import UNLIMITED, HostQuotas, HostUsage
from switchtower.protocols.relay.hub.presence import HostPresence

if TYPE_CHECKING:
    from switchtower.cluster.relay_nodes import RelayNodes
    from switchtower.protocols.relay.hub.app_connection import AppConnection


PAGE_SIZE = 500
MAX_SCREEN_BYTES = 524_288
"""Bytes of output since the last whole screen. Only a program that floods its terminal writes more."""


async def read_screen(tower_: session_service.SessionService, session_id: str) -> dict[str, Any] | None:
    """`text` paints the screen as it was at `id`. Returns None when the session does not exist, or has no terminal."""
    try:
        session = await tower_.get_session(session_id)
    except core_errors.SessionNotFound:
        return None
    terminal = session.terminal
    if terminal is None:
        return None
    entries: list[journal.Entry] = []
    size, after = 0, max(terminal.screen_seq - 1, 0)
    while size <= MAX_SCREEN_BYTES and (page := await tower_.read_entries(session_id, after, PAGE_SIZE)):
        entries += page
        after = page[-1].seq
        size += sum(len(entry.data) for entry in page)
    if size > MAX_SCREEN_BYTES:
        entries = await tower_.read_entries_before(session_id, session_service.HEAD_CURSOR, PAGE_SIZE)
        after = entries[-1].seq if entries else after
    return {"text": _collect_screen_text(entries), "cols": terminal.cols, "rows": terminal.rows, "id": after}


def _collect_screen_text(entries: list[journal.Entry]) -> str:
    pieces: list[str] = []
    for entry in entries:
        if entry.kind in (events.ToolProgressed.kind, events.ScreenCaptured.kind):
            event = codec.decode(entry.kind, entry.data)
            if isinstance(event, events.ScreenCaptured):
                pieces = [event.text]
            elif isinstance(event, events.ToolProgressed):
                pieces.append(event.text)
    return "".join(pieces)


MAX_ROWS = 200
HISTORY_PAGE = 500
MAX_PAGES = 40
"""Pages that one request for history reads at most: the answer may be shorter than requested, but does not take for ever."""
MAX_MOVES = 3
"""The number of times that a call follows a run to a new owner."""


class Hub:
    def __init__(
        self,
        tower_: session_service.SessionService,
        hosts: registry.Registry,
        local: HostRpcHandler,
        *,
        host_name: str,
        lost_after_s: float,
        mesh: Mesh | None = None,
        quotas: HostQuotas = UNLIMITED,
        max_frame_bytes: int = wire_values.DEFAULT_MAX_FRAME_BYTES,
    ) -> None:
        """`mesh` connects to the other nodes of the cluster; None for a single node. `quotas` are those of each host, which reads
        frames up to `max_frame_bytes`."""
        self.tower = tower_
        self._quotas = quotas
        self._usages: dict[str, HostUsage] = {}
        self._local = local
        self._nodes = nodes = None if mesh is None else self._make_nodes(mesh)
        own = messages.HostRow(
            id=local.host_id, name=host_name, last_seen_at=None, online=True, is_this_daemon=True, is_node=mesh is not None
        )
        far = None if nodes is None else nodes.remote_hosts
        self._presence = presence = HostPresence(tower_, hosts, own, lost_after_s=lost_after_s, remote_hosts=far)
        self._dispatch = HostDispatcher(tower_, presence.connected_hosts, mesh, max_frame_bytes=max_frame_bytes)
        self.forward = self._dispatch.forward
        self.apps: set[AppConnection] = set()
        """The connected apps."""
        self._is_open = False
        self._card_lookups: dict[str, asyncio.Future[journal.Card | None]] = {}
        self.set_host_state = presence.set_host_state
        self.rename_host = presence.rename_host
        self.remove_host = presence.remove_host
        self.rotate_host = presence.rotate_host

    def _make_nodes(self, mesh: Mesh) -> "RelayNodes":
        """A single node does not load the cluster's modules."""
        from switchtower.cluster.relay_nodes import RelayNodes

        return RelayNodes(mesh, self._local, self.get_card)

    @property
    def own_host_id(self) -> str:
        return self._local.host_id

    async def start(self) -> None:
        """It may be called again after a failure."""
        if self._nodes is not None and not self._is_open:
            self._nodes.open(self._presence.connected_hosts, self._presence)
        self._is_open = True
        await self._presence.start()

    async def close(self) -> None:
        if self._nodes is not None:
            await self._nodes.close()
        await self._presence.close()
        self._local.close()

    def close_for_restart(self, code: int, reason: str) -> None:
        """Disconnects apps and hosts, which reconnect and may reach another node."""
        for app in tuple(self.apps):
            app.close_for_restart(code, reason)
        self._presence.connected_hosts.close_for_restart(code, reason)

    # Hosts of runs

    def get_host_id(self, card: journal.Card) -> str:
        """A session that no host has reported is on the machine of the node that owns it."""
        if card.host is not None:
            return card.host
        return self.own_host_id if self._nodes is None else self._nodes.directory.get_host_id(card.home)

    def has_known_host(self, session: Session) -> bool:
        """Returns whether `session.host`, or else our own id, is the session's host. Otherwise its card has to be read."""
        return self._nodes is None or session.host is not None

    async def find_host_id(self, session_id: str) -> str:
        """Returns the session's host by its card. Concurrent callers share one lookup."""
        look = self._card_lookups.get(session_id)
        if look is None:
            look = self._card_lookups[session_id] = asyncio.ensure_future(self.tower.find_card(session_id))
            look.add_done_callback(lambda _: self._card_lookups.pop(session_id))
        card = await asyncio.shield(look)
        return self.own_host_id if card is None else self.get_host_id(card)

    def is_node(self, host_id: str) -> bool:
        """Returns whether this host is one of the cluster's nodes."""
        if host_id == self.own_host_id:
            return True
        return self._nodes is not None and self._nodes.directory.find_node(host_id) is not None

    async def list_hosts(self) -> list[messages.HostRow]:
        """Lists this daemon, the other nodes, and the hosts that connect."""
        others = () if self._nodes is None else self._nodes.list_rows()
        return await self._presence.list_hosts(others)

    def make_host_connection(self, host_id: str) -> HostConnection:
        """Makes the connection of an authenticated host."""
        presence = self._presence
        return HostConnection(
            self.tower,
            host_id,
            on_connected=presence.on_host_connected,
            on_disconnected=presence.on_host_disconnected,
            on_activity=presence.record_activity,
            on_refusal=self._dispatch.on_host_refusal,
            usage=self._usages.setdefault(host_id, HostUsage(self.tower, host_id, self._quotas)),
        )

    # Queries of apps

    async def list_runs(self, limit: int) -> list[messages.RunRow]:
        cards = await self.tower.list_cards(min(max(limit, 1), MAX_ROWS))
        return [rows.make_run_row(card, self.get_host_id(card)) for card in cards]

    async def find_run(self, run_id: str) -> messages.RunRow | None:
        try:
            card = await self.get_card(run_id)
        except errors.RelayError:
            return None
        return rows.make_run_row(card, self.get_host_id(card))

    async def read_history(
        self, run_id: str, *, limit: int, before_id: int | None, include_output: bool
    ) -> list[messages.Message] | None:
        try:
            card = await self.get_card(run_id)
        except errors.RelayError:
            return None
        about = encoder.EnvelopeHeader.from_card(card, self.get_host_id(card))
        found: list[messages.Message] = []
        before = session_service.HEAD_CURSOR if before_id is None else before_id
        pages = 0
        while True:
            entries = await self.tower.read_entries_before(card.session_id, before, HISTORY_PAGE, streamed=include_output)
            if not entries:
                break
            found = rows.make_history(about, entries, include_output=include_output) + found
            before = entries[0].seq
            pages += 1
            if len(found) >= limit or (found and pages >= MAX_PAGES):
                break
            await asyncio.sleep(0)
        return found[-limit:]

    async def read_screen(self, run_id: str) -> dict[str, Any] | None:
        try:
            return await read_screen(self.tower, wire_values.parse_run_id(run_id))
        except wire_values.InvalidRelayId:
            return None

    async def get_card(self, run_id: str) -> journal.Card:
        try:
            card = await self.tower.find_card(wire_values.parse_run_id(run_id))
        except wire_values.InvalidRelayId:
            card = None
        if card is None:
            raise errors.UnknownRun
        return card

    # Commands and calls of apps

    async def send_command(
        self, type_: str, run_id: str, request: messages.RunCommand, actor: events.Actor, sender: RequestSender = NO_SENDER
    ) -> None:
        """Raises `RelayError`. A host refuses a command later; then the sender is notified."""
        card = await self.get_card(run_id)
        if card.host is None:
            # The runtime finds the node that owns the session, even when that has just changed.
            await self._local.commands.execute(type_, card, request, actor)
        else:
            await self._dispatch.send(card.host, type_, run_id, request, actor, sender)

    async def send_input(self, run_id: str, request: messages.SendInput, actor: events.Actor) -> None:
        await self.send_command("run.send_input", run_id, request, actor)

    async def forward_rpc(
        self, type_: str, run_id: str | None, request: messages.OtherRpc, actor: events.Actor, sender: RequestSender = NO_SENDER
    ) -> Any:
        """Forwards a call of an unknown type to the host that is named, or else to the run's host, unless that is one of our
        nodes. Raises `RelayError`."""
        if request.host_id is not None:
            if not self.is_node(request.host_id) and await self._presence.is_known(request.host_id):
                return await self._dispatch.call(request.host_id, type_, run_id, request, actor, sender)
        elif run_id is not None:
            with contextlib.suppress(errors.UnknownRun):
                card = await self.get_card(run_id)
                if card.host is not None:
                    return await self._dispatch.call(card.host, type_, run_id, request, actor, sender)
        raise errors.RelayError(errors.UNKNOWN_RPC)

    async def call_on_run(
        self, type_: str, run_id: str, request: messages.RunRpc, actor: events.Actor, sender: RequestSender = NO_SENDER
    ) -> Any:
        """Makes the call on the run's machine. Raises `RelayError`."""
        for _ in range(MAX_MOVES):
            card = await self.get_card(run_id)
            if card.host is not None:
                return await self._dispatch.call(card.host, type_, run_id, request, actor, sender)
            # Stopping a run is a command of the core, which finds the owner by itself.
            if self._nodes is None or self._local.is_local(card) or isinstance(request, messages.RunStop):
                return await self._local.call_on_run(type_, card, request, actor)
            assert card.home is not None, "what nobody has is ours"
            try:
                return await self._nodes.calls.call_on_run(card.home, type_, run_id, request, actor)
            except RunMoved:
                continue
        raise errors.RelayError(errors.TRY_AGAIN)

    async def call_on_host(
        self, type_: str, host_id: str, request: messages.HostRpc, actor: events.Actor, sender: RequestSender = NO_SENDER
    ) -> Any:
        if host_id == self.own_host_id:
            return await self._local.call_on_host(type_, request, actor)
        if self._nodes is not None and (node_id := self._nodes.directory.find_node(host_id)) is not None:
            return await self._nodes.calls.call_on_host(node_id, type_, request, actor)
        if not await self._presence.is_known(host_id):
            if self._nodes is not None and self._nodes.directory.is_remembered(host_id):
                raise errors.HostOffline
            raise errors.UnknownHost
        return await self._dispatch.call(host_id, type_, None, request, actor, sender)
