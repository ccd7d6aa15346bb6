"""What apps decide and ask of runs, here and on other hosts: one decision wins, whoever else speaks another protocol."""

import asyncio
from typing import Any

from tests.relay.seen import collect_seqs, create_user
from tests.relay.stage import RelayNetwork, wait_until

from switchtower.testing.push_client import PushClient
from switchtower.testing.relay_client import Frame, RelayApp

ASKING = "printf 'Proceed? (y/n) '; read answer; echo got $answer"


async def test_two_apps_race_for_one_approval_and_one_wins_every_time(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    tokens = {name: await create_user(shared_relay_network.hub, name) for name in (f"ann{unique_name}", f"bob{unique_name}")}
    ann, bob = [await RelayApp.open(shared_relay_network.hub.url, token) for token in tokens.values()]
    asker = await shared_relay_network.connect_app()
    run = await asker.start("hub", "cat", cwd=str(shared_relay_network.hub.home / "run"))
    await asker.next_of_type("run.ready", run)
    winners: list[str] = []
    async with ann, bob:
        for number in range(100):
            request_id = f"w{number}-{unique_name}"
            await asker.send_command("rpc.fs.write", run, request_id=request_id, path="raced.txt", content=str(number))
            for app in (ann, bob):
                await app.wait_for(lambda frame, wanted=request_id: make_approval_frame(frame, wanted))
            await asyncio.gather(*(decide(app, run, request_id) for app in (ann, bob)))
            assert (await asker.wait_for_answer(request_id))["ok"]
            decision = await asker.wait_for(lambda frame, wanted=request_id: make_decision_frame(frame, wanted))
            told_both = [await wait_for_complaint(app, request_id) for app in (ann, bob)]
            assert sorted(error or "" for error in told_both) == ["", "already decided"]
            winner = list(tokens)[told_both.index(None)]
            assert decision["data"] == {
                "request_id": request_id,
                "decision": "approve",
                "actor": "web",
                "by": winner,
                "via": decision["data"]["via"],
            }
            winners.append(winner)
    assert len(winners) == 100


def make_approval_frame(frame: Frame, request_id: str) -> bool:
    return frame["type"] == "run.permission_requested" and frame["data"]["request_id"] == request_id


def make_decision_frame(frame: Frame, request_id: str) -> bool:
    return frame["type"] == "run.permission_decided" and frame["data"]["request_id"] == request_id


async def decide(app: RelayApp, run: str, request_id: str) -> None:
    await app.send_command("run.permission.approve", run, request_id=request_id)


async def wait_for_complaint(app: RelayApp, request_id: str) -> str | None:
    """What it was told was wrong with its decision, if anything was: by now that is known."""
    await app.wait_until_processed()
    errors = [frame["data"] for frame in app.frames if frame["type"] == "run.error"]
    return next((error["error"] for error in errors if error.get("request_id") == request_id), None)


async def test_approving_twice_types_the_answer_once(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    app, other = await shared_relay_network.connect_app(), await shared_relay_network.connect_app()
    run = await app.start("hub", ASKING, cwd=str(shared_relay_network.hub.home))
    asked = await app.next_of_type("run.permission_requested", run)
    request_id = asked["data"]["request_id"]
    await asyncio.gather(*(decide(each, run, request_id) for each in (app, other) for _ in range(3)))
    await app.next_of_type("run.exited", run)
    inputs = [frame for frame in app.list_events(run) if frame["type"] == "run.input"]
    assert [frame["data"]["input_id"] for frame in inputs] == [request_id]
    assert "got y" in app.join_output(run)


async def test_a_denied_question_is_answered_no(shared_relay_network: RelayNetwork) -> None:
    app = await shared_relay_network.connect_app()
    run = await app.start("hub", ASKING, cwd=str(shared_relay_network.hub.home))
    asked = await app.next_of_type("run.permission_requested", run)
    assert (await shared_relay_network.hub.http.get_run(run))["status"] == "awaiting_approval"
    await app.send_command("run.permission.deny", run, request_id=asked["data"]["request_id"])
    await app.next_of_type("run.exited", run)
    assert "got n" in app.join_output(run)


async def push_question(client: PushClient, session_id: str) -> Any:
    await client.attach(session_id)
    while True:
        event = await client.next_event()
        if event.session_id == session_id and event.type == "approval_required":
            return event


async def test_a_push_client_sees_a_relay_run_and_decides_its_question(shared_relay_network: RelayNetwork) -> None:
    app, push = await shared_relay_network.connect_app(), await shared_relay_network.push()
    run = await app.start("hub", ASKING, cwd=str(shared_relay_network.hub.home))
    await app.next_of_type("run.permission_requested", run)
    answer = await push.decide(await push_question(push, run))
    assert answer.ok, answer
    decided = await app.next_of_type("run.permission_decided", run)
    assert (decided["data"]["decision"], decided["data"]["by"]) == ("approve", "owner")
    await app.next_of_type("run.exited", run)
    assert "got y" in app.join_output(run)
    await push.read_until("run_complete")


async def test_an_app_approves_what_an_agent_wants_to_do_and_sends_it_messages(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    workspace = shared_relay_network.hub.home / f"ws-{unique_name}"
    workspace.mkdir()
    app, push = await shared_relay_network.connect_app(), await shared_relay_network.push()
    session = await push.start_session(workspace)
    await push.send(session.session_id, "write notes.txt: hello")
    run = session.session_id
    asked = await app.next_of_type("run.permission_requested", run)
    assert not (workspace / "notes.txt").exists()
    assert (await shared_relay_network.hub.http.get_run(run))["pending_request_id"] == asked["data"]["request_id"]
    await app.send_command("run.permission.approve", run, request_id=asked["data"]["request_id"])
    await app.next_of_type("run.permission_decided", run)
    await app.next_of_type("run.awaiting_input", run)
    assert (workspace / "notes.txt").read_text().strip() == "hello"

    await app.send_command("run.send_input", run, input_id=f"m1-{unique_name}", text="say: good morning to you\n")
    await app.wait_for(lambda frame: "good morning to you" in app.join_output(run))
    await app.next_of_type("run.awaiting_input", run)
    assert (await shared_relay_network.hub.http.get_run(run))["status"] == "awaiting_input"

    await app.send_command("run.send_input", run, input_id=f"m2-{unique_name}", text="run: echo made > made.txt\n")
    asked = await app.next_of_type("run.permission_requested", run)
    await app.send_command("run.permission.deny", run, request_id=asked["data"]["request_id"])
    await app.next_of_type("run.permission_decided", run)
    await app.next_of_type("run.awaiting_input", run)
    assert not (workspace / "made.txt").exists()
    inputs = [frame["data"]["text_redacted"] for frame in app.list_events(run) if frame["type"] == "run.input"]
    assert len(inputs) == len(set(inputs)) == 3
    assert len(collect_seqs(app, run)) == len(set(collect_seqs(app, run)))


async def test_the_same_message_twice_reaches_an_agent_once(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    workspace = shared_relay_network.hub.home / f"ws-{unique_name}"
    workspace.mkdir()
    app, push = await shared_relay_network.connect_app(), await shared_relay_network.push()
    run = (await push.start_session(workspace)).session_id
    await app.next_of_type("run.started", run)
    for _ in range(3):
        await app.send_command("run.send_input", run, input_id=f"same-{unique_name}", text="say: once only\n")
    await app.next_of_type("run.awaiting_input", run)
    await app.wait_until_processed()
    assert [frame["data"]["text_redacted"] for frame in app.list_events(run) if frame["type"] == "run.input"] == [
        "say: once only"
    ]


async def test_a_run_on_another_host_is_seen_and_decided_by_a_push_client_at_the_hub(relay_network: RelayNetwork) -> None:
    hub = await relay_network.open_hub()
    host = await relay_network.start_host("a")
    await relay_network.wait_online(host.host_id)
    app, push = await relay_network.connect_app(), await relay_network.push()
    run = await app.start(host.host_id, ASKING, cwd=str(host.workspace))
    await app.next_of_type("run.permission_requested", run)
    assert (await hub.http.get_run(run))["status"] == "awaiting_approval"
    answer = await push.decide(await push_question(push, run))
    assert answer.ok, answer
    decided = await app.next_of_type("run.permission_decided", run)
    assert (decided["data"]["decision"], decided["data"]["by"]) == ("approve", "host_a")
    assert decided["data"]["claims"]["by"] == "owner", "the host knows that from the hub, and the hub has only its word"
    await app.next_of_type("run.exited", run)
    assert "got y" in app.join_output(run)
    assert (await hub.http.get_run(run))["status"] == "exited"
    assert app.list_events(run)[-1]["data"] == {"exit_code": 0}


async def test_apps_race_for_a_question_of_another_host_and_one_wins(relay_network: RelayNetwork) -> None:
    await relay_network.open_hub()
    host = await relay_network.start_host("a")
    await relay_network.wait_online(host.host_id)
    apps = [await relay_network.connect_app() for _ in range(3)]
    asker = await relay_network.connect_app()
    run = await asker.start(host.host_id, "cat", cwd=str(host.workspace))
    await asker.next_of_type("run.ready", run)
    for number in range(10):
        request_id = f"w{number}"
        await asker.send_command("rpc.fs.write", run, request_id=request_id, path="raced.txt", content=str(number))
        for app in apps:
            await app.wait_for(lambda frame, wanted=request_id: make_approval_frame(frame, wanted))
        await asyncio.gather(*(decide(app, run, request_id) for app in apps))
        assert (await asker.wait_for_answer(request_id))["ok"]
        assert (host.workspace / "raced.txt").read_text() == str(number)
        await asker.wait_for(lambda frame, wanted=request_id: make_decision_frame(frame, wanted))

        async def complaints(wanted: str = request_id) -> list[list[str]]:
            for app in apps:
                await app.wait_until_processed()
            told = [[frame["data"] for frame in app.frames if frame["type"] == "run.error"] for app in apps]
            return [[error["error"] for error in errors if error.get("request_id") == wanted] for errors in told]

        async def both_losers_know() -> bool:
            return sum(map(bool, await complaints())) >= 2

        await wait_until(both_losers_know)
        assert sorted(await complaints()) == [[], ["already decided"], ["already decided"]]
    decisions = [frame["data"]["request_id"] for frame in asker.list_events(run) if frame["type"] == "run.permission_decided"]
    assert decisions == [f"w{number}" for number in range(10)]


async def test_files_of_another_host_are_read_and_written_through_the_hub(relay_network: RelayNetwork) -> None:
    await relay_network.open_hub()
    host = await relay_network.start_host("a")
    await relay_network.wait_online(host.host_id)
    app, other = await relay_network.connect_app(), await relay_network.connect_app()
    run = await app.start(host.host_id, "cat", cwd=str(host.workspace))
    await app.next_of_type("run.ready", run)
    contents = "password=hunter2-and-more\n" + "x" * 20_000 + "\nthe end\n"
    (host.workspace / "secret.txt").write_text(contents)
    read = await app.call("rpc.fs.read", run, path="secret.txt")
    assert read == {"path": "secret.txt", "content": contents, "truncated": False}
    listed = await app.call("rpc.fs.list", run)
    assert [entry["name"] for entry in listed["entries"]] == ["secret.txt"]
    for path, problem in (("/etc/passwd", "path must be relative"), ("../x", "path contains ..")):
        assert (await app.request("rpc.fs.read", run, path=path))["error"] == problem
    (host.workspace / "out").symlink_to("/etc")
    assert (await app.request("rpc.fs.read", run, path="out/passwd"))["error"] == "path escapes run cwd"
    info = await app.call("rpc.host.info", host_id=host.host_id)
    assert info["host_id"] == host.host_id
    stopped = await app.call("rpc.run.stop", run)
    assert stopped == {"signal": "term"}
    await app.next_of_type("run.exited", run)
    await other.next_of_type("run.exited", run)
    # The others see that it was read, and how it begins without its secrets.
    results = [frame["data"] for frame in other.frames if frame["type"] == "tool.result"]
    assert [result["ok"] for result in results[:2]] == [True, True]
    for secret in ("hunter2-and-more", "the end"):
        assert secret not in str(other.frames)
        assert secret not in str(await relay_network.hub.http.list_messages(run))
    assert not [frame for frame in other.frames if frame["type"] == "rpc.response"]
