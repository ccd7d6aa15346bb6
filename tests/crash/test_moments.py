"""The moments that matter most, one by one: what is left of a daemon that is killed then, and what the next one makes of it."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from tests.crash import story
from tests.crash.tower_process import DaemonProcess, PushRequestRefused, RawPushClient, find_run_processes
from tests.tools.running.watching import kill_with_watchdog

from switchtower.protocols.push import encoder
from switchtower.stores.sqlite.journal import SqliteJournal

PRUNABLE = ("assistant_token", "thinking_token", "status")

StartDaemon = Callable[..., Awaitable[tuple[DaemonProcess, RawPushClient]]]


@pytest.fixture
async def start_next_daemon(folder: Path) -> AsyncIterator[StartDaemon]:
    """Starts a daemon on the test's home and connects to it; the one before it is killed."""
    lives: list[DaemonProcess] = []

    async def start(**settings: object) -> tuple[DaemonProcess, RawPushClient]:
        if lives:
            lives[-1].end()
        daemon = DaemonProcess(folder, demo_delay_ms=settings.pop("demo_delay_ms", 0), **settings)
        lives.append(daemon)
        await daemon.wait_listening()
        return daemon, await RawPushClient.connect(daemon.socket)

    (folder / "ws").mkdir()
    yield start
    for daemon in lives:
        daemon.end()


async def _read_runs(client: RawPushClient, session_id: str) -> dict[str, story.LoggedRun]:
    """The session's story so far, from its beginning."""
    answer = await client.attach(session_id)
    head = answer["replay"]["toSeq"]
    await client.wait_until(lambda: any(frame.seq == head for frame in client.events if frame.sessionId == session_id))
    return story.read([frame for frame in client.events if frame.sessionId == session_id])


async def test_a_pending_approval_outlives_the_kill_and_its_action_happens_once(
    start_next_daemon: StartDaemon, folder: Path
) -> None:
    file = folder / "ws" / "notes.txt"
    _, client = await start_next_daemon()
    session_id = await client.start_session(folder / "ws")
    run_id = await client.send(session_id, "write notes.txt: once\nrun: echo twice >> notes.txt")
    asked = (await client.wait_for_event("approval_required")).content

    _, client = await start_next_daemon()
    (run,) = (await _read_runs(client, session_id)).values()
    assert run.pending == [asked["approvalId"]]
    assert not file.exists()
    await client.decide(session_id, run_id, asked["approvalId"])
    # The run goes on as if nothing had been: with its next question, which outlives a kill too.
    await client.wait_until(lambda: sum(frame.type == "approval_required" for frame in client.events) == 2)
    assert file.read_text() == "once"

    _, client = await start_next_daemon()
    (run,) = (await _read_runs(client, session_id)).values()
    with pytest.raises(PushRequestRefused) as refused:
        await client.decide(session_id, run_id, asked["approvalId"], "deny")
    assert refused.value.code == "APPROVAL_EXPIRED"
    await client.decide(session_id, run_id, run.pending[0])
    assert (await client.wait_for_event("run_complete")).content["outcome"] == "success"
    assert file.read_text() == "oncetwice\n"


def _make_program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


async def test_a_command_that_was_running_is_gone_and_its_run_is_closed_honestly(
    start_next_daemon: StartDaemon, folder: Path
) -> None:
    daemon, client = await start_next_daemon()
    session_id = await client.start_session(folder / "ws")
    command = "echo begun >> effect.txt; (setsid sleep 1000 &) ; sleep 1000"
    run_id = await client.send(session_id, f"run: {command}")
    asked = (await client.wait_for_event("approval_required")).content
    await client.decide(session_id, run_id, asked["approvalId"])
    async with asyncio.timeout(60):
        # Both have become what they will be: one that is between two programs shows no mark for a moment.
        while [_make_program(pid) for pid in find_run_processes({run_id}).get(run_id, [])].count("sleep") < 2:
            await asyncio.sleep(0.01)
    kill_with_watchdog(daemon.process.pid)
    daemon.end()
    assert find_run_processes({run_id}), "they outlive a daemon without its watchdog"

    _, client = await start_next_daemon()
    assert find_run_processes({run_id}) == {}
    (run,) = (await _read_runs(client, session_id)).values()
    assert (run.outcome, run.errors) == ("failed", ["RUN_INTERRUPTED"])
    assert (folder / "ws" / "effect.txt").read_text() == "begun\n"
    assert await client.send(session_id, f"run: {command}") == run_id


