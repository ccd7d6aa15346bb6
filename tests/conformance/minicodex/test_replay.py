"""Coming back, watching together, and the server's state: what was missed and no more; the snapshot is what was told."""

from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.minicodex.conftest import Enter, Play
from tests.conftest import StartDaemon

from switchtower.testing import model_script as script
from switchtower.testing.minicodex_client import Frame, MiniCodexClient


def list_events(client: MiniCodexClient) -> list[Frame]:
    return [frame for frame in client.frames if "event_id" in frame and frame["type"] != "snapshot"]


async def run_eventful_session(client: MiniCodexClient) -> None:
    """Text, tools, approvals, a denial, an abort."""
    await client.run('think: hm\nsay: hello \N{SNOWMAN} \\ "quoted" ,"event_id":7,\nread README.md')
    for verdict in ("approve", "deny"):
        await client.execute("send", text=f"run: echo {verdict}\nsay: so be it")
        await client.execute(verdict, call_id=(await client.next_of_type("approval_pending"))["call_id"])
        await client.wait_for_end()
    await client.execute("send", text="run: echo never")
    await client.wait_for_status("awaiting_approval")
    await client.execute("abort")
    await client.wait_for_end()


@pytest.mark.requirement("minicodex:resume:exact", "minicodex:matrix:resume")
async def test_from_every_place_a_client_is_replayed_exactly_what_it_has_not_seen(
    connect_minicodex: Enter, push_daemon: ManagedDaemon, minicodex_client: MiniCodexClient
) -> None:
    await run_eventful_session(minicodex_client)
    told = list_events(minicodex_client)
    client = await connect_minicodex(push_daemon, session_id=minicodex_client.session_id)
    for place in range(len(told)):
        before = len(client.frames)
        client.ledger.last_event_id = told[place]["event_id"]
        client.ledger.session_state = {"run_counter": 0}
        welcome = await client.resume()
        assert (welcome["type"], welcome["session_state"]) == ("welcome", minicodex_client.ledger.session_state)
        missed = told[place + 1 :]
        while len(client.frames) - before - 1 < len(missed):
            await client.receive()
        assert client.frames[before + 1 :] == missed
        await client.execute("ping")
        assert len(client.frames) == before + 1 + len(missed) + 1


@pytest.mark.requirement("minicodex:resume:from-the-start")
async def test_who_has_seen_nothing_may_resume_from_nothing(
    connect_minicodex: Enter, push_daemon: ManagedDaemon, minicodex_client: MiniCodexClient
) -> None:
    await run_eventful_session(minicodex_client)
    from_zero, without_place = (
        await connect_minicodex(push_daemon, session_id=minicodex_client.session_id),
        await connect_minicodex(push_daemon, session_id=minicodex_client.session_id),
    )
    from_zero.ledger.session_state = {**minicodex_client.ledger.session_state, "run_counter": 0}
    assert (await from_zero.resume(0))["type"] == "welcome"
    while from_zero.ledger.last_event_id < minicodex_client.ledger.last_event_id:
        await from_zero.receive()
    assert from_zero.frames[1:] == list_events(minicodex_client)
    assert from_zero.ledger.build_snapshot() == minicodex_client.ledger.build_snapshot()
    await without_place.send_frames({"type": "resume", "last_seen_event_id": None})
    assert (await without_place.receive())["type"] == "welcome"
    assert await without_place.receive() == minicodex_client.ledger.build_snapshot()


@pytest.mark.requirement("minicodex:resume:goes-on-live")
async def test_a_client_that_comes_back_in_the_middle_of_a_run_goes_on_with_it(
    connect_minicodex: Enter, push_daemon: ManagedDaemon, minicodex_client: MiniCodexClient
) -> None:
    await minicodex_client.execute("send", text="run: echo hi\nsay: done")
    pending = await minicodex_client.next_of_type("approval_pending")
    minicodex_client.wire.abort()
    again = await connect_minicodex(push_daemon, session_id=minicodex_client.session_id, ledger=minicodex_client.ledger)
    await again.resume()
    await again.wait_for_status("awaiting_approval")
    await again.execute("approve", call_id=pending["call_id"])
    await again.wait_for_end()
    assert await again.request_snapshot() == again.ledger.build_snapshot()
    fresh = await connect_minicodex(push_daemon, session_id=minicodex_client.session_id)
    assert await fresh.send_hello() == again.ledger.build_snapshot()


