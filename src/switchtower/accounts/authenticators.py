"""Authenticates connections. The owner's sockets need no token; a WebSocket needs the owner's token, or, if the protocol's
clients have none, one of the owner's processes at its other end.

A connection ends when the access token that opened it is no longer valid, or its user's role changes: at once after a change that
this daemon made, within a few seconds after one that another node made.

Authenticates hosts. Trust on first use: the hash of a host's first token is stored, and later the host must present the same
token. The settings decide which hosts may connect for the first time."""

import asyncio
import hashlib
import hmac
import logging
import os
from collections.abc import Awaitable, Callable

from switchtower import config
from switchtower.core.ports import registry
from switchtower.core.roles import Access, ProcessUnattributed, Role
from switchtower.protocols.relay import wire_values
from switchtower.transports import socket_owner, upgrade
from switchtower.transports.stream import ConnectionOrigin, Receiver, Stream

log = logging.getLogger(__name__)

MAX_HOSTS = 10_000
MAX_TOKEN_LENGTH = 4_096
MIN_TOKEN_LENGTH = 8
_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via", "origin")
"""A request with one of these was made for another party: through a proxy, or by a page in a browser."""


class HostAuthenticator:
    def __init__(
        self, settings: config.Settings, hosts: registry.Registry, is_ours: Callable[[str], bool], now_ms: Callable[[], int]
    ) -> None:
        """`is_ours` returns whether an id is this daemon's own, or that of another node of the same cluster."""
        self._settings = settings
        self._hosts = hosts
        self._is_ours = is_ours
        self._now_ms = now_ms

    async def authenticate(self, request: upgrade.UpgradeRequest) -> str | upgrade.UpgradeRefusal:
        """Returns the id of the host, or the reason why it is refused."""
        host_id, token = request.query.get("host_id", ""), request.origin.token or ""
        if not host_id.strip() or len(host_id) > wire_values.MAX_ID_LENGTH or not host_id.isprintable():
            return upgrade.UpgradeRefusal(400, "pass the host's id as `host_id`; it cannot be blank")
        if not MIN_TOKEN_LENGTH <= len(token) <= MAX_TOKEN_LENGTH:
            return upgrade.UpgradeRefusal(401, f"pass the host's token, at least {MIN_TOKEN_LENGTH} characters, as `host_token`")
        if self._is_ours(host_id):
            return upgrade.UpgradeRefusal(403, "this is the hub's own id; give the host another one")
        given = hashlib.sha256(token.encode(errors="replace")).hexdigest()
        known = await self._hosts.find_host(host_id)
        if known is None and self._settings.new_hosts == "refuse":
            return upgrade.UpgradeRefusal(403, "no new hosts are taken here")
        visit = registry.HostContact(
            host_id=host_id,
            token_sha256=given,
            address=request.origin.address,
            at_ms=self._now_ms(),
            name="".join(filter(str.isprintable, request.query.get("name", "")[:100])).strip() or host_id,
        )
        # If the host was removed since the lookup, its first contact was not checked.
        first_state = self._choose_first_state(request) if known is None else registry.HostState.PENDING
        host = await self._hosts.record_contact(visit, first_state=first_state, most=MAX_HOSTS)
        if host is None:
            return upgrade.UpgradeRefusal(403, "too many hosts are known here")
        # relay, WebSocket Endpoints: later connections must present the same token.
        if not hmac.compare_digest(host.token_sha256 or "", given):
            log.warning("a host came as %s with another token", host_id)
            return upgrade.UpgradeRefusal(401, "this host is known with another token")
        match host.state:
            case registry.HostState.APPROVED:
                return host_id
            case registry.HostState.PENDING:
                if known is None:
                    log.warning("host %s (%s) waits to be approved: `tower hosts approve %s`", host_id, host.name, host_id)
                return upgrade.UpgradeRefusal(403, "this host waits to be approved")
            case registry.HostState.REFUSED:
                return upgrade.UpgradeRefusal(403, "this host was refused")

    def _choose_first_state(self, request: upgrade.UpgradeRequest) -> registry.HostState:
        match self._settings.new_hosts:
            case "trust":
                return registry.HostState.APPROVED
            case "local" if _is_owner_request(request):
                return registry.HostState.APPROVED
            case _:
                return registry.HostState.PENDING


def _is_owner_request(request: upgrade.UpgradeRequest) -> bool:
    """Returns whether one of the owner's processes on this machine makes the request for itself: no page in a browser, nothing
    that a proxy forwards, nothing in a container."""
    origin = request.origin
    if not socket_owner.is_loopback(origin.address) or any(header in request.headers for header in _PROXY_HEADERS):
        return False
    found = socket_owner.find_socket(origin.address, origin.reached_at)
    return found is not None and found.uid == os.geteuid() and socket_owner.is_outside_containers(found.inode, found.uid)


_ROOT = 0


