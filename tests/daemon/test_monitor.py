"""How a daemon does when it is one of several nodes: whether to send anybody there, and its own figures."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.parts import House
from tests.web_server.prometheus import Families

from switchtower.core import errors
from switchtower.daemon import journal_file, readiness
from switchtower.daemon.monitor import COUNTED_EVERY, Monitor, protocol_of
from switchtower.daemon.supervision import Supervised
from switchtower.daemon.vitals import Vitals
from switchtower.protocols.minicodex.peer import MiniCodexPeer
from switchtower.protocols.pi.peer import PiPeer, Turned
from switchtower.protocols.push.peer import PushPeer
from switchtower.protocols.relay.hub.app_peer import AppPeer
from switchtower.protocols.relay.hub.host_peer import HostPeer
from switchtower.transports.pair import Inbox
from switchtower.transports.stream import Receiver


class Store:
    """What a monitor asks of the store, and how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.away = False
        self.reasons: list[str] = []

    def check(self) -> list[str]:
        return self.reasons

    async def count_states(self) -> Mapping[str, int]:
        self.asked += 1
        if self.away:
            raise errors.JournalUnavailable("it hung up")
        return {"idle": 3}

    async def journal_bytes(self) -> int:
        return 4_096


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House()
    await house.open()
    yield house
    await house.close()


def monitor(
    house: House, store: Store, *, node: str | None = None, figures: Mapping[str, float] | None = None, **more: Any
) -> Monitor:
    return Monitor(
        Vitals(),
        house.runtime,
        "0.1.0",
        tuple,
        lambda: None,
        check=store.check,
        count_states=store.count_states,
        journal_bytes=store.journal_bytes,
        node_name=node,
        node_figures=None if figures is None else lambda: figures,
        **more,
    )


@pytest.mark.parametrize(
    ("standing", "reasons"),
    [
        (readiness.Standing(), []),
        (readiness.Standing(draining=True), ["the node is draining"]),
        (readiness.Standing(database_answers=False), ["the database does not answer"]),
        (readiness.Standing(lease_holds=False), ["the node's lease has lapsed"]),
        (
            readiness.Standing(draining=True, database_answers=False, lease_holds=False),
            ["the node is draining", "the database does not answer", "the node's lease has lapsed"],
        ),
    ],
    ids=["well", "draining", "database away", "lease lapsed", "all of it"],
)
def test_a_node_says_why_nobody_should_be_sent_there(standing: readiness.Standing, reasons: list[str]) -> None:
    assert readiness.reasons_not_ready(standing) == reasons


async def test_what_the_store_and_the_node_know_is_told_beside_what_the_daemon_knows(house: House) -> None:
    store, vitals = Store(), Vitals()
    told = Monitor(
        vitals,
        house.runtime,
        "0.1.0",
        tuple,
        lambda: None,
        check=store.check,
        count_states=store.count_states,
        journal_bytes=store.journal_bytes,
    )
    assert told.reasons_not_ready() == []

    store.reasons = ["the node is draining"]
    vitals.stopping = True

    assert told.reasons_not_ready() == ["the daemon is stopping", "the node is draining"]
    assert store.reasons == ["the node is draining"], "what was passed in is not changed"


async def test_a_node_has_figures_of_its_own_and_its_name_in_a_label(house: House) -> None:
    counted = {"homes": 12, "peers": 2, "draining": 0, "forwarded": 30, "followed": 400, "takeovers": 5, "unheard_of": 1}

    found = Families(await monitor(house, Store(), node='at"tic', figures=counted).text())

    assert set(found.labels("switchtower_node_info", "node")) == {r"at\"tic"}
    assert found.value("switchtower_node_homes") == 12
    assert found.value("switchtower_node_peers") == 2
    assert found.value("switchtower_node_draining") == 0
    assert found.value("switchtower_node_forwarded_total") == 30
    assert found.value("switchtower_node_followed_batches_total") == 400
    assert found.value("switchtower_node_takeovers_total") == 5
    assert not [name for name in found.types if "unheard" in name]
    assert found.types["switchtower_node_homes"] == "gauge"
    assert found.types["switchtower_node_takeovers_total"] == "counter"


async def test_alone_there_is_nothing_about_nodes(house: House) -> None:
    assert "switchtower_node_" not in await monitor(house, Store()).text()


async def test_the_store_is_asked_once_however_many_ask_and_what_it_said_last_stays_when_it_is_away(house: House) -> None:
    store, now = Store(), [0.0]
    told = monitor(house, store, clock=lambda: now[0])

    first, *_ = await asyncio.gather(*(told.figures() for _ in range(20)))
    assert (first["switchtower_sessions"]["idle"], first["switchtower_journal_bytes"]) == (3, 4_096)
    assert store.asked == 1

    store.away = True
    now[0] += COUNTED_EVERY
    later = await told.figures()
    assert store.asked == 2
    assert (later["switchtower_sessions"]["idle"], later["switchtower_journal_bytes"]) == (3, 4_096)


async def test_a_journal_file_that_is_not_there_is_a_reason_and_has_no_size(tmp_path: Path) -> None:
    gone = journal_file.JournalFile(tmp_path / "nowhere" / "journal.db")

    assert gone.reasons_not_ready() == ["the journal's file cannot be written", "the journal's folder is gone"]
    assert await gone.size() == 0


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        (PushPeer, "push"),
        (MiniCodexPeer, "minicodex"),
        (PiPeer, "pi"),
        (Turned, "pi"),
        (AppPeer, "relay_app"),
        (HostPeer, "relay_host"),
        (Inbox, "http"),
    ],
)
async def test_a_connection_is_counted_under_its_protocol_also_behind_a_token_check(kind: type[Receiver], label: str) -> None:
    async def is_good() -> bool:
        return True

    receiver = kind.__new__(kind)
    assert protocol_of(receiver) == label
    assert protocol_of(Supervised(receiver, is_good)) == label


def test_a_connection_that_is_not_let_in_yet_counts_as_http() -> None:
    assert protocol_of(None) == "http"
