"""The list and the inbox where several nodes share one store: each session has the name of its home beside it."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.scripted import SESSION, ScriptedDaemon, question
from tests.cli.test_nodes import ATTIC, BARN, card

from switchtower import config
from switchtower.tui.feed import Feed
from switchtower.tui.state import inbox, roster
from switchtower.tui.widgets import session_list


class Heard:
    """Implements `feed.Hears`, for the list and the inbox."""

    def __init__(self) -> None:
        self.rows: list[roster.Row] = []
        self.pending: list[inbox.Pending] = []
        self.both = asyncio.Event()

    def sessions_listed(self, rows: list[roster.Row]) -> None:
        self.rows = rows

    def approvals_listed(self, pending: list[inbox.Pending], sessions: set[str] | None) -> None:
        self.pending = pending
        self.both.set()

    def link_changed(self, link: str, reason: str) -> None: ...

    def session_told(self, about: Any) -> None: ...

    def events_came(self, session_id: str, events: list[Any]) -> None: ...

    def session_refused(self, session_id: str, problem: Exception) -> None: ...


@pytest.fixture
def scripted() -> Iterator[ScriptedDaemon]:
    home = Path(tempfile.mkdtemp(dir="/tmp", prefix="tower-"))
    with ScriptedDaemon(home) as daemon:
        yield daemon
    shutil.rmtree(home)


async def looked(scripted: ScriptedDaemon) -> Heard:
    heard = Heard()
    feed = asyncio.create_task(Feed(config.Settings(home=scripted.home)).run(heard))
    try:
        async with asyncio.timeout(60):
            await heard.both.wait()
    finally:
        feed.cancel()
    return heard


async def test_sessions_and_questions_have_the_name_of_their_node(scripted: ScriptedDaemon) -> None:
    waits = card(SESSION, "node_B", state="awaiting_approval")
    scripted.answers["list_cards"] = {"cards": [waits, card("sess_2", "node_A"), card("sess_3", None)]}
    scripted.answers["list_nodes"] = {"nodes": [ATTIC, BARN]}
    about = {"sessionId": SESSION, "runId": "run_1", "sessionTitle": "Tidy", "rootPath": "/w", "host": None, "home": "node_B"}
    scripted.answers["list_approvals"] = {"approvals": [{**about, "approval": question(command="make")}]}

    heard = await looked(scripted)

    assert {row.session_id: row.host for row in heard.rows} == {SESSION: "barn", "sess_2": "attic", "sess_3": ""}
    assert [one.host for one in heard.pending] == ["barn"]


async def test_alone_no_node_is_named_and_nobody_is_asked_for_any(scripted: ScriptedDaemon) -> None:
    scripted.answers["list_cards"] = {"cards": [card(SESSION, None)]}

    heard = await looked(scripted)

    assert [row.host for row in heard.rows] == [""]
    assert scripted.asked("list_nodes") == []


async def test_a_list_is_shown_also_when_the_names_cannot_be_told(scripted: ScriptedDaemon) -> None:
    scripted.answers["list_cards"] = {"cards": [card(SESSION, "node_A")]}  # and it does not know `list_nodes`

    assert [row.host for row in (await looked(scripted)).rows] == [""]


def test_the_node_is_in_the_row_and_can_be_searched_for() -> None:
    row = roster.Row(SESSION, "idle", 1, "/work/orchard", "Tidy", host="barn")

    assert "orchard · barn" in session_list._row(row, "1 d", 60, is_open=False).plain
    assert roster.matching([row], "barn") == [row]
