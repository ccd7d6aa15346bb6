"""The runs that a request on the owner's socket may be about: those that live here, and that the caller may look at."""

from switchtower.core import journal, tower
from switchtower.protocols.relay.host.rpc import HostRpc
from switchtower.protocols.relay.http import problems
from switchtower.protocols.relay.http.calls import Call, Caller

MOST_LISTED = 1_000


class Finder:
    def __init__(self, tower_: tower.Tower, rpc: HostRpc) -> None:
        self._tower = tower_
        self._rpc = rpc

    async def card(self, call: Call) -> journal.Card:
        """The one that the path names. Raises `Problem`."""
        card = await self._tower.card(call.session_id)
        if card is None or not self._rpc.lives_here(card):
            raise problems.unknown_run()
        if not _may_look(call.caller, card):
            raise problems.Problem(403, "a process of a run may look at its own run only")
        return card

    async def cards(self, call: Call) -> list[journal.Card]:
        """The newest of them first."""
        cards = await self._tower.cards(MOST_LISTED)
        return [card for card in cards if self._rpc.lives_here(card) and _may_look(call.caller, card)]


def _may_look(caller: Caller, card: journal.Card) -> bool:
    return caller.run_id is None or caller.run_id == card.active_run_id