@pytest.mark.requirement("minicodex:resume:gap")
async def test_a_place_beyond_the_end_or_too_far_back_is_a_gap_and_a_snapshot_goes_on(
    connect_minicodex: Enter, start_daemon: StartDaemon, workspace: Path
) -> None:
    daemon = start_daemon(minicodex_replay=50)
    mini = await connect_minicodex(daemon, cwd=workspace)
    await mini.send_hello()
    await mini.run("count 100")
    near = mini.ledger.event_ids[-20]
    for last_seen in (0, mini.ledger.event_ids[0], mini.ledger.last_event_id + 4_096 * 1_000, 2**53 - 1):
        client = await connect_minicodex(daemon, session_id=mini.session_id)
        assert (await client.resume(last_seen))["type"] == "welcome"
        gap = await client.next_of_type("error")
        assert gap["code"] == "REPLAY_GAP"
        assert gap["details"]["last_seen_event_id"] == last_seen
        earliest = gap["details"]["earliest_event_id"]
        assert earliest <= mini.ledger.last_event_id
        # Nothing is told until the snapshot was fetched, then everything.
        client.ledger.begin(await client.request_snapshot())
        assert client.ledger.build_snapshot() == mini.ledger.build_snapshot()
        await mini.run("say: on")
        await client.wait_for_end()
        assert client.ledger.build_snapshot() == mini.ledger.build_snapshot()
    client = await connect_minicodex(daemon, session_id=mini.session_id)
    client.ledger.session_state = {"run_counter": 0}
    client.ledger.last_event_id = max(near, earliest)
    await client.resume()
    while client.ledger.last_event_id < mini.ledger.last_event_id:
        await client.receive()


@pytest.mark.requirement("minicodex:matrix:fanout", "minicodex:events:fanout")
async def test_all_clients_of_a_session_are_told_the_same_frames(
    minicodex_client: MiniCodexClient, second_client: MiniCodexClient
) -> None:
    await run_eventful_session(minicodex_client)
    while second_client.ledger.last_event_id < minicodex_client.ledger.last_event_id:
        await second_client.receive()
    assert list_events(second_client) == list_events(minicodex_client)
    await second_client.run("say: from the other")
    while minicodex_client.ledger.last_event_id < second_client.ledger.last_event_id:
        await minicodex_client.receive()
    assert minicodex_client.ledger.build_snapshot() == second_client.ledger.build_snapshot()


@pytest.mark.requirement("minicodex:state:fold", "minicodex:state:hello-snapshot")
async def test_what_a_client_folds_is_what_a_snapshot_says_at_every_stop(
    connect_minicodex: Enter, start_scripted_session: Play, push_daemon: ManagedDaemon, workspace: Path
) -> None:
    mini = await connect_minicodex(push_daemon, cwd=workspace)
    await mini.send_hello()
    watchers = [mini]
    for text, verdict in (
        ("say: one", None),
        ("read README.md\nthink: hm\nsay: two", None),
        ("run: echo yes", "approve"),
        ("run: echo no\nsay: three", "deny"),
        ("run: echo never", "abort"),
        ("read missing.txt", None),
    ):
        await mini.execute("send", text=text)
        if verdict is not None:
            pending = await mini.next_of_type("approval_pending")
            await mini.wait_for_status("awaiting_approval")
            assert await mini.request_snapshot() == mini.ledger.build_snapshot()
            assert await mini.request_snapshot(with_transcript=False) == mini.ledger.build_snapshot(with_transcript=False)
            watchers.append(await connect_minicodex(push_daemon, session_id=mini.session_id))
            assert await watchers[-1].send_hello() == mini.ledger.build_snapshot()
            await mini.execute(verdict, **({} if verdict == "abort" else {"call_id": pending["call_id"]}))
        await mini.wait_for_end()
        assert await mini.request_snapshot() == mini.ledger.build_snapshot()
        assert await mini.request_snapshot(with_transcript=False) == mini.ledger.build_snapshot(with_transcript=False)
    for client in watchers:
        while client.ledger.last_event_id < mini.ledger.last_event_id:
            await client.receive()
        assert client.ledger.build_snapshot() == mini.ledger.build_snapshot()

    failing = await start_scripted_session(
        script.ScriptedRefusal(401, "no"),
        script.ScriptedReply((script.TextStep("half"), script.CutStep())),
        script.reply_text("whole"),
    )
    for _ in range(2):
        await failing.run("go")
        assert await failing.request_snapshot() == failing.ledger.build_snapshot()


@pytest.mark.requirement("minicodex:state:snapshot-event-id")
async def test_a_snapshot_in_the_middle_of_a_stream_stands_exactly_between_two_events(
    connect_minicodex: Enter, push_daemon: ManagedDaemon, minicodex_client: MiniCodexClient
) -> None:
    await minicodex_client.execute("send", text="count 20000")
    rounds = 0
    while minicodex_client.ledger.session_state.get("active_run_id") or not minicodex_client.ledger.assistant_text:
        rounds += 1
        assert await minicodex_client.request_snapshot() == minicodex_client.ledger.build_snapshot()
        late = await connect_minicodex(push_daemon, session_id=minicodex_client.session_id)
        await late.send_hello()
        late.wire.abort()
        await minicodex_client.execute("ping")
    assert rounds > 2
    assert minicodex_client.ledger.assistant_text == " ".join(map(str, range(1, 20_001)))
