"""How a daemon does when it is one of several nodes: whether to send anybody there, and its own figures."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.parts import RuntimeHarness
from tests.web_server.prometheus import MetricFamilies

from switchtower.accounts.authenticators import TokenBoundReceiver
from switchtower.core import errors
from switchtower.daemon import cluster
from switchtower.protocols.minicodex.connection import MiniCodexConnection
from switchtower.protocols.pi.connection import PiConnection, RejectedConnection
from switchtower.protocols.push.connection import PushConnection
from switchtower.protocols.relay.hub.app_connection import AppConnection
from switchtower.protocols.relay.hub.host_connection import HostConnection
from switchtower.telemetry.metrics import Metrics
from switchtower.testing.memory.stream import RecordingReceiver
from switchtower.transports.stream import Receiver
from switchtower.web_api import monitor
from switchtower.web_api.monitor import COUNT_INTERVAL, Monitor, get_protocol_label


class FakeStoreSize:
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
async def runtime_harness() -> AsyncIterator[RuntimeHarness]:
    house = RuntimeHarness()
    await house.open()
    yield house
    await house.close()


def make_monitor(
    runtime_harness: RuntimeHarness,
    store: FakeStoreSize,
    *,
    node: str | None = None,
    figures: Mapping[str, float] | None = None,
    **more: Any,
) -> Monitor:
    return Monitor(
        Metrics(),
        runtime_harness.runtime,
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
        (cluster.NodeReadiness(), []),
        (cluster.NodeReadiness(draining=True), ["the node is draining"]),
        (cluster.NodeReadiness(database_answers=False), ["the database does not answer"]),
        (cluster.NodeReadiness(lease_holds=False), ["the node's lease has lapsed"]),
        (
            cluster.NodeReadiness(draining=True, database_answers=False, lease_holds=False),
            ["the node is draining", "the database does not answer", "the node's lease has lapsed"],
        ),
    ],
    ids=["well", "draining", "database away", "lease lapsed", "all of it"],
)
def test_a_node_says_why_nobody_should_be_sent_there(standing: cluster.NodeReadiness, reasons: list[str]) -> None:
    assert cluster.list_unready_reasons(standing) == reasons


async def test_what_the_store_and_the_node_know_is_told_beside_what_the_daemon_knows(runtime_harness: RuntimeHarness) -> None:
    store, vitals = FakeStoreSize(), Metrics()
    told = Monitor(
        vitals,
        runtime_harness.runtime,
        "0.1.0",
        tuple,
        lambda: None,
        check=store.check,
        count_states=store.count_states,
        journal_bytes=store.journal_bytes,
    )
    assert told.list_unready_reasons() == []

    store.reasons = ["the node is draining"]
    vitals.stopping = True

    assert told.list_unready_reasons() == ["the daemon is stopping", "the node is draining"]
    assert store.reasons == ["the node is draining"], "what was passed in is not changed"


async def test_a_node_has_figures_of_its_own_and_its_name_in_a_label(runtime_harness: RuntimeHarness) -> None:
    counted = {"homes": 12, "peers": 2, "draining": 0, "forwarded": 30, "followed": 400, "takeovers": 5, "unheard_of": 1}

    found = MetricFamilies(
        await make_monitor(runtime_harness, FakeStoreSize(), node='at"tic', figures=counted).format_prometheus()
    )

    assert set(found.list_labels("switchtower_node_info", "node")) == {r"at\"tic"}
    assert found.get_value("switchtower_node_homes") == 12
    assert found.get_value("switchtower_node_peers") == 2
    assert found.get_value("switchtower_node_draining") == 0
    assert found.get_value("switchtower_node_forwarded_total") == 30
    assert found.get_value("switchtower_node_followed_batches_total") == 400
    assert found.get_value("switchtower_node_takeovers_total") == 5
    assert not [name for name in found.types if "unheard" in name]
    assert found.types["switchtower_node_homes"] == "gauge"
    assert found.types["switchtower_node_takeovers_total"] == "counter"


async def test_alone_there_is_nothing_about_nodes(runtime_harness: RuntimeHarness) -> None:
    assert "switchtower_node_" not in await make_monitor(runtime_harness, FakeStoreSize()).format_prometheus()


async def test_the_store_is_asked_once_however_many_ask_and_what_it_said_last_stays_when_it_is_away(
    runtime_harness: RuntimeHarness,
) -> None:
    store, now = FakeStoreSize(), [0.0]
    told = make_monitor(runtime_harness, store, clock=lambda: now[0])

    first, *_ = await asyncio.gather(*(told.collect_figures() for _ in range(20)))
    assert (first["switchtower_sessions"]["idle"], first["switchtower_journal_bytes"]) == (3, 4_096)
    assert store.asked == 1

    store.away = True
    now[0] += COUNT_INTERVAL
    later = await told.collect_figures()
    assert store.asked == 2
    assert (later["switchtower_sessions"]["idle"], later["switchtower_journal_bytes"]) == (3, 4_096)


async def test_a_journal_file_that_is_not_there_is_a_reason_and_has_no_size(tmp_path: Path) -> None:
    gone = monitor.SqliteStoreStatus(tmp_path / "nowhere" / "journal.db")

    assert gone.list_unready_reasons() == ["the journal's file cannot be written", "the journal's folder is gone"]
    assert await gone.measure_size() == 0


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        (PushConnection, "push"),
        (MiniCodexConnection, "minicodex"),
        (PiConnection, "pi"),
        (RejectedConnection, "pi"),
        (AppConnection, "relay_app"),
        (HostConnection, "relay_host"),
        (RecordingReceiver, "http"),
    ],
)
async def test_a_connection_is_counted_under_its_protocol_also_behind_a_token_check(kind: type[Receiver], label: str) -> None:
    async def is_good() -> bool:
        return True

    receiver = kind.__new__(kind)
    assert get_protocol_label(receiver) == label
    assert get_protocol_label(TokenBoundReceiver(receiver, is_good)) == label


def test_a_connection_that_is_not_let_in_yet_counts_as_http() -> None:
    assert get_protocol_label(None) == "http"
