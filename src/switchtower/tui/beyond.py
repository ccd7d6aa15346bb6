"""What only newer daemons can do: delete, fork, search, export. Each says so clearly where the running one cannot."""

from typing import TYPE_CHECKING, NamedTuple

from switchtower.client import errors

if TYPE_CHECKING:
    from switchtower.tui.feed import Feed

_WHAT = {
    "delete_session": "deleting sessions",
    "fork_session": "forking sessions",
    "search_sessions": "searching in sessions",
    "export": "exports",
}


class Found(NamedTuple):
    session_id: str
    excerpt: str


class Beyond:
    def __init__(self, feed: "Feed") -> None:
        self._feed = feed

    def check(self, capability: str) -> None:
        if not self._feed.offers(capability):
            raise errors.DaemonTooOld(_WHAT[capability])

    async def delete(self, session_id: str) -> None:
        self.check("delete_session")

    async def fork(self, session_id: str, title: str) -> str:
        self.check("fork_session")
        return session_id

    async def search(self, text: str) -> list[Found]:
        self.check("search_sessions")
        return []

    async def export(self, session_id: str, wish: str, *, root: str) -> str:
        self.check("export")
        return ""