class ConnectionAuthenticator:
    def __init__(
        self,
        owner_token: str,
        *,
        attach_token_required: bool,
        find_run: Callable[[ConnectionOrigin], str | None] = lambda _: None,
    ) -> None:
        """`find_run` returns the run whose process is at the other end, and raises `ProcessUnattributed` when it is not known. A
        process of a run has the owner's uid too, and may not decide in the owner's name about its own actions."""
        self._owner_token = owner_token.encode()
        self._attach_token_required = attach_token_required
        self.find_run = find_run

    def is_owner_process(self, origin: ConnectionOrigin) -> bool:
        """Returns whether the process at the other end certainly belongs to no run."""
        try:
            return self.find_run(origin) is None
        except ProcessUnattributed as problem:
            log.warning("a client at %s is refused: %s", origin.address, problem)
            return False

    def authenticate_socket(self, origin: ConnectionOrigin) -> Access | None:
        """Returns None, like the methods below, for a client that is not admitted. Only the owner can open the socket; the uid
        was checked when the peer connected."""
        try:
            run_id = self.find_run(origin)
        except ProcessUnattributed as problem:
            log.warning("a client on a socket is refused: %s", problem)
            return None
        return Access(
            name="owner",
            via="cli",
            trusted=not self._attach_token_required and run_id is None,
            run_id=run_id,
            role=Role.ADMIN if run_id is None else Role.OPERATOR,
            address=origin.machine,
        )

    def authenticate_websocket(self, origin: ConnectionOrigin) -> Access | None:
        given = (origin.token or "").encode()
        if not hmac.compare_digest(given, self._owner_token) or not self.is_owner_process(origin):
            return None
        return Access(name="owner", via="app", trusted=True, role=Role.ADMIN, address=origin.machine)

    def authenticate_open_port(self, origin: ConnectionOrigin, *, by_name: bool) -> Access | None:
        """Like `authenticate_websocket`, but one of the owner's processes needs no token. `by_name`: it used a host name of this
        machine."""
        if origin.token is not None:
            return self.authenticate_websocket(origin)
        # The owner's own browser shows pages of any site, even under names that lead here: then the uid proves nothing.
        if origin.is_page or not by_name or not socket_owner.is_loopback(origin.address):
            return None
        if socket_owner.find_owner_uid(origin.address, origin.reached_at) not in (
            os.geteuid(),
            _ROOT,
        ) or not self.is_owner_process(origin):
            return None
        trusted = not self._attach_token_required
        return Access(name="owner", via="app", trusted=trusted, role=Role.ADMIN, address=origin.machine)


CHECK_INTERVAL = 5.0
POLICY_VIOLATION = 1008

Watch = Callable[[Callable[[], None]], Callable[[], None]]
"""Calls back, synchronously, after each change of users or tokens; returns a function that stops it."""


class TokenBoundReceiver:
    """A `stream.Receiver` in front of another."""

    def __init__(
        self,
        receiver: Receiver,
        is_good: Callable[[], Awaitable[bool]],
        watch: Watch = lambda changed: lambda: None,
        *,
        every_s: float = CHECK_INTERVAL,
    ) -> None:
        self._receiver = receiver
        self._is_good = is_good
        self._watch_accounts = watch
        self._every_s = every_s
        self._watch: asyncio.Task[None] | None = None
        self._unwatch: Callable[[], None] = lambda: None
        self._changed = asyncio.Event()
        self._in_doubt = False
        """A change has not been checked yet: frames that arrive meanwhile are held."""
        self._held: list[bytes] = []
        self._ended = False

    @property
    def protocol(self) -> str:
        """The wrapped receiver's protocol, for the metrics."""
        label: str = getattr(self._receiver, "protocol", "http")
        return label

    def on_connected(self, stream: Stream) -> None:
        self._receiver.on_connected(stream)
        self._unwatch = self._watch_accounts(self._on_accounts_changed)
        self._watch = asyncio.get_running_loop().create_task(self._check_token(stream))

    def _on_accounts_changed(self) -> None:
        self._in_doubt = True
        self._changed.set()

    def on_frames(self, frames: list[bytes]) -> None:
        if self._ended:
            return
        if self._in_doubt:
            self._held += frames
        else:
            self._receiver.on_frames(frames)

    def on_oversized_frame(self, problem: str) -> None:
        self._receiver.on_oversized_frame(problem)

    def on_writable(self) -> None:
        self._receiver.on_writable()

    def on_disconnected(self) -> None:
        self._ended = True
        self._unwatch()
        if self._watch is not None:
            self._watch.cancel()
        self._receiver.on_disconnected()

    async def _check_token(self, stream: Stream) -> None:
        while True:
            try:
                async with asyncio.timeout(self._every_s):
                    await self._changed.wait()
            except TimeoutError:
                pass
            if not await self._is_token_valid():
                self._ended = True
                stream.close(POLICY_VIOLATION, "the access token is no longer good, or your role has changed")
                return

    async def _is_token_valid(self) -> bool:
        while True:
            self._changed.clear()
            try:
                good = await self._is_good()
            except registry.RegistryUnavailable as problem:
                log.warning("whether a token is still good cannot be told: %s", problem)
                good = not self._in_doubt
            except Exception:
                log.exception("looking whether a token is still good failed")
                good = not self._in_doubt
            if not self._changed.is_set():  # otherwise something changed during the check
                break
        if good:
            self._in_doubt = False
            held, self._held = self._held, []
            if held and not self._ended:
                self._receiver.on_frames(held)
        return good
