"""Where each session stands: its key in the file, its epoch, its last seq. Remembered so that an append needs no look-up.

Belongs to the writer thread. What is remembered may run ahead of the file by the transaction that is being put together;
when that fails, `forget` is called and the file is asked again.
"""

import sqlite3

_LIMIT = 4_096


class SessionHead:
    __slots__ = ("epoch", "head", "sid")

    def __init__(self, sid: int, epoch: int, head: int) -> None:
        self.sid = sid
        self.epoch = epoch
        self.head = head


class SessionHeadsCache:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._by_session: dict[str, SessionHead] = {}
        self._last_sid: int | None = None

    def find(self, session_id: str, *, ask_file: bool = True) -> SessionHead | None:
        standing = self._by_session.get(session_id)
        if standing is None and ask_file:
            # The newest entry of a session is never pruned, so it tells the head.
            row = self._connection.execute(
                "SELECT sid, epoch, (SELECT max(seq) FROM events WHERE events.sid = sessions.sid)"
                " FROM sessions WHERE session_id = ?",
                (session_id,),
            ).fetchone()
            if row is not None:
                standing = self._by_session[session_id] = SessionHead(*row)
        return standing

    def next_sid(self) -> int:
        if self._last_sid is None:
            (self._last_sid,) = self._connection.execute("SELECT coalesce(max(sid), 0) FROM sessions").fetchone()
        return self._last_sid + 1

    def remember(self, session_id: str, head: SessionHead) -> None:
        """A new session's; its sid is used from now on."""
        self._by_session[session_id] = head
        self._last_sid = head.sid

    def forget(self) -> None:
        self._by_session.clear()
        self._last_sid = None

    def drop(self, session_id: str) -> None:
        """It is not in the file any more."""
        self._by_session.pop(session_id, None)

    def trim(self) -> None:
        """Keeps the memory bounded. Only between transactions: the file does not yet know what one in the making adds."""
        while len(self._by_session) > _LIMIT:
            del self._by_session[next(iter(self._by_session))]
