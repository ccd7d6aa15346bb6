"""The client library against a real daemon, also one that is killed."""

import asyncio
import os
import select
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

from switchtower import config
from switchtower.client import discovery, errors
from switchtower.client.client import DaemonClient
from switchtower.client.frames import PushEvent
from switchtower.client.subscription import SessionSubscription
from switchtower.protocols.push import messages

TIMEOUT = 60


@pytest.fixture
def live_settings() -> Iterator[config.Settings]:
    """A home whose daemon is started by whoever connects."""
    home = Path(tempfile.mkdtemp(dir="/tmp", prefix="tower-"))
    settings = config.Settings(home=home, http="off", demo_delay_ms=0)
    yield settings
    if pid := discovery.find_lock_holder(settings):
        gone = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        select.select([gone], [], [], 10)
        os.close(gone)
    shutil.rmtree(home)


def start_session(settings: config.Settings, mode: messages.Mode = "headless") -> messages.StartSession:
    return messages.StartSession(mode, "demo", messages.Repo(str(settings.home), "main", "main"), "local")


async def watch(
    session: SessionSubscription, until: str = "run_complete", *, at: dict[int, asyncio.Event] | None = None
) -> list[PushEvent]:
    """All events up to the first of this type; sets an event of `at` when so many have come."""
    seen: list[PushEvent] = []
    async with aclosing(session.stream_events()) as events:
        async for event in events:
            seen.append(event)
            if at and (mark := at.get(len(seen))):
                mark.set()
            if event.type == until:
                break
    return seen


def get_outcome(seen: list[PushEvent]) -> str:
    complete = seen[-1].payload
    assert isinstance(complete, messages.RunComplete)
    return complete.outcome


async def test_settings_made_in_code_reach_the_daemon_that_is_started(live_settings: config.Settings) -> None:
    async with asyncio.timeout(TIMEOUT):
        async with await DaemonClient.connect(live_settings) as client:
            assert (await client.ping()).pong
            endpoints = discovery.read_endpoints(live_settings)

    assert endpoints is not None
    assert endpoints.http is None
    assert endpoints.pid == discovery.find_lock_holder(live_settings)


@pytest.mark.parametrize(("names", "seen"), [(("SOME_TOKEN", "MY_KEY"), "one two"), (("MY_KEY",), " two"), ((), " ")])
async def test_a_setting_of_several_names_reaches_the_daemon_as_such(
    live_settings: config.Settings, names: tuple[str, ...], seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "one")
    monkeypatch.setenv("MY_KEY", "two")
    settings = config.Settings(home=live_settings.home, http="off", pass_env=names, demo_delay_ms=0)
    async with asyncio.timeout(TIMEOUT):
        async with await DaemonClient.connect(settings) as client:
            wanted = msgspec.structs.replace(start_session(settings), policy="yolo")
            session_id = (await client.start_session(wanted)).sessionId
            await client.send_message(session_id, "run: printf '%s' \"$SOME_TOKEN $MY_KEY\" > seen")
            await watch(client.subscribe(session_id))

    assert (live_settings.home / "seen").read_text() == seen


async def test_without_start_a_missing_daemon_is_an_error_and_stays_missing(live_settings: config.Settings) -> None:
    with pytest.raises(errors.DaemonUnreachable, match="hint: start one with `tower serve`"):
        await DaemonClient.connect(live_settings, start=False)

    assert discovery.find_lock_holder(live_settings) is None


async def test_many_connecting_at_once_in_one_process_start_one_daemon(live_settings: config.Settings) -> None:
    async with asyncio.timeout(TIMEOUT):
        clients = await asyncio.gather(*(DaemonClient.connect(live_settings) for _ in range(8)))
        assert all([(await client.ping()).pong for client in clients])
    for client in clients:
        client.close()

    assert live_settings.log_path.read_text().count("is listening") == 1


async def test_a_watcher_misses_and_repeats_nothing_when_the_daemon_is_killed_in_mid_stream(
    live_settings: config.Settings,
) -> None:
    async with asyncio.timeout(TIMEOUT):
        async with await DaemonClient.connect(live_settings) as client:
            started = await client.start_session(start_session(live_settings))
            streaming = asyncio.Event()
            watcher = client.subscribe(started.sessionId, reconnect_timeout=TIMEOUT)
            watching = asyncio.create_task(watch(watcher, at={500: streaming}))
            await client.send_message(started.sessionId, "count 1000000")
            await streaming.wait()

            pid = discovery.find_lock_holder(live_settings)
            assert pid
            os.kill(pid, signal.SIGKILL)
            async with await DaemonClient.connect(live_settings) as second:
                seen = await watching
                assert (await client.ping()).pong, "a client finds the new daemon by itself"
                again = await watch(second.subscribe(started.sessionId))

    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert get_outcome(seen) == "failed"
    assert [event.line for event in again] == [event.line for event in seen]


async def test_a_message_is_sent_once_although_the_daemon_is_killed(live_settings: config.Settings) -> None:
    async with asyncio.timeout(TIMEOUT):
        async with await DaemonClient.connect(live_settings) as client:
            started = await client.start_session(start_session(live_settings))
            pid = discovery.find_lock_holder(live_settings)
            assert pid
            os.kill(pid, signal.SIGKILL)
            restarting = asyncio.create_task(DaemonClient.connect(live_settings))
            run_id = await client.send_message(started.sessionId, "say: hello")
            (await restarting).close()
            seen = await watch(client.subscribe(started.sessionId))

    assert {event.run_id for event in seen if event.run_id} == {run_id}
    assert [event.payload.text for event in seen if event.type == "assistant_token"] == ["hello"]  # type: ignore[union-attr]


async def test_a_snapshot_shows_the_open_question_and_a_decision_closes_it(live_settings: config.Settings) -> None:
    async with asyncio.timeout(TIMEOUT):
        async with await DaemonClient.connect(live_settings) as client:
            started = await client.start_session(start_session(live_settings, "interactive"))
            session = client.subscribe(started.sessionId)
            run_id = await client.send_message(started.sessionId, "write notes.txt: x")
            asked = (await watch(session, "approval_required"))[-1].payload
            assert isinstance(asked, messages.ApprovalRequired)

            snapshot = await client.subscribe(started.sessionId).fetch_snapshot()
            assert snapshot.activeRunId == run_id
            assert snapshot.pendingApproval is not None
            assert snapshot.pendingApproval.approvalId == asked.approvalId

            await client.decide_approval(started.sessionId, run_id, asked.approvalId, "deny")
            assert get_outcome(await watch(session)) == "denied"
            with pytest.raises(errors.RequestFailed) as too_late:
                await client.decide_approval(started.sessionId, run_id, asked.approvalId, "approve")

    assert too_late.value.code == "APPROVAL_EXPIRED"


async def test_a_remembered_token_opens_a_session_where_tokens_are_required(live_settings: config.Settings) -> None:
    strict = config.Settings(home=live_settings.home, http="off", demo_delay_ms=0, attach_token_required=True)
    async with asyncio.timeout(TIMEOUT):
        async with await DaemonClient.connect(strict) as owner, await DaemonClient.connect(strict) as other:
            started = await owner.start_session(start_session(strict))
            with pytest.raises(errors.RequestFailed, match="ATTACH_FORBIDDEN"):
                await other.send_message(started.sessionId, "say: no")

            other.remember_attach_token(started.sessionId, started.attachToken)
            await other.send_message(started.sessionId, "say: yes")
            assert get_outcome(await watch(other.subscribe(started.sessionId))) == "success"
