"""Who is at the other end of a request's connection, as the transport knows it."""

from starlette.requests import Request

from switchtower.protocols.relay.http import ports
from switchtower.transports.http import Peer
from switchtower.transports.stream import Origin


def origin_of(request: Request) -> Origin:
    return _peer(request).origin


def is_of_a_run(request: Request, ask: ports.IsOfARun) -> bool:
    """Asked once a connection: finding out may mean to look at every process."""
    peer = _peer(request)
    if peer.of_a_run is None:
        peer.of_a_run = ask(peer.origin)
    return peer.of_a_run


def _peer(request: Request) -> Peer:
    peer: Peer = request.state.peer
    return peer