async def test_an_approved_action_whose_fate_is_unknown_is_not_run_again(start_next_daemon: StartDaemon, folder: Path) -> None:
    _, client = await start_next_daemon()
    session_id = await client.start_session(folder / "ws")
    await client.send(session_id, "run: echo once >> effect.txt; sleep 1000")
    asked = await client.wait_for_event("approval_required")
    await client.decide(session_id, str(asked.runId), asked.content["approvalId"])
    effect = folder / "ws" / "effect.txt"
    async with asyncio.timeout(60):
        while not effect.exists() or not effect.read_text():
            await asyncio.sleep(0.005)
    for _ in range(3):
        _, client = await start_next_daemon()
        await _read_runs(client, session_id)
        assert effect.read_text() == "once\n"


@pytest.mark.parametrize("number", range(2))
async def test_a_kill_during_the_recovery_itself_leaves_it_to_the_next_start(
    start_next_daemon: StartDaemon, folder: Path, number: int, crash_seed: int
) -> None:
    print(f"--crash-seed {crash_seed}, number {number}")
    dice = random.Random(crash_seed + number)
    wal = folder / "data" / "journal.db-wal"
    daemon, client = await start_next_daemon(demo_delay_ms=1)
    working, waiting = [], []
    for index in range(30):
        session_id = await client.start_session(folder / "ws")
        if index % 3 == 0:
            await client.send(session_id, f"write {index}.txt: {index}")
            waiting.append((session_id, await client.wait_for_event("approval_required", session_id=session_id)))
        else:
            await client.send(session_id, "count 100000")
            await client.wait_for_event("assistant_token", session_id=session_id)
            working.append(session_id)

    # Recovery's first write is seen from outside; the kill comes a moment later, in the middle of the rest.
    killed_in_recovery = 0
    for _ in range(6):
        daemon.end()
        written = wal.stat().st_mtime_ns
        daemon = DaemonProcess(folder, demo_delay_ms=1)
        listening = asyncio.create_task(daemon.wait_listening())
        while not listening.done() and wal.stat().st_mtime_ns == written:
            await asyncio.sleep(0.0005)
        killed_in_recovery += not listening.done()
        await asyncio.sleep(dice.uniform(0, 0.004))
        daemon.kill()
        await asyncio.gather(listening, return_exceptions=True)
    daemon.end()
    assert killed_in_recovery

    _, client = await start_next_daemon()
    for session_id in working:
        (run,) = (await _read_runs(client, session_id)).values()
        assert (run.outcome, run.errors) == ("failed", ["RUN_INTERRUPTED"])
    for session_id, asked in waiting:
        (run,) = (await _read_runs(client, session_id)).values()
        assert run.pending == [asked.content["approvalId"]]
        await client.decide(session_id, run.id, run.pending[0])
        ended = await client.wait_for_event("run_complete", session_id=session_id)
        assert ended.content["outcome"] == "success"


