"""The list and the inbox where several nodes share one store: each session has the name of its home beside it."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.scripted import SESSION, ScriptedDaemon, make_approval_request
from tests.cli.test_nodes import ATTIC, BARN, make_card

from switchtower import config
from switchtower.tui.feed import DaemonFeed
from switchtower.tui.state import session_rows
from switchtower.tui.widgets import session_list


class RecordingFeedListener:
    """Implements `feed.Hears`, for the list and the inbox."""

    def __init__(self) -> None:
        self.rows: list[session_rows.SessionListRow] = []
        self.pending: list[session_rows.InboxItem] = []
        self.both = asyncio.Event()

    def on_sessions_listed(self, rows: list[session_rows.SessionListRow]) -> None:
        self.rows = rows

    def on_approvals_listed(self, pending: list[session_rows.InboxItem], sessions: set[str] | None) -> None:
        self.pending = pending
        self.both.set()

    def on_link_changed(self, link: str, reason: str) -> None: ...

    def on_session_info(self, about: Any) -> None: ...

    def on_events(self, session_id: str, events: list[Any]) -> None: ...

    def on_session_refused(self, session_id: str, problem: Exception) -> None: ...


@pytest.fixture
def scripted_daemon() -> Iterator[ScriptedDaemon]:
    home = Path(tempfile.mkdtemp(dir="/tmp", prefix="tower-"))
    with ScriptedDaemon(home) as daemon:
        yield daemon
    shutil.rmtree(home)


async def refresh_feed(scripted: ScriptedDaemon) -> RecordingFeedListener:
    heard = RecordingFeedListener()
    feed = asyncio.create_task(DaemonFeed(config.Settings(home=scripted.home)).run(heard))
    try:
        async with asyncio.timeout(60):
            await heard.both.wait()
    finally:
        feed.cancel()
    return heard


async def test_sessions_and_questions_have_the_name_of_their_node(scripted_daemon: ScriptedDaemon) -> None:
    waits = make_card(SESSION, "node_B", state="awaiting_approval")
    scripted_daemon.answers["list_cards"] = {"cards": [waits, make_card("sess_2", "node_A"), make_card("sess_3", None)]}
    scripted_daemon.answers["list_nodes"] = {"nodes": [ATTIC, BARN]}
    about = {"sessionId": SESSION, "runId": "run_1", "sessionTitle": "Tidy", "rootPath": "/w", "host": None, "home": "node_B"}
    scripted_daemon.answers["list_approvals"] = {"approvals": [{**about, "approval": make_approval_request(command="make")}]}

    heard = await refresh_feed(scripted_daemon)

    assert {row.session_id: row.host for row in heard.rows} == {SESSION: "barn", "sess_2": "attic", "sess_3": ""}
    assert [one.host for one in heard.pending] == ["barn"]


async def test_alone_no_node_is_named_and_nobody_is_asked_for_any(scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.answers["list_cards"] = {"cards": [make_card(SESSION, None)]}

    heard = await refresh_feed(scripted_daemon)

    assert [row.host for row in heard.rows] == [""]
    assert scripted_daemon.list_requests("list_nodes") == []


async def test_a_list_is_shown_also_when_the_names_cannot_be_told(scripted_daemon: ScriptedDaemon) -> None:
    scripted_daemon.answers["list_cards"] = {"cards": [make_card(SESSION, "node_A")]}  # and it does not know `list_nodes`

    assert [row.host for row in (await refresh_feed(scripted_daemon)).rows] == [""]


def test_the_node_is_in_the_row_and_can_be_searched_for() -> None:
    row = session_rows.SessionListRow(SESSION, "idle", 1, "/work/orchard", "Tidy", host="barn")

    assert "orchard · barn" in session_list._paint_session_row(row, "1 d", 60, is_open=False).plain
    assert session_rows.filter_rows([row], "barn") == [row]
