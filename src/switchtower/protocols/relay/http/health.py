"""Whether the daemon is well, for whoever asks; and how well in figures, for who may look."""

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from switchtower.core.roles import Action
from switchtower.protocols.relay.http import answers, ports
from switchtower.protocols.relay.http.calls import Call
from switchtower.protocols.relay.http.routing import Entry, Row

NAME = "switchtower"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Health:
    def __init__(self, version: str, monitor: ports.Monitor | None = None, features: Sequence[str] | None = None) -> None:
        """`features` are what the page may offer; None leaves them out of the answer."""
        self._version = version
        self._monitor = monitor
        self._features = features

    def rows(self) -> tuple[Row, ...]:
        rows = (
            Row("GET", "/health", self.health, Entry.ANYONE),
            Row("GET", "/healthz", self.healthz, Entry.ANYONE),
        )
        if self._monitor is None:
            return rows
        return (
            *rows,
            Row("GET", "/readyz", self.readyz, Entry.ANYONE),
            Row("GET", "/metrics", self.metrics, Entry.LOOKER, action=Action.WATCH),
        )

    async def health(self, call: Call) -> Any:
        """The public page calls it before anybody logs in."""
        told: dict[str, Any] = {"name": NAME, "version": self._version}
        return told if self._features is None else {**told, "features": list(self._features)}

    async def healthz(self, call: Call) -> Any:
        return {"ok": True}

    async def readyz(self, call: Call) -> Any:
        assert self._monitor is not None, "there is no row without it"
        reasons = self._monitor.reasons_not_ready()
        return answers.json({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def metrics(self, call: Call) -> Any:
        assert self._monitor is not None, "there is no row without it"
        if call.text("format") == "json" or "application/json" in call.request.headers.get("accept", ""):
            return await self._monitor.figures()
        return Response(await self._monitor.text(), media_type=PROMETHEUS)
