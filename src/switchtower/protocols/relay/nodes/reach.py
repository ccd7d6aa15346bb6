"""Hosts that are connected to other nodes: who has which is told around, and what is said to one goes by way of its node.

Words about who is there are not lost: whoever meets a node says all it has and asks the same of it. A node that cannot be
reached takes its hosts with it, and brings them again when it is back.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from switchtower.protocols.relay import errors
from switchtower.protocols.relay.hub.roster import HostLine, Roster
from switchtower.protocols.relay.nodes import asking, letters
from switchtower.protocols.relay.nodes.claims import Change, Claims
from switchtower.protocols.relay.nodes.far_line import FarLine
from switchtower.transports.mesh import ports

log = logging.getLogger(__name__)

MOST_CALLS = 10_000
"""Of other nodes to hosts that are connected here."""


class Keeper(Protocol):
    """Who keeps books on hosts."""

    def came_elsewhere(self, host_id: str) -> None: ...

    def went_elsewhere(self, host_id: str) -> None: ...


class Reach:
    """Implements `roster.Far`."""

    def __init__(self, mesh: ports.Mesh) -> None:
        self._mesh = mesh
        self._claims = Claims(mesh.me.node_id)
        self._calls: set[asyncio.Task[None]] = set()
        self._roster: Roster
        self._keeper: Keeper
        self._unwatch: Callable[[], None] = lambda: None

    def open(self, roster: Roster, keeper: Keeper) -> None:
        self._roster = roster
        self._keeper = keeper
        mesh = self._mesh
        mesh.hears(letters.PRESENCE, self._heard_presence)
        mesh.hears(letters.LINE_CUT, self._heard_cut)
        mesh.answers(letters.LINE_SEND, self._asked_to_send)
        mesh.answers(letters.LINE_CALL, self._asked_to_call)
        self._unwatch = mesh.watch(self._met, self._parted)

    async def close(self) -> None:
        self._unwatch()
        for call in tuple(self._calls):
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    # The roster's side

    def __contains__(self, host_id: str) -> bool:
        return host_id in self._claims

    def line(self, host_id: str) -> FarLine | None:
        node_id = self._claims.holder(host_id)
        return None if node_id is None else FarLine(self._mesh, node_id, host_id)

    def took(self, host_id: str) -> None:
        self._tell_all(self._claims.took(host_id))

    def lost(self, host_id: str) -> None:
        self._tell_all(self._claims.lost(host_id))

    def cut(self, host_id: str, reason: str) -> None:
        for node_id in self._claims.holders(host_id):
            self._mesh.tell(node_id, letters.LINE_CUT, letters.encode(letters.Cut(host_id, reason)))

    # Who has which

    def _met(self, peer: ports.Peer) -> None:
        self._tell(peer.node_id, self._claims.everything(wants_all=True))

    def _parted(self, peer: ports.Peer) -> None:
        self._changed(self._claims.forget(peer.node_id))

    def _heard_presence(self, node_id: str, body: bytes) -> None:
        said = _read(node_id, body, letters.Presence)
        if said is None:
            return
        if said.wants_all:
            self._tell(node_id, self._claims.everything(wants_all=False))
        # Of one that cannot be spoken to we want nothing: when it can, it is asked for all again.
        if node_id in self._mesh.peers:
            self._changed(self._claims.heard(node_id, said))

    def _changed(self, change: Change) -> None:
        for host_id in change.replaced:
            self._roster.replaced_elsewhere(host_id)
        for host_id in change.appeared:
            self._keeper.came_elsewhere(host_id)
        for host_id in change.vanished:
            self._keeper.went_elsewhere(host_id)

    def _tell_all(self, said: letters.Presence) -> None:
        body = letters.encode(said)
        for node_id in tuple(self._mesh.peers):
            self._mesh.tell(node_id, letters.PRESENCE, body)

    def _tell(self, node_id: str, said: letters.Presence) -> None:
        self._mesh.tell(node_id, letters.PRESENCE, letters.encode(said))

    # What other nodes ask of hosts that are connected here. Nothing is passed on a second time, so nothing goes in circles.

    def _heard_cut(self, node_id: str, body: bytes) -> None:
        if (said := _read(node_id, body, letters.Cut)) is not None:
            self._roster.cut_here(said.host_id, said.reason)

    def _asked_to_send(self, node_id: str, body: bytes, reply: ports.Reply) -> None:
        asked = _read(node_id, body, letters.ToLine)
        line = None if asked is None else self._roster.here(asked.host_id)
        if asked is None or line is None:
            _say(reply, asking.of(errors.HostOffline()))
        else:
            line.post(asked.frame, lambda _: _say(reply, letters.Answer(True)))

    def _asked_to_call(self, node_id: str, body: bytes, reply: ports.Reply) -> None:
        asked = _read(node_id, body, letters.ToLine)
        line = None if asked is None else self._roster.here(asked.host_id)
        if asked is None or line is None or asked.request_id is None:
            _say(reply, asking.of(errors.HostOffline()))
        elif len(self._calls) >= MOST_CALLS:
            _say(reply, asking.of(errors.Refused(errors.TOO_MANY_CALLS)))
        else:
            task = asyncio.get_running_loop().create_task(self._call(line, asked, asked.request_id, reply))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    async def _call(self, line: HostLine, asked: letters.ToLine, request_id: str, reply: ports.Reply) -> None:
        answer = asking.of(errors.HostOffline(errors.HOST_GONE))
        try:
            answer = letters.Answer(True, msgspec.to_builtins(await line.call(asked.frame, request_id, asked.timeout_s)))
        except errors.Refused as refusal:
            answer = asking.of(refusal)
        finally:
            _say(reply, answer)


def _say(reply: ports.Reply, answer: letters.Answer) -> None:
    reply(letters.encode(answer))


def _read(node_id: str, body: bytes, type_: type[letters.Letter]) -> letters.Letter | None:
    try:
        return letters.decode(body, type_)
    except letters.Unreadable as problem:
        log.warning("node %s says what cannot be read: %s", node_id, problem)
        return None
