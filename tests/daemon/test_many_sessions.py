"""Ten thousand stored sessions: the daemon starts, lists the right ones, and opens any of them."""

import asyncio
from pathlib import Path

from tests.daemon.conftest import Connect, StartDaemon

from switchtower.core import commands
from switchtower.core.fold import make_card
from switchtower.core.ports import journal
from switchtower.stores.sqlite.journal import SqliteJournal
from switchtower.testing.session_driver import SessionDriver

SESSIONS = 10_000


async def _store(path: Path) -> list[str]:
    """The ids, from the one updated last to the one updated first, which is not the order they are stored in."""
    store = SqliteJournal(path)
    await store.open()
    appends: dict[int, journal.Append] = {}
    for number in range(SESSIONS):
        table = SessionDriver(session_id=f"sess_{number}")
        table.now_ms = 1_000_000 + (number * 7_919) % SESSIONS
        table.execute(commands.ConfigureSession(session_id=table.session.id, title="one of many"))
        appends[table.now_ms] = journal.Append(table.session.id, 1, table.entries, card=make_card(table.session))
    await asyncio.gather(*map(store.append, appends.values()))
    await store.close()
    return [appends[updated_at_ms].session_id for updated_at_ms in sorted(appends, reverse=True)]


async def test_ten_thousand_sessions_are_listed_newest_first(
    start_daemon_process: StartDaemon, connect: Connect, home: Path, workspace: Path
) -> None:
    newest_first = await _store(home / "data" / "journal.db")
    client = await connect(await start_daemon_process())
    for limit in (20, 1, 200):
        listed = (await client.ask("list_sessions", {"limit": limit}))["sessions"]
        assert [session["sessionId"] for session in listed] == newest_first[:limit]

    # A new session, and an old one that is touched, come first.
    started = await client.start_session(workspace)
    touched = newest_first[5_000]
    await client.ask("configure_session", {"title": "touched"}, touched)
    listed = (await client.ask("list_sessions", {}))["sessions"]
    assert {session["sessionId"] for session in listed[:2]} == {touched, started}
    assert [session["sessionId"] for session in listed[2:]] == newest_first[:18]
