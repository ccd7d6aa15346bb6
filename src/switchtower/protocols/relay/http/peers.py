"""Who is at the other end of a request's connection, as the transport knows it."""

from starlette.requests import Request

from switchtower.core.access import Unattributed
from switchtower.protocols.relay.http import ports, problems
from switchtower.transports.http import Attribution, Peer
from switchtower.transports.stream import Origin


def origin_of(request: Request) -> Origin:
    return _peer(request).origin


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
