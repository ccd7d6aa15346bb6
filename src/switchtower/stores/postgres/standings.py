"""Where each session stands, as far as this node knows: its epoch, whether a node holds it, its last seq.

Remembered so that an append needs no look-up. It is never the last word: the database compares it with its own, and nobody is
refused before it has been asked again.
"""

from collections.abc import Iterable

from switchtower.stores.postgres import names
from switchtower.stores.postgres.connections import PostgresConnection

_LIMIT = 16_384


class PostgresSessionHead:
    __slots__ = ("epoch", "head", "held")

    def __init__(self, epoch: int, head: int, *, held: bool) -> None:
        self.epoch = epoch
        self.head = head
        self.held = held

    def can_append(self, epoch: int) -> bool:
        """A node's session is written in the epoch that the node was given; one that nobody holds also in a newer one."""
        return epoch == self.epoch or (not self.held and epoch > self.epoch)


class PostgresSessionHeadsCache:
    def __init__(self) -> None:
        self._by_session: dict[str, PostgresSessionHead] = {}

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._by_session

    def find(self, session_id: str) -> PostgresSessionHead | None:
        return self._by_session.get(session_id)

    def remember(self, session_id: str, head: PostgresSessionHead) -> None:
        self._by_session[session_id] = head

    def forget(self, session_ids: Iterable[str]) -> None:
        for session_id in session_ids:
            self._by_session.pop(session_id, None)

    def trim(self) -> None:
        while len(self._by_session) > _LIMIT:
            del self._by_session[next(iter(self._by_session))]

    async def load(self, connection: PostgresConnection, session_ids: Iterable[str]) -> None:
        wanted = {names.escape_nul(session_id): session_id for session_id in session_ids}
        rows = await connection.fetch(
            "SELECT session_id, epoch, head, node_id IS NOT NULL FROM homes WHERE session_id = ANY ($1)", list(wanted)
        )
        self.forget(wanted.values())
        for stored_id, epoch, head, held in rows:
            self._by_session[wanted[stored_id]] = PostgresSessionHead(epoch, head, held=held)
