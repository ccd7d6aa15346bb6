"""The hosts that are connected now: the channel to each, and the calls that it has not answered. In a cluster, hosts of other
nodes are reached as well."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from switchtower.protocols.relay import encoder, errors, messages
from switchtower.transports.stream import Outbox, Packet, Stream

log = logging.getLogger(__name__)

MAX_PENDING_CALLS = 1_000
"""Calls to one host that it has not answered."""
REPLACED = 4000
"""The close code for a connection that its host has replaced by a new one."""
REMOVED = 4001
"""The close code for a host that is no longer approved."""

OnSent = Callable[[errors.RelayError | None], None]
"""Gets the reason why a message will not arrive, or None when it is on its way."""


class HostChannel(Protocol):
    """The channel to one host."""

    def post(self, frame: bytes, done: OnSent) -> None: ...

    async def call(self, frame: bytes, request_id: str, timeout_s: float | None) -> messages.Response:
        """Sends an RPC and waits for its answer. Raises `RelayError`."""
        ...


class RemoteHostsPort(Protocol):
    """The hosts that are connected to other nodes."""

    def __contains__(self, host_id: str) -> bool: ...

    def find_channel(self, host_id: str) -> HostChannel | None: ...

    def on_host_connected(self, host_id: str) -> None:
        """The host is connected to this node now."""
        ...

    def on_host_disconnected(self, host_id: str) -> None:
        """The host is no longer connected to this node."""
        ...

    def disconnect(self, host_id: str, reason: str) -> None: ...


class ConnectedHost:
    """One host's connection, as the hub sends to it."""

    def __init__(self, host_id: str, stream: Stream) -> None:
        self.host_id = host_id
        self.stream = stream
        self.outbox = Outbox(stream)
        self._pending: dict[str, asyncio.Future[messages.Response]] = {}

    def send(self, frame: bytes) -> None:
        self.outbox.send(Packet([frame]))

    def post(self, frame: bytes, done: OnSent) -> None:
        self.send(frame)
        done(None)

    async def call(self, frame: bytes, request_id: str, timeout_s: float | None) -> messages.Response:
        if request_id in self._pending:
            raise errors.RelayError(errors.IN_USE)
        if len(self._pending) >= MAX_PENDING_CALLS:
            raise errors.RelayError("too many calls wait for this host")
        answer: asyncio.Future[messages.Response] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = answer
        self.send(frame)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise errors.HostOffline(errors.HOST_SILENT) from None
        finally:
            self._pending.pop(request_id, None)

    def resolve_call(self, response: messages.Response) -> None:
        answer = self._pending.get(response.request_id)
        if answer is not None and not answer.done():
            answer.set_result(response)

    def fail_pending_calls(self) -> None:
        """Pending calls fail at once: no answer will come."""
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(errors.HostOffline(errors.HOST_GONE))


class ConnectedHosts:
    def __init__(self, remote_hosts: RemoteHostsPort | None = None) -> None:
        """`remote_hosts` is None when there are no other nodes."""
        self._hosts: dict[str, ConnectedHost] = {}
        self._remote_hosts = remote_hosts

    def __contains__(self, host_id: str) -> bool:
        return host_id in self._hosts or (self._remote_hosts is not None and host_id in self._remote_hosts)

    def add(self, line: ConnectedHost) -> None:
        """A new connection of the same host replaces the old one, which is closed with `REPLACED`."""
        old = self._hosts.get(line.host_id)
        self._hosts[line.host_id] = line
        if old is not None:
            log.info("host %s has come with a new connection", line.host_id)
            _close_replaced(old)
        if self._remote_hosts is not None:
            self._remote_hosts.on_host_connected(line.host_id)

    def disconnect_replaced(self, host_id: str) -> None:
        """The host has connected to another node since."""
        if (old := self._hosts.pop(host_id, None)) is not None:
            log.info("host %s has come to another node", host_id)
            _close_replaced(old)
            if self._remote_hosts is not None:
                self._remote_hosts.on_host_disconnected(host_id)

    def drop(self, line: ConnectedHost) -> bool:
        """Returns whether this was the host's current connection. The end of an old one does not affect the new one."""
        line.fail_pending_calls()
        if self._hosts.get(line.host_id) is not line:
            return False
        del self._hosts[line.host_id]
        if self._remote_hosts is not None:
            self._remote_hosts.on_host_disconnected(line.host_id)
        return True

    def find_local(self, host_id: str) -> ConnectedHost | None:
        return self._hosts.get(host_id)

    def get_channel(self, host_id: str) -> HostChannel:
        found: HostChannel | None = self._hosts.get(host_id)
        if found is None and self._remote_hosts is not None:
            found = self._remote_hosts.find_channel(host_id)
        if found is None:
            raise errors.HostOffline()
        return found

    def close_for_restart(self, code: int, reason: str) -> None:
        """Disconnects all hosts of this node."""
        for line in tuple(self._hosts.values()):
            line.stream.close(code, reason)

    def disconnect(self, host_id: str, reason: str) -> None:
        self.disconnect_local(host_id, reason)
        if self._remote_hosts is not None:
            self._remote_hosts.disconnect(host_id, reason)

    def disconnect_local(self, host_id: str, reason: str) -> None:
        if line := self._hosts.get(host_id):
            line.stream.close(REMOVED, reason)


def _close_replaced(line: ConnectedHost) -> None:
    line.fail_pending_calls()
    line.stream.close(REPLACED, "replaced by a new connection")


def encode_host_command(type_: str, now_ms: int, *, host_id: str, run_id: str | None, data: dict[str, Any]) -> bytes:
    return encoder.encode_unnumbered(type_, now_ms, data, run_id=run_id, host_id=host_id)
