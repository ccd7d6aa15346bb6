"""Who is at the other end of a request's connection, as the transport knows it."""

import msgspec
from starlette.requests import Request

from switchtower.core.access import Unattributed
from switchtower.protocols.relay.http import ports, problems
from switchtower.transports.addresses import without_port
from switchtower.transports.http import Attribution, Peer
from switchtower.transports.stream import Origin


def origin_of(request: Request) -> Origin:
    peer = _peer(request)
    headers = {name: ",".join(request.headers.getlist(name)) for name in ("forwarded", "x-forwarded-for")}
    client = peer.proxies.find_client(
        without_port(peer.origin.address), forwarded=headers["forwarded"], x_forwarded_for=headers["x-forwarded-for"]
    )
    return msgspec.structs.replace(peer.origin, client=client) if client else peer.origin


def authenticate(request: Request) -> None:
    """Its connection no longer counts as a stranger's."""
    _peer(request).authenticate()


def run_of(request: Request, find_run: ports.FindRun) -> str | None:
    """The run whose process asks. Found once a connection: that may mean to look at every process. Raises `Problem` when it
    cannot be told."""
    peer = _peer(request)
    if peer.attribution is None:
        try:
            peer.attribution = Attribution(find_run(peer.origin))
        except Unattributed:
            peer.attribution = Attribution(refused=True)
    if peer.attribution.refused:
        raise problems.unattributed()
    return peer.attribution.run_id


def _peer(request: Request) -> Peer:
    peer: Peer = request.state.peer
    return peer
