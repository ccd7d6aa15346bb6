"""Coming back, watching together, and the server's state: what was missed and no more; the snapshot is what was told."""

from pathlib import Path

import pytest
from tests.conformance.daemons import Daemon
from tests.conformance.minicodex.conftest import Enter, Play
from tests.conftest import StartDaemon

from switchtower.testing import model_server_script as script
from switchtower.testing.minicodex_client import Frame, MiniCodexClient


def events(client: MiniCodexClient) -> list[Frame]:
    return [frame for frame in client.frames if "event_id" in frame and frame["type"] != "snapshot"]


async def eventful(client: MiniCodexClient) -> None:
    """Text, tools, approvals, a denial, an abort."""
    await client.run('think: hm\nsay: hello \N{SNOWMAN} \\ "quoted" ,"event_id":7,\nread README.md')
    for verdict in ("approve", "deny"):
        await client.do("send", text=f"run: echo {verdict}\nsay: so be it")
        await client.do(verdict, call_id=(await client.next_of("approval_pending"))["call_id"])
        await client.ended()
    await client.do("send", text="run: echo never")
    await client.status("awaiting_approval")
    await client.do("abort")
    await client.ended()


@pytest.mark.requirement("minicodex:resume:exact", "minicodex:matrix:resume")
async def test_from_every_place_a_client_is_replayed_exactly_what_it_has_not_seen(
    enter: Enter, pushd: Daemon, mini: MiniCodexClient
) -> None:
    await eventful(mini)
    told = events(mini)
    client = await enter(pushd, session_id=mini.session_id)
    for place in range(len(told)):
        before = len(client.frames)
        client.ledger.last_event_id = told[place]["event_id"]
        client.ledger.session_state = {"run_counter": 0}
        welcome = await client.resume()
        assert (welcome["type"], welcome["session_state"]) == ("welcome", mini.ledger.session_state)
        missed = told[place + 1 :]
        while len(client.frames) - before - 1 < len(missed):
            await client.receive()
        assert client.frames[before + 1 :] == missed
        await client.do("ping")
        assert len(client.frames) == before + 1 + len(missed) + 1


@pytest.mark.requirement("minicodex:resume:from-the-start")
async def test_who_has_seen_nothing_may_resume_from_nothing(enter: Enter, pushd: Daemon, mini: MiniCodexClient) -> None:
    await eventful(mini)
    from_zero, without_place = await enter(pushd, session_id=mini.session_id), await enter(pushd, session_id=mini.session_id)
    from_zero.ledger.session_state = {**mini.ledger.session_state, "run_counter": 0}
    assert (await from_zero.resume(0))["type"] == "welcome"
    while from_zero.ledger.last_event_id < mini.ledger.last_event_id:
        await from_zero.receive()
    assert from_zero.frames[1:] == events(mini)
    assert from_zero.ledger.as_snapshot() == mini.ledger.as_snapshot()
    await without_place.say({"type": "resume", "last_seen_event_id": None})
    assert (await without_place.receive())["type"] == "welcome"
    assert await without_place.receive() == mini.ledger.as_snapshot()


@pytest.mark.requirement("minicodex:resume:goes-on-live")
async def test_a_client_that_comes_back_in_the_middle_of_a_run_goes_on_with_it(
    enter: Enter, pushd: Daemon, mini: MiniCodexClient
) -> None:
    await mini.do("send", text="run: echo hi\nsay: done")
    pending = await mini.next_of("approval_pending")
    mini.wire.abort()
    again = await enter(pushd, session_id=mini.session_id, ledger=mini.ledger)
    await again.resume()
    await again.status("awaiting_approval")
    await again.do("approve", call_id=pending["call_id"])
    await again.ended()
    assert await again.snapshot() == again.ledger.as_snapshot()
    fresh = await enter(pushd, session_id=mini.session_id)
    assert await fresh.hello() == again.ledger.as_snapshot()


