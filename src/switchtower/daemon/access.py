"""Who is let in, and as whom. The owner's sockets speak for themselves; a WebSocket needs the owner's token, or, where the
protocol's clients have none, a process of the owner at its other end."""

import hmac
import os
from collections.abc import Callable

from switchtower.core.access import Access
from switchtower.transports import tcp_owner
from switchtower.transports.stream import Origin

_ROOT = 0


class Doorkeeper:
    def __init__(
        self, owner_token: str, *, attach_token_required: bool, is_of_a_run: Callable[[Origin], bool] = lambda _: False
    ) -> None:
        """`is_of_a_run`: whether a process of an agent's run is at the other end. It is the owner's too, and may not decide
        in the owner's name about what it does itself."""
        self._owner_token = owner_token.encode()
        self._attach_token_required = attach_token_required
        self.is_of_a_run = is_of_a_run

    def on_socket(self, origin: Origin) -> Access:
        # The socket is readable by its owner only, and the peer's uid was checked when it connected.
        of_a_run = self.is_of_a_run(origin)
        return Access(name="owner", via="cli", trusted=not self._attach_token_required and not of_a_run, of_a_run=of_a_run)

    def on_websocket(self, origin: Origin) -> Access | None:
        """None: not let in."""
        given = (origin.token or "").encode()
        if not hmac.compare_digest(given, self._owner_token) or self.is_of_a_run(origin):
            return None
        return Access(name="owner", via="app", trusted=True)

    def on_open_port(self, origin: Origin, *, by_name: bool) -> Access | None:
        """As `on_websocket`, but a process of the owner needs no token. `by_name`: it called us by a name of this machine."""
        if origin.token is not None:
            return self.on_websocket(origin)
        # A page under a stranger's name is shown by the owner's own browser: then the uid says nothing.
        if not by_name or not tcp_owner.is_loopback(origin.address):
            return None
        if tcp_owner.uid_of(origin.address, origin.reached_at) not in (os.geteuid(), _ROOT) or self.is_of_a_run(origin):
            return None
        return Access(name="owner", via="app", trusted=not self._attach_token_required)
