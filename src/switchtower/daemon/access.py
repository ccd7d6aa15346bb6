"""Who is let in, and as whom. The owner's sockets speak for themselves; a WebSocket needs the owner's token, or, where the
protocol's clients have none, a process of the owner at its other end."""

import hmac
import logging
import os
from collections.abc import Callable

from switchtower.core.access import Access, ProcessUnattributed
from switchtower.core.roles import Role
from switchtower.transports import tcp_owner
from switchtower.transports.stream import ConnectionOrigin

_ROOT = 0

log = logging.getLogger(__name__)


class ConnectionAuthenticator:
    def __init__(
        self,
        owner_token: str,
        *,
        attach_token_required: bool,
        find_run: Callable[[ConnectionOrigin], str | None] = lambda _: None,
    ) -> None:
        """`find_run` returns the run whose process is at the other end, and raises `Unattributed` when it cannot tell. A process
        of a run has the owner's uid too, and may not decide in the owner's name about what it does itself."""
        self._owner_token = owner_token.encode()
        self._attach_token_required = attach_token_required
        self.find_run = find_run

    def is_owner_process(self, origin: ConnectionOrigin) -> bool:
        """Whether the process at the other end is certainly of no run."""
        try:
            return self.find_run(origin) is None
        except ProcessUnattributed as problem:
            log.warning("a client at %s is refused: %s", origin.address, problem)
            return False

    def authenticate_socket(self, origin: ConnectionOrigin) -> Access | None:
        """None here, as below: not let in. Only the owner can open the socket; the uid was checked when the peer connected."""
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
        """As `on_websocket`, but a process of the owner needs no token. `by_name`: it called us by a name of this machine."""
        if origin.token is not None:
            return self.authenticate_websocket(origin)
        # The owner's own browser shows pages of anybody, also under names that lead here: then the uid says nothing.
        if origin.is_page or not by_name or not tcp_owner.is_loopback(origin.address):
            return None
        if tcp_owner.find_owner_uid(origin.address, origin.reached_at) not in (os.geteuid(), _ROOT) or not self.is_owner_process(
            origin
        ):
            return None
        trusted = not self._attach_token_required
        return Access(name="owner", via="app", trusted=trusted, role=Role.ADMIN, address=origin.machine)
