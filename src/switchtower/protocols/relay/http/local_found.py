"""The runs that a request on the owner's socket may be about: those that live here, and that the caller may look at."""

from switchtower.core import journal, tower
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.protocols.relay.http import problems
from switchtower.protocols.relay.http.calls import HttpCall, HttpCaller

MAX_LISTED_RUNS = 1_000


class LocalRunFinder:
    def __init__(self, tower_: tower.SessionService, rpc: HostRpcHandler) -> None:
        self._tower = tower_
        self._rpc = rpc

    async def find_card(self, call: HttpCall) -> journal.Card:
        """The one that the path names. Raises `Problem`."""
        card = await self._tower.find_card(call.session_id)
        if card is None or not self._rpc.is_local(card):
            raise problems.make_unknown_run()
        if not _can_read(call.caller, card):
            raise problems.HttpError(403, "a process of a run may look at its own run only")
        return card

    async def list_cards(self, call: HttpCall) -> list[journal.Card]:
        """The newest of them first."""
        cards = await self._tower.list_cards(MAX_LISTED_RUNS)
        return [card for card in cards if self._rpc.is_local(card) and _can_read(call.caller, card)]


def _can_read(caller: HttpCaller, card: journal.Card) -> bool:
    return caller.run_id is None or caller.run_id == card.active_run_id
