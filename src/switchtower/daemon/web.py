"""The pages of the HTTP port. For now there is one: whether the daemon is well."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


async def healthz(request: Request) -> Response:
    return JSONResponse({"ok": True})


def make_app() -> Starlette:
    return Starlette(routes=[Route("/healthz", healthz)])
