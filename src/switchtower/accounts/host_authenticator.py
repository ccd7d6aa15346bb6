"""Authenticates hosts. Trust on first use: the hash of a host's first token is stored, and later the host must present the same
token. The settings decide which hosts may connect for the first time."""

import hashlib
import hmac
import logging
import os
from collections.abc import Callable

from switchtower import config
from switchtower.core.ports import registry
from switchtower.protocols.relay import wire_values
from switchtower.transports import socket_owner, upgrade

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
