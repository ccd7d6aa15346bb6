"""Who is let in, and as whom. The owner's socket speaks for itself; a WebSocket needs the owner's token."""

import hmac

from switchtower.core.access import Access
from switchtower.transports.stream import Origin


class Doorkeeper:
    def __init__(self, owner_token: str, *, attach_token_required: bool) -> None:
        self._owner_token = owner_token.encode()
        self._attach_token_required = attach_token_required

    def on_socket(self) -> Access:
        # The socket is readable by its owner only, and the peer's uid was checked when it connected.
        return Access(name="owner", via="cli", trusted=not self._attach_token_required)

    def on_websocket(self, origin: Origin) -> Access | None:
        """None: not let in."""
        given = (origin.token or "").encode()
        if not hmac.compare_digest(given, self._owner_token):
            return None
        return Access(name="owner", via="app", trusted=True)
