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
from switchtower.client import discover, errors
from switchtower.client.client import Client
from switchtower.client.frames import Event
from switchtower.client.session import Session
from switchtower.protocols.push import messages

PATIENCE = 60


@pytest.fixture
def live() -> Iterator[config.Settings]:
    """A home whose daemon is started by whoever connects."""
    home = Path(tempfile.mkdtemp(dir="/tmp", prefix="tower-"))
    settings = config.Settings(home=home, http="off", demo_delay_ms=0)
    yield settings
    if pid := discover.holder(settings):
        gone = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        select.select([gone], [], [], 10)
        os.close(gone)
    shutil.rmtree(home)


def new_session(settings: config.Settings, mode: messages.Mode = "headless") -> messages.StartSession:
    return messages.StartSession(mode, "demo", messages.Repo(str(settings.home), "main", "main"), "local")


async def watch(session: Session, until: str = "run_complete", *, at: dict[int, asyncio.Event] | None = None) -> list[Event]:
    """All events up to the first of this type; sets an event of `at` when so many have come."""
    seen: list[Event] = []
    async with aclosing(session.events()) as events:
        async for event in events:
            seen.append(event)
            if at and (mark := at.get(len(seen))):
                mark.set()
            if event.type == until:
                break
    return seen


def outcome(seen: list[Event]) -> str:
    complete = seen[-1].payload
    assert isinstance(complete, messages.RunComplete)
    return complete.outcome


async def test_settings_made_in_code_reach_the_daemon_that_is_started(live: config.Settings) -> None:
    async with asyncio.timeout(PATIENCE):
        async with await Client.connect(live) as client:
            assert (await client.ping()).pong
            endpoints = discover.read_endpoints(live)

    assert endpoints is not None
    assert endpoints.http is None
    assert endpoints.pid == discover.holder(live)


@pytest.mark.parametrize(("names", "seen"), [(("SOME_TOKEN", "MY_KEY"), "one two"), (("MY_KEY",), " two"), ((), " ")])
async def test_a_setting_of_several_names_reaches_the_daemon_as_such(
    live: config.Settings, names: tuple[str, ...], seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "one")
    monkeypatch.setenv("MY_KEY", "two")
    settings = config.Settings(home=live.home, http="off", pass_env=names, demo_delay_ms=0)
    async with asyncio.timeout(PATIENCE):
        async with await Client.connect(settings) as client:
            wanted = msgspec.structs.replace(new_session(settings), policy="yolo")
            session_id = (await client.start_session(wanted)).sessionId
            await client.send(session_id, "run: printf '%s' \"$SOME_TOKEN $MY_KEY\" > seen")
            await watch(client.session(session_id))

    assert (live.home / "seen").read_text() == seen


async def test_without_start_a_missing_daemon_is_an_error_and_stays_missing(live: config.Settings) -> None:
    with pytest.raises(errors.DaemonUnreachable, match="hint: start one with `tower serve`"):
        await Client.connect(live, start=False)

    assert discover.holder(live) is None


async def test_many_connecting_at_once_in_one_process_start_one_daemon(live: config.Settings) -> None:
    async with asyncio.timeout(PATIENCE):
        clients = await asyncio.gather(*(Client.connect(live) for _ in range(8)))
        assert all([(await client.ping()).pong for client in clients])
    for client in clients:
        client.close()

    assert live.log_path.read_text().count("is listening") == 1


async def test_a_watcher_misses_and_repeats_nothing_when_the_daemon_is_killed_in_mid_stream(live: config.Settings) -> None:
    async with asyncio.timeout(PATIENCE):
        async with await Client.connect(live) as client:
            started = await client.start_session(new_session(live))
            streaming = asyncio.Event()
            watcher = client.session(started.sessionId, patience=PATIENCE)
            watching = asyncio.create_task(watch(watcher, at={500: streaming}))
            await client.send(started.sessionId, "count 1000000")
            await streaming.wait()

            pid = discover.holder(live)
            assert pid
            os.kill(pid, signal.SIGKILL)
            async with await Client.connect(live) as second:
                seen = await watching
                assert (await client.ping()).pong, "a client finds the new daemon by itself"
                again = await watch(second.session(started.sessionId))

    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert outcome(seen) == "failed"
    assert [event.line for event in again] == [event.line for event in seen]


async def test_a_message_is_sent_once_although_the_daemon_is_killed(live: config.Settings) -> None:
    async with asyncio.timeout(PATIENCE):
        async with await Client.connect(live) as client:
            started = await client.start_session(new_session(live))
            pid = discover.holder(live)
            assert pid
            os.kill(pid, signal.SIGKILL)
            restarting = asyncio.create_task(Client.connect(live))
            run_id = await client.send(started.sessionId, "say: hello")
            (await restarting).close()
            seen = await watch(client.session(started.sessionId))

    assert {event.run_id for event in seen if event.run_id} == {run_id}
    assert [event.payload.text for event in seen if event.type == "assistant_token"] == ["hello"]  # type: ignore[union-attr]


async def test_a_snapshot_shows_the_open_question_and_a_decision_closes_it(live: config.Settings) -> None:
    async with asyncio.timeout(PATIENCE):
        async with await Client.connect(live) as client:
            started = await client.start_session(new_session(live, "interactive"))
            session = client.session(started.sessionId)
            run_id = await client.send(started.sessionId, "write notes.txt: x")
            asked = (await watch(session, "approval_required"))[-1].payload
            assert isinstance(asked, messages.ApprovalRequired)

            snapshot = await client.session(started.sessionId).snapshot()
            assert snapshot.activeRunId == run_id
            assert snapshot.pendingApproval is not None
            assert snapshot.pendingApproval.approvalId == asked.approvalId

            await client.decide(started.sessionId, run_id, asked.approvalId, "deny")
            assert outcome(await watch(session)) == "denied"
            with pytest.raises(errors.RequestFailed) as too_late:
                await client.decide(started.sessionId, run_id, asked.approvalId, "approve")

    assert too_late.value.code == "APPROVAL_EXPIRED"


async def test_a_remembered_token_opens_a_session_where_tokens_are_required(live: config.Settings) -> None:
    strict = config.Settings(home=live.home, http="off", demo_delay_ms=0, attach_token_required=True)
    async with asyncio.timeout(PATIENCE):
        async with await Client.connect(strict) as owner, await Client.connect(strict) as other:
            started = await owner.start_session(new_session(strict))
            with pytest.raises(errors.RequestFailed, match="ATTACH_FORBIDDEN"):
                await other.send(started.sessionId, "say: no")

            other.remember(started.sessionId, started.attachToken)
            await other.send(started.sessionId, "say: yes")
            assert outcome(await watch(other.session(started.sessionId))) == "success"
