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
from switchtower.protocols.relay.hub.roster import ConnectedHost, ConnectedHosts
from switchtower.protocols.relay.nodes import asking, letters
from switchtower.protocols.relay.nodes.claims import ClaimChanges, HostClaims
from switchtower.protocols.relay.nodes.far_line import RemoteHostChannel
from switchtower.transports.mesh import ports

log = logging.getLogger(__name__)

MAX_CONCURRENT_CALLS = 10_000
"""Of other nodes to hosts that are connected here."""


class HostObserver(Protocol):
    """Who keeps books on hosts."""

    def on_remote_host_connected(self, host_id: str) -> None: ...

    def on_remote_host_disconnected(self, host_id: str) -> None: ...


class RemoteHosts:
    """Implements `roster.Far`."""

    def __init__(self, mesh: ports.Mesh) -> None:
        self._mesh = mesh
        self._claims = HostClaims(mesh.local_peer.node_id)
        self._calls: set[asyncio.Task[None]] = set()
        self._connected_hosts: ConnectedHosts
        self._observer: HostObserver
        self._unwatch: Callable[[], None] = lambda: None

    def open(self, connected_hosts: ConnectedHosts, observer: HostObserver) -> None:
        self._connected_hosts = connected_hosts
        self._observer = observer
        mesh = self._mesh
        mesh.handle_notifications(letters.PRESENCE, self._on_presence)
        mesh.handle_notifications(letters.HOST_DISCONNECT, self._on_disconnect_request)
        mesh.handle_requests(letters.HOST_SEND, self._on_send_request)
        mesh.handle_requests(letters.HOST_CALL, self._on_call_request)
        self._unwatch = mesh.watch(self._on_node_connected, self._on_node_disconnected)

    async def close(self) -> None:
        self._unwatch()
        for call in tuple(self._calls):
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    # The roster's side

    def __contains__(self, host_id: str) -> bool:
        return host_id in self._claims

    def find_channel(self, host_id: str) -> RemoteHostChannel | None:
        node_id = self._claims.find_holder(host_id)
        return None if node_id is None else RemoteHostChannel(self._mesh, node_id, host_id)

    def on_host_connected(self, host_id: str) -> None:
        self._notify_all(self._claims.claim(host_id))

    def on_host_disconnected(self, host_id: str) -> None:
        self._notify_all(self._claims.release(host_id))

    def disconnect(self, host_id: str, reason: str) -> None:
        for node_id in self._claims.list_holders(host_id):
            self._mesh.notify(node_id, letters.HOST_DISCONNECT, letters.encode(letters.DisconnectHostMessage(host_id, reason)))

    # Who has which

    def _on_node_connected(self, peer: ports.MeshPeer) -> None:
        self._notify(peer.node_id, self._claims.make_full_presence(wants_all=True))

    def _on_node_disconnected(self, peer: ports.MeshPeer) -> None:
        self._apply_changes(self._claims.remove_node(peer.node_id))

    def _on_presence(self, node_id: str, body: bytes) -> None:
        said = _decode_or_log(node_id, body, letters.PresenceMessage)
        if said is None:
            return
        if said.wants_all:
            self._notify(node_id, self._claims.make_full_presence(wants_all=False))
        # Of one that cannot be spoken to we want nothing: when it can, it is asked for all again.
        if node_id in self._mesh.peers:
            self._apply_changes(self._claims.apply_presence(node_id, said))

    def _apply_changes(self, change: ClaimChanges) -> None:
        for host_id in change.replaced:
            self._connected_hosts.disconnect_replaced(host_id)
        for host_id in change.appeared:
            self._observer.on_remote_host_connected(host_id)
        for host_id in change.vanished:
            self._observer.on_remote_host_disconnected(host_id)

    def _notify_all(self, presence: letters.PresenceMessage) -> None:
        body = letters.encode(presence)
        for node_id in tuple(self._mesh.peers):
            self._mesh.notify(node_id, letters.PRESENCE, body)

    def _notify(self, node_id: str, presence: letters.PresenceMessage) -> None:
        self._mesh.notify(node_id, letters.PRESENCE, letters.encode(presence))

    # What other nodes ask of hosts that are connected here. Nothing is passed on a second time, so nothing goes in circles.

    def _on_disconnect_request(self, node_id: str, body: bytes) -> None:
        if (said := _decode_or_log(node_id, body, letters.DisconnectHostMessage)) is not None:
            self._connected_hosts.disconnect_local(said.host_id, said.reason)

    def _on_send_request(self, node_id: str, body: bytes, reply: ports.ReplyCallback) -> None:
        asked = _decode_or_log(node_id, body, letters.HostFrameMessage)
        line = None if asked is None else self._connected_hosts.find_local(asked.host_id)
        if asked is None or line is None:
            _send_reply(reply, asking.make_error_reply(errors.HostOffline()))
        else:
            line.post(asked.frame, lambda _: _send_reply(reply, letters.NodeReply(True)))

    def _on_call_request(self, node_id: str, body: bytes, reply: ports.ReplyCallback) -> None:
        asked = _decode_or_log(node_id, body, letters.HostFrameMessage)
        line = None if asked is None else self._connected_hosts.find_local(asked.host_id)
        if asked is None or line is None or asked.request_id is None:
            _send_reply(reply, asking.make_error_reply(errors.HostOffline()))
        elif len(self._calls) >= MAX_CONCURRENT_CALLS:
            _send_reply(reply, asking.make_error_reply(errors.RelayError(errors.TOO_MANY_CALLS)))
        else:
            task = asyncio.get_running_loop().create_task(self._call(line, asked, asked.request_id, reply))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    async def _call(
        self, line: ConnectedHost, request: letters.HostFrameMessage, request_id: str, reply: ports.ReplyCallback
    ) -> None:
        answer = asking.make_error_reply(errors.HostOffline(errors.HOST_GONE))
        try:
            answer = letters.NodeReply(True, msgspec.to_builtins(await line.call(request.frame, request_id, request.timeout_s)))
        except errors.RelayError as refusal:
            answer = asking.make_error_reply(refusal)
        finally:
            _send_reply(reply, answer)


def _send_reply(reply: ports.ReplyCallback, answer: letters.NodeReply) -> None:
    reply(letters.encode(answer))


def _decode_or_log(node_id: str, body: bytes, type_: type[letters.NodeMessageT]) -> letters.NodeMessageT | None:
    try:
        return letters.decode(body, type_)
    except letters.NodeMessageError as problem:
        log.warning("node %s says what cannot be read: %s", node_id, problem)
        return None
