"""Who is at the other end of a request's connection, as the transport knows it."""

import msgspec
from starlette.requests import Request

from switchtower.core.access import ProcessUnattributed
from switchtower.protocols.relay.http import ports, problems
from switchtower.transports.addresses import strip_port
from switchtower.transports.http import Attribution, HttpPeer
from switchtower.transports.stream import ConnectionOrigin


def get_origin(request: Request) -> ConnectionOrigin:
    peer = _get_peer(request)
    headers = {name: ",".join(request.headers.getlist(name)) for name in ("forwarded", "x-forwarded-for")}
    client = peer.proxies.find_client(
        strip_port(peer.origin.address), forwarded=headers["forwarded"], x_forwarded_for=headers["x-forwarded-for"]
    )
    return msgspec.structs.replace(peer.origin, client=client) if client else peer.origin


def mark_authenticated(request: Request) -> None:
    """Its connection no longer counts as a stranger's."""
    _get_peer(request).authenticate()


def find_calling_run(request: Request, find_run: ports.FindRun) -> str | None:
    """The run whose process asks. Found once a connection: that may mean to look at every process. Raises `Problem` when it
    cannot be told."""
    peer = _get_peer(request)
    if peer.attribution is None:
        try:
            peer.attribution = Attribution(find_run(peer.origin))
        except ProcessUnattributed:
            peer.attribution = Attribution(refused=True)
    if peer.attribution.refused:
        raise problems.make_unattributed()
    return peer.attribution.run_id


def _get_peer(request: Request) -> HttpPeer:
    peer: HttpPeer = request.state.peer
    return peer