@pytest.mark.requirement("minicodex:resume:gap")
async def test_a_place_beyond_the_end_or_too_far_back_is_a_gap_and_a_snapshot_goes_on(
    enter: Enter, start_daemon: StartDaemon, workspace: Path
) -> None:
    daemon = start_daemon(minicodex_replay=50)
    mini = await enter(daemon, cwd=workspace)
    await mini.hello()
    await mini.run("count 100")
    near = mini.ledger.event_ids[-20]
    for last_seen in (0, mini.ledger.event_ids[0], mini.ledger.last_event_id + 4_096 * 1_000, 2**53 - 1):
        client = await enter(daemon, session_id=mini.session_id)
        assert (await client.resume(last_seen))["type"] == "welcome"
        gap = await client.next_of("error")
        assert gap["code"] == "REPLAY_GAP"
        assert gap["details"]["last_seen_event_id"] == last_seen
        earliest = gap["details"]["earliest_event_id"]
        assert earliest <= mini.ledger.last_event_id
        # Nothing is told until the snapshot was fetched, then everything.
        client.ledger.begin(await client.snapshot())
        assert client.ledger.as_snapshot() == mini.ledger.as_snapshot()
        await mini.run("say: on")
        await client.ended()
        assert client.ledger.as_snapshot() == mini.ledger.as_snapshot()
    client = await enter(daemon, session_id=mini.session_id)
    client.ledger.session_state = {"run_counter": 0}
    client.ledger.last_event_id = max(near, earliest)
    await client.resume()
    while client.ledger.last_event_id < mini.ledger.last_event_id:
        await client.receive()


@pytest.mark.requirement("minicodex:matrix:fanout", "minicodex:events:fanout")
async def test_all_clients_of_a_session_are_told_the_same_frames(mini: MiniCodexClient, other: MiniCodexClient) -> None:
    await eventful(mini)
    while other.ledger.last_event_id < mini.ledger.last_event_id:
        await other.receive()
    assert events(other) == events(mini)
    await other.run("say: from the other")
    while mini.ledger.last_event_id < other.ledger.last_event_id:
        await mini.receive()
    assert mini.ledger.as_snapshot() == other.ledger.as_snapshot()


@pytest.mark.requirement("minicodex:state:fold", "minicodex:state:hello-snapshot")
async def test_what_a_client_folds_is_what_a_snapshot_says_at_every_stop(
    enter: Enter, play: Play, pushd: Daemon, workspace: Path
) -> None:
    mini = await enter(pushd, cwd=workspace)
    await mini.hello()
    watchers = [mini]
    for text, verdict in (
        ("say: one", None),
        ("read README.md\nthink: hm\nsay: two", None),
        ("run: echo yes", "approve"),
        ("run: echo no\nsay: three", "deny"),
        ("run: echo never", "abort"),
        ("read missing.txt", None),
    ):
        await mini.do("send", text=text)
        if verdict is not None:
            pending = await mini.next_of("approval_pending")
            await mini.status("awaiting_approval")
            assert await mini.snapshot() == mini.ledger.as_snapshot()
            assert await mini.snapshot(with_transcript=False) == mini.ledger.as_snapshot(with_transcript=False)
            watchers.append(await enter(pushd, session_id=mini.session_id))
            assert await watchers[-1].hello() == mini.ledger.as_snapshot()
            await mini.do(verdict, **({} if verdict == "abort" else {"call_id": pending["call_id"]}))
        await mini.ended()
        assert await mini.snapshot() == mini.ledger.as_snapshot()
        assert await mini.snapshot(with_transcript=False) == mini.ledger.as_snapshot(with_transcript=False)
    for client in watchers:
        while client.ledger.last_event_id < mini.ledger.last_event_id:
            await client.receive()
        assert client.ledger.as_snapshot() == mini.ledger.as_snapshot()

    failing = await play(script.Refusal(401, "no"), script.Reply((script.Text("half"), script.Cut())), script.say("whole"))
    for _ in range(2):
        await failing.run("go")
        assert await failing.snapshot() == failing.ledger.as_snapshot()


@pytest.mark.requirement("minicodex:state:snapshot-event-id")
async def test_a_snapshot_in_the_middle_of_a_stream_stands_exactly_between_two_events(
    enter: Enter, pushd: Daemon, mini: MiniCodexClient
) -> None:
    await mini.do("send", text="count 20000")
    rounds = 0
    while mini.ledger.session_state.get("active_run_id") or not mini.ledger.said:
        rounds += 1
        assert await mini.snapshot() == mini.ledger.as_snapshot()
        late = await enter(pushd, session_id=mini.session_id)
        await late.hello()
        late.wire.abort()
        await mini.do("ping")
    assert rounds > 2
    assert mini.ledger.said == " ".join(map(str, range(1, 20_001)))
