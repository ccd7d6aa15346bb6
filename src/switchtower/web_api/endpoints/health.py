"""Endpoints for health and readiness, open to all clients, and for metrics, which need permission."""

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from switchtower.core.roles import Action
from switchtower.web_api import ports, responses
from switchtower.web_api.requests import HttpCall
from switchtower.web_api.routes import EndpointRoute, RouteAccess

NAME = "switchtower"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class HealthEndpoints:
    def __init__(self, version: str, monitor: ports.MonitorPort | None = None, features: Sequence[str] | None = None) -> None:
        """`features` are those that the page may offer; None leaves them out of the answer."""
        self._version = version
        self._monitor = monitor
        self._features = features

    def list_routes(self) -> tuple[EndpointRoute, ...]:
        rows = (
            EndpointRoute("GET", "/health", self.get_health, RouteAccess.ANYONE),
            EndpointRoute("GET", "/healthz", self.get_liveness, RouteAccess.ANYONE),
        )
        if self._monitor is None:
            return rows
        return (
            *rows,
            EndpointRoute("GET", "/readyz", self.get_readiness, RouteAccess.ANYONE),
            EndpointRoute("GET", "/metrics", self.get_metrics, RouteAccess.READER, action=Action.WATCH),
        )

    async def get_health(self, call: HttpCall) -> Any:
        """The public page calls it before a user logs in."""
        told: dict[str, Any] = {"name": NAME, "version": self._version}
        return told if self._features is None else {**told, "features": list(self._features)}

    async def get_liveness(self, call: HttpCall) -> Any:
        return {"ok": True}

    async def get_readiness(self, call: HttpCall) -> Any:
        assert self._monitor is not None, "there is no row without it"
        reasons = self._monitor.list_unready_reasons()
        return responses.make_json_response({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def get_metrics(self, call: HttpCall) -> Any:
        assert self._monitor is not None, "there is no row without it"
        if call.get_text("format") == "json" or "application/json" in call.request.headers.get("accept", ""):
            return await self._monitor.collect_figures()
        return Response(await self._monitor.format_prometheus(), media_type=PROMETHEUS)
