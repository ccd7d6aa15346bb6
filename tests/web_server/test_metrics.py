"""How the daemon does: alive, ready, and in figures that hold under load."""

import asyncio
import os
import re
from pathlib import Path

import pytest
from tests.crash.tower_process import RawPushClient
from tests.daemon.conftest import Connect, StartDaemon
from tests.relay.stage import wait_until
from tests.web_server.prometheus import MetricFamilies
from tests.web_server.site import TIMEOUT, HttpPortClient

from switchtower.core import errors
from switchtower.core.ports import journal
from switchtower.telemetry import metrics, prometheus
from switchtower.testing.relay_client import RelayApp, RelayHost

SESSIONS = 6


async def scrape_metrics(site: HttpPortClient) -> MetricFamilies:
    answer = await site.get("/metrics")
    assert (answer.status, answer["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return MetricFamilies(answer.text)


async def test_figures_can_be_read_under_load_and_add_up_when_it_ends(
    http_port: HttpPortClient, connect: Connect, workspace: Path
) -> None:
    client = await connect(http_port.daemon)
    working = [asyncio.create_task(_run_session(client, workspace, number)) for number in range(SESSIONS)]
    before = 0.0
    while not all(task.done() for task in working):
        seen = (await scrape_metrics(http_port)).get_value("switchtower_events_journalled_total")
        assert seen >= before
        before = seen
    journalled = sum([await task for task in working])

    found = await scrape_metrics(http_port)
    assert found.get_value("switchtower_events_journalled_total") == journalled
    assert found.get_value("switchtower_runs_started_total") == SESSIONS
    assert found.get_value("switchtower_runs_completed_total", outcome="success") == SESSIONS
    assert found.get_value("switchtower_model_calls_total", provider="demo") >= SESSIONS
    assert found.get_value("switchtower_model_tokens_total", provider="demo", direction="output") > 0
    assert found.get_value("switchtower_tool_calls_total") == SESSIONS
    assert found.get_value("switchtower_clients", protocol="push") == 1
    assert found.get_value("switchtower_runs_active") == 0
    assert found.get_value("switchtower_commit_seconds_count") > 0
    assert found.get_value("switchtower_commit_seconds_sum") > 0
    assert found.get_value("switchtower_commit_failures_total") == 0
    assert found.get_value("switchtower_journal_bytes") > 10_000
    assert found.get_value("process_resident_memory_bytes") > 1_000_000
    assert 0 < found.get_value("process_open_fds") <= found.get_value("process_max_fds")
    assert found.get_value("process_cpu_seconds_total") > 0
    (version,) = found.list_labels("switchtower_build_info", "version")
    assert version == (await http_port.get("/health")).json["version"]


async def _run_session(client: RawPushClient, workspace: Path, number: int) -> int:
    """How many events one session has at its end."""
    (workspace / f"{number}.txt").write_text("word " * 20)
    session_id = await client.start_session(workspace)
    await client.send(session_id, f"read {number}.txt", f"msg_{number}")
    return (await client.wait_for_event("run_complete", session_id=session_id)).seq


async def test_no_label_says_who_or_where(http_port: HttpPortClient, connect: Connect, workspace: Path) -> None:
    client = await connect(http_port.daemon)
    await _run_session(client, workspace, 1)
    found = await scrape_metrics(http_port)
    for sample in found.samples:
        for _, value in sample.labels:
            assert re.fullmatch(r"[a-z_]{1,20}|[0-9.]{1,10}|\+Inf", value), sample


async def test_sessions_approvals_and_clients_are_counted_by_what_they_are(
    http_port: HttpPortClient, connect: Connect, workspace: Path
) -> None:
    client = await connect(http_port.daemon)
    session_id = await client.start_session(workspace)
    await client.send(session_id, "run: true")
    asked = await client.wait_for_event("approval_required", session_id=session_id)
    app = await RelayApp.open(http_port.url, http_port.token)
    host = await RelayHost.open(http_port.url, "host_made_up", "token-of-a-host-0123456789")
    found = await scrape_metrics(http_port)
    assert found.get_value("switchtower_sessions", state="awaiting_approval") == 1
    assert found.get_value("switchtower_approvals_pending") == 1
    assert found.get_value("switchtower_runs_active") == 1
    assert found.get_value("switchtower_clients", protocol="relay_app") == 1
    assert found.get_value("switchtower_clients", protocol="relay_host") == found.get_value("switchtower_hosts_online") == 1
    assert found.get_value("switchtower_clients", protocol="http") >= 1
    await client.decide(session_id, str(asked.runId), asked.content["approvalId"])
    await client.wait_for_event("run_complete", session_id=session_id)
    assert (await scrape_metrics(http_port)).get_value("switchtower_approvals_decided_total", verdict="approve") == 1
    await app.__aexit__(None, None, None)
    await host.__aexit__(None, None, None)


async def test_the_same_as_json(http_port: HttpPortClient) -> None:
    for answer in (await http_port.get("/metrics?format=json"), await http_port.get("/metrics", Accept="application/json")):
        assert answer["content-type"] == "application/json"
        figures = answer.json
        assert figures["switchtower_sessions"]["idle"] == 0
        assert figures["switchtower_commit_seconds"]["buckets"][-1][0] == "+Inf"
        assert set(figures["switchtower_commit_seconds"]) == {"buckets", "sum", "count"}
        assert set(figures) == set((await scrape_metrics(http_port)).types)


async def test_who_may_look(http_port: HttpPortClient) -> None:
    assert (await http_port.get("/metrics")).status == 200, "a process of the owner's, on this machine"
    assert (await http_port.get("/metrics", X_Forwarded_For="10.0.0.1")).status == 401, "it speaks for somebody else"
    assert (await http_port.get("/metrics", Authorization="Bearer wrong")).status == 401
    assert (await http_port.get("/metrics", Origin="https://evil.example")).status == 403
    assert (await http_port.get("/metrics", Authorization=f"Bearer {http_port.token}", X_Forwarded_For="10.0.0.1")).status == 200
    cookie = await http_port.log_in()
    assert (
        await http_port.get("/metrics", Cookie=cookie, X_Forwarded_For="10.0.0.1", Sec_Fetch_Site="same-origin")
    ).status == 200


async def test_under_another_name_a_stranger_sees_figures_only_when_that_is_wished(
    start_daemon_process: StartDaemon, home: Path
) -> None:
    site = HttpPortClient(home, await start_daemon_process(http="127.0.0.1:0", origins="tower.example"))
    assert (await site.get("/metrics", Host="tower.example")).status == 401
    await site.daemon.stop()
    site = HttpPortClient(home, await start_daemon_process(http="127.0.0.1:0", origins="tower.example", metrics_public="true"))
    assert (await site.get("/metrics", Host="tower.example", X_Forwarded_For="10.0.0.1")).status == 200


async def test_the_daemon_is_alive_and_ready_for_whoever_asks(http_port: HttpPortClient) -> None:
    assert (await http_port.get("/healthz")).json == {"ok": True}
    answer = await http_port.get("/readyz")
    assert (answer.status, answer.json) == (200, {"ready": True, "reasons": []})


async def test_a_journal_that_is_gone_is_a_reason_not_to_be_ready(http_port: HttpPortClient) -> None:
    assert (await http_port.get("/readyz")).status == 200
    (http_port.home / "data").rename(http_port.home / "elsewhere")
    answer = await http_port.get("/readyz")
    assert (answer.status, answer.json["ready"]) == (503, False)
    assert any("journal" in reason for reason in answer.json["reasons"])
    assert (await http_port.get("/healthz")).status == 200
    (http_port.home / "elsewhere").rename(http_port.home / "data")
    assert (await http_port.get("/readyz")).status == 200


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes any file")
async def test_a_journal_that_cannot_be_written_is_a_reason_too(http_port: HttpPortClient) -> None:
    (http_port.home / "data" / "journal.db").chmod(0o400)
    assert (await http_port.get("/readyz")).status == 503


async def test_a_daemon_that_stops_says_so(http_port: HttpPortClient, connect: Connect, workspace: Path) -> None:
    """A program that does not want to end keeps the port open meanwhile."""
    client = await connect(http_port.daemon)
    session_id = await client.start_session(workspace)
    await client.send(session_id, "run: trap '' TERM INT HUP; touch ready; while true; do sleep 1; done")
    asked = await client.wait_for_event("approval_required", session_id=session_id)
    await client.decide(session_id, str(asked.runId), asked.content["approvalId"])
    await wait_until((workspace / "ready").exists)
    assert (await http_port.get("/readyz")).status == 200
    http_port.daemon.process.terminate()
    async with asyncio.timeout(TIMEOUT):
        while (answer := await http_port.get("/readyz")).status == 200:
            pass
    assert (answer.status, answer.json) == (503, {"ready": False, "reasons": ["the daemon is stopping"]})


# By themselves


def test_labels_are_escaped_so_that_a_strict_reader_reads_them() -> None:
    rude = 'a"b\\c\nd'
    text = prometheus.format_text([prometheus.make_labelled("x_total", "counter", "Help", "kind", {rude: 1.5, "plain": 2})])
    found = MetricFamilies(text)
    assert found.get_value("x_total", kind="plain") == 2
    assert found.get_value("x_total", kind=r"a\"b\\c\nd") == 1.5


def test_times_fall_into_their_buckets() -> None:
    times = metrics.Histogram()
    for seconds in (0.0, 0.0005, 0.00051, 4.9, 5.0, 5.1, 100.0):
        times.add(seconds)
    found = MetricFamilies(
        prometheus.format_text([prometheus.make_histogram("t", "T", metrics.BUCKETS, times.counts, times.sum)])
    )
    assert found.get_value("t_bucket", le="0.0005") == 2
    assert found.get_value("t_bucket", le="0.001") == 3
    assert found.get_value("t_bucket", le="5") == 5
    assert found.get_value("t_count") == times.count == 7


class _FailingPage:
    """A journal whose disk is full, and then is not."""

    def __init__(self) -> None:
        self.full = True

    def append(self, append: journal.Append) -> "asyncio.Future[None]":
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.full:
            stored.set_exception(errors.JournalUnavailable("the disk is full"))
        else:
            stored.set_result(None)
        return stored

    def __getattr__(self, name: str) -> object:
        return None


async def test_a_commit_that_failed_is_remembered_until_one_succeeds_or_some_time_has_passed() -> None:
    now = [100.0]
    counted, store = metrics.Metrics(lambda: now[0]), _FailingPage()
    metered = counted.wrap_journal(store)  # type: ignore[arg-type]

    async def append() -> None:
        now[0] += 1
        await asyncio.wait([asyncio.ensure_future(metered.append(journal.Append("sess_1", 1, ())))])
        await asyncio.sleep(0)

    await append()
    assert counted.is_journal_failing
    assert counted.commit_failures == 1
    store.full = False
    await append()
    assert not counted.is_journal_failing
    store.full = True
    await append()
    now[0] += metrics.FAILURE_MEMORY_SECONDS
    assert not counted.is_journal_failing, "somebody must be let in to try again"


def test_as_many_providers_are_told_apart_as_anybody_configures() -> None:
    counted = metrics.Metrics()
    for number in range(1_000):
        counted._get_provider(f"provider{number}").calls += 1
    assert len(counted.providers) == metrics.MAX_PROVIDERS + 1
    assert sum(provider.calls for provider in counted.providers.values()) == 1_000
