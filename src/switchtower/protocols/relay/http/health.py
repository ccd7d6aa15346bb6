"""Whether the daemon is well, for whoever asks."""

from typing import Any

from switchtower.protocols.relay.http.calls import Call
from switchtower.protocols.relay.http.routing import Entry, Row

NAME = "switchtower"


class Health:
    def __init__(self, version: str) -> None:
        self._version = version

    def rows(self) -> tuple[Row, ...]:
        return (
            Row("GET", "/health", self.health, Entry.ANYONE),
            Row("GET", "/healthz", self.healthz, Entry.ANYONE),
        )

    async def health(self, call: Call) -> Any:
        """The public page calls it before anybody logs in."""
        return {"name": NAME, "version": self._version}

    async def healthz(self, call: Call) -> Any:
        return {"ok": True}