async def test_a_kill_while_pruning_removes_nothing_that_retention_keeps(
    start_next_daemon: StartDaemon, folder: Path, crash_seed: int
) -> None:
    print(f"--crash-seed {crash_seed}")
    dice = random.Random(crash_seed)
    seen: dict[str, dict[int, bytes]] = {}
    prunings = 0

    def saw(line: bytes, frame: object) -> None:
        seen.setdefault(frame.sessionId, {})[frame.seq] = line  # type: ignore[attr-defined]

    for round_ in range(12):
        daemon, client = await start_next_daemon(retention_entries=50)
        for session_id, log in seen.items():
            prunings += await _check_retained(client, session_id, log)
        worker = await RawPushClient.connect(daemon.socket, saw)
        session_id = dice.choice([*seen, ""]) if round_ else ""
        if session_id:
            await worker.attach(session_id, max(seen[session_id]))
        else:
            session_id = await worker.start_session(folder / "ws")
        await worker.send(session_id, "count 2500", f"msg_{round_}")
        await worker.wait_for_event("run_complete", session_id=session_id)
        await asyncio.sleep(dice.uniform(0, 0.02))
        daemon.kill()
        await worker.closed.wait()
        worker.close()
    assert prunings, "nothing was ever pruned"

    daemon, _ = await start_next_daemon(retention_entries=50)
    assert await daemon.stop() == 0
    journal = SqliteJournal(folder / "data" / "journal.db")
    await journal.open()
    for session_id, log in seen.items():
        entries = await journal.read(session_id, 0, 1_000_000)
        kept = dict(zip((entry.seq for entry in entries), encoder.encode_batch(session_id, entries), strict=True))
        for seq, line in log.items():
            if seq in kept:
                assert kept[seq] == line
            else:
                frame = msgspec.json.decode(line)
                assert frame["type"] in PRUNABLE
                assert frame["payload"].get("phase") != "Run started"
    await journal.close()


async def _check_retained(client: RawPushClient, session_id: str, log: dict[int, bytes]) -> bool:
    """From where the log is whole it is still what it was. Returns whether anything is gone."""
    answer = await client.attach(session_id)
    if not answer["replay"]["gap"]:
        return False
    warning = await client.wait_for_event("warning", session_id=session_id)
    snapshot = await client.wait_for_event("session_snapshot", session_id=session_id)
    assert warning.content["code"] == "EVENT_GAP"
    assert snapshot.content["lastAssistantText"].endswith("2500")
    earliest = int(warning.content["detail"].rpartition(" ")[2])
    replayed: dict[int, bytes] = {}
    assert client._transport is not None
    again = await RawPushClient.connect(
        Path(client._transport.get_extra_info("peername")), lambda line, frame: replayed.update({frame.seq: line})
    )
    answer = await again.attach(session_id, earliest - 1)
    assert not answer["replay"]["gap"]
    head = answer["replay"]["toSeq"]
    await again.wait_until(lambda: head in replayed)
    assert replayed == {seq: log.get(seq, line) for seq, line in replayed.items()}
    assert sorted(replayed) == list(range(earliest, head + 1))
    again.close()
    return True


async def test_files_that_a_killed_daemon_left_are_not_in_the_way(start_next_daemon: StartDaemon, folder: Path) -> None:
    daemon, client = await start_next_daemon()
    session_id = await client.start_session(folder / "ws")
    killed = daemon.pid
    daemon.end()
    run = folder / "run"
    left = {name: run / name for name in ("endpoints.json", "pushd.pid", "pushd.sock", "tower.lock")}
    assert all(path.exists() for path in left.values())
    assert msgspec.json.decode(left["endpoints.json"].read_bytes())["pid"] == killed

    # The number of the dead may belong to somebody who lives, and the files may be damaged.
    for name in ("pushd.pid", "tower.lock"):
        left[name].write_text(str(os.getpid()))
    left["endpoints.json"].write_text("{")
    (run / ".endpoints.json.new").write_text("{")
    daemon, client = await start_next_daemon()
    assert msgspec.json.decode(left["endpoints.json"].read_bytes())["pid"] == daemon.pid
    assert left["pushd.pid"].read_text() == str(daemon.pid)
    assert (await client.attach(session_id))["state"] == "idle"
    assert await daemon.stop() == 0
    assert [path.name for path in run.iterdir()] == ["tower.lock"]
