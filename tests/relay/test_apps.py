"""Apps at a real hub: what they are sent, what they ask and decide, and who may be one."""

import asyncio
from typing import Any

import pytest
from tests.relay.stage import PATIENCE, Place, Stage, eventually, python

from switchtower.testing.minicodex_client import MiniCodexClient
from switchtower.testing.push_client import PushClient
from switchtower.testing.relay_client import Frame, RelayApp, RelayHost, RelayHttp, upgraded
from switchtower.testing.wires import UpgradeRefused

ASKING = "printf 'Proceed? (y/n) '; read answer; echo got $answer"
PASSWORD = "correct horse battery staple"


async def two_runs(stage: Stage, unique: str) -> tuple[RelayHost, str, str]:
    host = await stage.host(unique)
    one, two = f"one_{unique}", f"two_{unique}"
    await host.say(host.started(one), host.started(two))
    await host.acknowledged(one, 1)
    await host.acknowledged(two, 1)
    return host, one, two


async def with_nothing(stage: Stage) -> RelayApp:
    """An app that is sent only what it asks for."""
    app = await stage.app()
    await app.command("run.unsubscribe")
    await app.settled()
    return app


def seqs(app: RelayApp, run_id: str) -> list[int]:
    return [frame["seq"] for frame in app.events(run_id) if "seq" in frame]


async def told(app: RelayApp, run_id: str, seq: int) -> list[int]:
    await app.until(lambda frame: frame.get("run_id") == run_id and frame.get("seq") == seq)
    return seqs(app, run_id)


async def user(hub: Place, name: str) -> str:
    """A user who has logged in; the token."""
    await hub.http.request("POST", "/users", {"name": name, "password": PASSWORD})
    answer = await hub.http.login(name, PASSWORD)
    assert answer.status == 200, answer
    return str(answer.json["access_token"])


# What an app is sent


async def test_everything_is_sent_until_the_first_subscription_and_then_only_that(shared: Stage, unique: str) -> None:
    app = await shared.app()
    host, one, two = await two_runs(shared, unique)
    await host.say(host.output(one, 2), host.output(two, 2))
    assert await told(app, one, 2) == [1, 2]
    assert await told(app, two, 2) == [1, 2]
    await app.subscribe(one)
    await app.next_of("run.screen", one)
    await host.say(host.output(two, 3), host.output(one, 3))
    await host.acknowledged(two, 3)
    assert await told(app, one, 3) == [1, 2, 3]
    await app.settled()
    assert seqs(app, two) == [1, 2]


async def test_a_second_subscription_adds_and_one_that_replaces_does_not(shared: Stage, unique: str) -> None:
    app = await with_nothing(shared)
    host, one, two = await two_runs(shared, unique)
    await app.subscribe(one, after_id=0)
    await app.subscribe(two, after_id=0)
    assert await told(app, one, 1) == [1]
    assert await told(app, two, 1) == [1]
    await app.subscribe(two, replace=True, after_id=app.events(two)[-1]["id"])
    await app.settled()
    await host.say(host.output(one, 2))
    await host.acknowledged(one, 2)
    await host.say(host.output(two, 2))
    assert await told(app, two, 2) == [1, 2]
    assert seqs(app, one) == [1]


async def test_who_unsubscribes_is_sent_no_more_of_it_and_without_a_run_nothing_at_all(shared: Stage, unique: str) -> None:
    app, silent = await with_nothing(shared), await with_nothing(shared)
    host, one, two = await two_runs(shared, unique)
    await app.subscribe(one, after_id=0)
    await app.subscribe(two, after_id=0)
    await app.command("run.unsubscribe", one)
    await app.settled()
    before = len(silent.frames)
    await host.say(host.output(one, 2))
    await host.acknowledged(one, 2)
    await host.say(host.output(two, 2))
    assert await told(app, two, 2) == [1, 2]
    assert seqs(app, one) in ([], [1])
    await silent.settled()
    assert [frame["type"] for frame in silent.frames[before:]] == ["run.error"]


async def test_who_wants_no_output_is_sent_all_but_output(shared: Stage, unique: str) -> None:
    app = await with_nothing(shared)
    host, one, _ = await two_runs(shared, unique)
    await app.subscribe(one, include_output=False, after_id=0)
    await host.say(host.output(one, 2), host.question(one, 3, f"q-{unique}"), host.output(one, 4))
    await host.say(host.event("run.exited", one, 5, {"exit_code": 0}))
    assert await told(app, one, 5) == [1, 3, 5]
    history = await shared.hub.http.messages(one, include_output=False)
    assert [message["seq"] for message in history] == [1, 3, 5]


@pytest.mark.parametrize("page", [1, 7, 500])
async def test_who_has_some_is_sent_exactly_the_rest(shared: Stage, unique: str, page: int) -> None:
    host, one, _ = await two_runs(shared, unique)
    await host.say(*(host.output(one, seq) for seq in range(2, 60)))
    await host.acknowledged(one, 59)
    history = await shared.hub.http.messages(one, page=page)
    assert [message["seq"] for message in history] == list(range(1, 60))
    for have in (0, 1, 30, 57):
        app = await with_nothing(shared)
        await app.subscribe(one, after_id=history[have]["id"])
        assert await told(app, one, 59) == list(range(have + 2, 60))
        # Once more from where it is now: nothing comes twice.
        await app.subscribe(one, after_id=app.events(one)[-1]["id"])
        await app.settled()
        assert seqs(app, one) == list(range(have + 2, 60))


async def test_a_place_beyond_the_end_is_no_place_to_wait_for(shared: Stage, unique: str) -> None:
    app = await shared.app()
    host, one, _ = await two_runs(shared, unique)
    await app.subscribe(one, after_id=2**50)
    await app.settled()
    await host.say(host.output(one, 2))
    await host.acknowledged(one, 2)
    assert (await told(app, one, 2))[-1] == 2


async def test_who_subscribes_to_what_is_not_there_is_told_so_and_keeps_what_it_had(shared: Stage, unique: str) -> None:
    app = await shared.app()
    host, one, _ = await two_runs(shared, unique)
    await app.subscribe(f"none-{unique}")
    error = await app.next_of("run.error", f"none-{unique}")
    assert error["data"] == {"command": "run.subscribe", "error": "unknown run_id"}
    await host.say(host.output(one, 2))
    assert (await told(app, one, 2))[-1] == 2


async def test_who_comes_late_sees_the_screen_and_then_what_follows_without_hole_or_repeat(shared: Stage, unique: str) -> None:
    """In one run after the other joiner's first sight and all that it is told after it give what the journal has."""
    first = await shared.app()
    counting = python("import time\nfor n in range(250):\n print('line', n)\n time.sleep(0.004)")
    run = await first.start("hub", counting, cwd=str(shared.hub.home))
    joiners: list[tuple[RelayApp, Frame]] = []
    for number in range(8):
        await first.until(lambda frame, number=number: f"line {20 * number}\r\n" in first.output(run))
        late = await shared.app()
        await late.subscribe(run)
        joiners.append((late, await late.next_of("run.screen", run)))
    await first.next_of("run.exited", run)
    journal = [frame for frame in await shared.hub.http.messages(run) if frame["kind"] != "run.screen"]
    for late, screen in joiners:
        await late.next_of("run.exited", run)
        place = screen["data"]["id"]
        tail = [frame for frame in late.events(run) if frame["type"] != "run.screen"]
        assert [(frame["id"], frame["data"]) for frame in tail] == [
            (message["id"], message["data"]) for message in journal if message["id"] > place
        ]
        before = "".join(message["text"] for message in journal if message["id"] <= place and message["kind"] == "run.output")
        columns, rows = screen["data"]["cols"], screen["data"]["rows"]
        assert painted(screen["data"]["text"], columns, rows) == painted(before, columns, rows)


def painted(text: str, columns: int, rows: int) -> list[str]:
    import pyte

    screen = pyte.Screen(columns, rows)
    pyte.Stream(screen).feed(text)
    return [line.rstrip() for line in screen.display]


async def test_a_slow_app_loses_nothing_holds_nobody_up_and_costs_the_hub_little(stage: Stage) -> None:
    await stage.open_hub()
    slow, quick, host = await stage.app(patience=90), await stage.app(patience=90), await stage.host("h", patience=90)
    count, text = 30_000, "x" * 1_000
    before_mb = stage.hub.resident_mb()

    async def tell() -> None:
        await host.say(host.started("run"))
        for start in range(2, count + 1, 500):
            await host.say(*(host.output("run", seq, text) for seq in range(start, min(start + 500, count + 1))))

    telling = asyncio.ensure_future(tell())
    assert await told(quick, "run", count) == list(range(1, count + 1))
    await telling
    assert stage.hub.resident_mb() - before_mb < 150
    assert not slow.frames
    assert await told(slow, "run", count) == list(range(1, count + 1))
    assert stage.hub.resident_mb() - before_mb < 150


# What apps decide


async def test_two_apps_race_for_one_approval_and_one_wins_every_time(shared: Stage, unique: str) -> None:
    tokens = {name: await user(shared.hub, name) for name in (f"ann{unique}", f"bob{unique}")}
    ann, bob = [await RelayApp.open(shared.hub.url, token) for token in tokens.values()]
    asker = await shared.app()
    run = await asker.start("hub", "cat", cwd=str(shared.hub.home / "run"))
    await asker.next_of("run.ready", run)
    winners: list[str] = []
    async with ann, bob:
        for number in range(100):
            request_id = f"w{number}-{unique}"
            await asker.command("rpc.fs.write", run, request_id=request_id, path="raced.txt", content=str(number))
            for app in (ann, bob):
                await app.until(lambda frame, wanted=request_id: asks(frame, wanted))
            await asyncio.gather(*(decide(app, run, request_id) for app in (ann, bob)))
            assert (await asker.answer(request_id))["ok"]
            decision = await asker.until(lambda frame, wanted=request_id: decides(frame, wanted))
            told_both = [await complaint(app, request_id) for app in (ann, bob)]
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


def asks(frame: Frame, request_id: str) -> bool:
    return frame["type"] == "run.permission_requested" and frame["data"]["request_id"] == request_id


def decides(frame: Frame, request_id: str) -> bool:
    return frame["type"] == "run.permission_decided" and frame["data"]["request_id"] == request_id


async def decide(app: RelayApp, run: str, request_id: str) -> None:
    await app.command("run.permission.approve", run, request_id=request_id)


async def complaint(app: RelayApp, request_id: str) -> str | None:
    """What it was told was wrong with its decision, if anything was: by now that is known."""
    await app.settled()
    errors = [frame["data"] for frame in app.frames if frame["type"] == "run.error"]
    return next((error["error"] for error in errors if error.get("request_id") == request_id), None)


async def test_approving_twice_types_the_answer_once(shared: Stage, unique: str) -> None:
    app, other = await shared.app(), await shared.app()
    run = await app.start("hub", ASKING, cwd=str(shared.hub.home))
    asked = await app.next_of("run.permission_requested", run)
    request_id = asked["data"]["request_id"]
    await asyncio.gather(*(decide(each, run, request_id) for each in (app, other) for _ in range(3)))
    await app.next_of("run.exited", run)
    inputs = [frame for frame in app.events(run) if frame["type"] == "run.input"]
    assert [frame["data"]["input_id"] for frame in inputs] == [request_id]
    assert "got y" in app.output(run)


async def test_a_denied_question_is_answered_no(shared: Stage) -> None:
    app = await shared.app()
    run = await app.start("hub", ASKING, cwd=str(shared.hub.home))
    asked = await app.next_of("run.permission_requested", run)
    assert (await shared.hub.http.run(run))["status"] == "awaiting_approval"
    await app.command("run.permission.deny", run, request_id=asked["data"]["request_id"])
    await app.next_of("run.exited", run)
    assert "got n" in app.output(run)


async def push_question(client: PushClient, session_id: str) -> Any:
    await client.attach(session_id)
    while True:
        event = await client.event()
        if event.session_id == session_id and event.type == "approval_required":
            return event


async def test_a_push_client_sees_a_relay_run_and_decides_its_question(shared: Stage) -> None:
    app, push = await shared.app(), await shared.push()
    run = await app.start("hub", ASKING, cwd=str(shared.hub.home))
    await app.next_of("run.permission_requested", run)
    answer = await push.decide(await push_question(push, run))
    assert answer.ok, answer
    decided = await app.next_of("run.permission_decided", run)
    assert (decided["data"]["decision"], decided["data"]["by"]) == ("approve", "owner")
    await app.next_of("run.exited", run)
    assert "got y" in app.output(run)
    await push.until("run_complete")


async def test_an_app_approves_what_an_agent_wants_to_do_and_sends_it_messages(shared: Stage, unique: str) -> None:
    workspace = shared.hub.home / f"ws-{unique}"
    workspace.mkdir()
    app, push = await shared.app(), await shared.push()
    session = await push.start_session(workspace)
    await push.send(session.session_id, "write notes.txt: hello")
    run = session.session_id
    asked = await app.next_of("run.permission_requested", run)
    assert not (workspace / "notes.txt").exists()
    assert (await shared.hub.http.run(run))["pending_request_id"] == asked["data"]["request_id"]
    await app.command("run.permission.approve", run, request_id=asked["data"]["request_id"])
    await app.next_of("run.permission_decided", run)
    await app.next_of("run.awaiting_input", run)
    assert (workspace / "notes.txt").read_text().strip() == "hello"

    await app.command("run.send_input", run, input_id=f"m1-{unique}", text="say: good morning to you\n")
    await app.until(lambda frame: "good morning to you" in app.output(run))
    await app.next_of("run.awaiting_input", run)
    assert (await shared.hub.http.run(run))["status"] == "awaiting_input"

    await app.command("run.send_input", run, input_id=f"m2-{unique}", text="run: echo made > made.txt\n")
    asked = await app.next_of("run.permission_requested", run)
    await app.command("run.permission.deny", run, request_id=asked["data"]["request_id"])
    await app.next_of("run.permission_decided", run)
    await app.next_of("run.awaiting_input", run)
    assert not (workspace / "made.txt").exists()
    inputs = [frame["data"]["text_redacted"] for frame in app.events(run) if frame["type"] == "run.input"]
    assert len(inputs) == len(set(inputs)) == 3
    assert len(seqs(app, run)) == len(set(seqs(app, run)))


async def test_the_same_message_twice_reaches_an_agent_once(shared: Stage, unique: str) -> None:
    workspace = shared.hub.home / f"ws-{unique}"
    workspace.mkdir()
    app, push = await shared.app(), await shared.push()
    run = (await push.start_session(workspace)).session_id
    await app.next_of("run.started", run)
    for _ in range(3):
        await app.command("run.send_input", run, input_id=f"same-{unique}", text="say: once only\n")
    await app.next_of("run.awaiting_input", run)
    await app.settled()
    assert [frame["data"]["text_redacted"] for frame in app.events(run) if frame["type"] == "run.input"] == ["say: once only"]


async def test_a_run_on_another_host_is_seen_and_decided_by_a_push_client_at_the_hub(stage: Stage) -> None:
    hub = await stage.open_hub()
    host = await stage.real_host("a")
    await stage.online(host.host_id)
    app, push = await stage.app(), await stage.push()
    run = await app.start(host.host_id, ASKING, cwd=str(host.workspace))
    await app.next_of("run.permission_requested", run)
    assert (await hub.http.run(run))["status"] == "awaiting_approval"
    answer = await push.decide(await push_question(push, run))
    assert answer.ok, answer
    decided = await app.next_of("run.permission_decided", run)
    assert (decided["data"]["decision"], decided["data"]["by"]) == ("approve", "owner")
    await app.next_of("run.exited", run)
    assert "got y" in app.output(run)
    assert (await hub.http.run(run))["status"] == "exited"
    assert app.events(run)[-1]["data"] == {"exit_code": 0}


async def test_apps_race_for_a_question_of_another_host_and_one_wins(stage: Stage) -> None:
    await stage.open_hub()
    host = await stage.real_host("a")
    await stage.online(host.host_id)
    apps = [await stage.app() for _ in range(3)]
    asker = await stage.app()
    run = await asker.start(host.host_id, "cat", cwd=str(host.workspace))
    await asker.next_of("run.ready", run)
    for number in range(10):
        request_id = f"w{number}"
        await asker.command("rpc.fs.write", run, request_id=request_id, path="raced.txt", content=str(number))
        for app in apps:
            await app.until(lambda frame, wanted=request_id: asks(frame, wanted))
        await asyncio.gather(*(decide(app, run, request_id) for app in apps))
        assert (await asker.answer(request_id))["ok"]
        assert (host.workspace / "raced.txt").read_text() == str(number)
        await asker.until(lambda frame, wanted=request_id: decides(frame, wanted))

        async def complaints(wanted: str = request_id) -> list[list[str]]:
            for app in apps:
                await app.settled()
            told = [[frame["data"] for frame in app.frames if frame["type"] == "run.error"] for app in apps]
            return [[error["error"] for error in errors if error.get("request_id") == wanted] for errors in told]

        async def both_losers_know() -> bool:
            return sum(map(bool, await complaints())) >= 2

        await eventually(both_losers_know)
        assert sorted(await complaints()) == [[], ["already decided"], ["already decided"]]
    decisions = [frame["data"]["request_id"] for frame in asker.events(run) if frame["type"] == "run.permission_decided"]
    assert decisions == [f"w{number}" for number in range(10)]


async def test_files_of_another_host_are_read_and_written_through_the_hub(stage: Stage) -> None:
    await stage.open_hub()
    host = await stage.real_host("a")
    await stage.online(host.host_id)
    app, other = await stage.app(), await stage.app()
    run = await app.start(host.host_id, "cat", cwd=str(host.workspace))
    await app.next_of("run.ready", run)
    contents = "password=hunter2-and-more\n" + "x" * 20_000 + "\nthe end\n"
    (host.workspace / "secret.txt").write_text(contents)
    read = await app.call("rpc.fs.read", run, path="secret.txt")
    assert read == {"path": "secret.txt", "content": contents, "truncated": False}
    listed = await app.call("rpc.fs.list", run)
    assert [entry["name"] for entry in listed["entries"]] == ["secret.txt"]
    for path, problem in (("/etc/passwd", "path must be relative"), ("../x", "path contains ..")):
        assert (await app.ask("rpc.fs.read", run, path=path))["error"] == problem
    (host.workspace / "out").symlink_to("/etc")
    assert (await app.ask("rpc.fs.read", run, path="out/passwd"))["error"] == "path escapes run cwd"
    info = await app.call("rpc.host.info", host_id=host.host_id)
    assert info["host_id"] == host.host_id
    stopped = await app.call("rpc.run.stop", run)
    assert stopped == {"signal": "term"}
    await app.next_of("run.exited", run)
    await other.next_of("run.exited", run)
    # The others see that it was read, and how it begins without its secrets.
    results = [frame["data"] for frame in other.frames if frame["type"] == "tool.result"]
    assert [result["ok"] for result in results[:2]] == [True, True]
    for secret in ("hunter2-and-more", "the end"):
        assert secret not in str(other.frames)
        assert secret not in str(await stage.hub.http.messages(run))
    assert not [frame for frame in other.frames if frame["type"] == "rpc.response"]


# Who may be an app


async def opens(url: str, path: str, token: str | None, headers: dict[str, str] | None = None) -> int:
    try:
        wire = await upgraded(url, path, {} if token is None else {"token": token}, headers)
    except UpgradeRefused as refusal:
        return refusal.status
    wire.abort()
    return 101


async def test_a_users_token_opens_every_door_until_the_user_logs_out(shared: Stage, unique: str) -> None:
    token = await user(shared.hub, f"ann{unique}")
    url = shared.hub.url
    for path in ("/ws/app", "/ws/push", "/ws/minicodex"):
        assert await opens(url, path, token) == 101, path
        assert await opens(url, path, None) == 401, path
        assert await opens(url, path, token + "x") == 401, path
    async with await PushClient.over_websocket(url, token) as push, await MiniCodexClient.open(url, token) as minicodex:
        await push.hello()
        await minicodex.hello()
    http = RelayHttp(url, token)
    assert (await http.get("/auth/me"))["name"] == f"ann{unique}"
    assert (await http.request("POST", "/auth/logout")).status == 204
    for path in ("/ws/app", "/ws/push", "/ws/minicodex"):
        assert await opens(url, path, token) == 401, path
    assert (await http.request("GET", "/runs")).status == 401


async def test_removing_a_user_or_a_token_closes_the_door(shared: Stage, unique: str) -> None:
    name = f"bob{unique}"
    first, hub = await user(shared.hub, name), shared.hub
    second = str((await hub.http.login(name, PASSWORD)).json["access_token"])
    token_id = (await RelayHttp(hub.url, first).get("/auth/me"))["token_id"]
    assert (await hub.http.request("DELETE", f"/tokens/{token_id}")).status == 204
    assert await opens(hub.url, "/ws/app", first) == 401
    assert await opens(hub.url, "/ws/app", second) == 101
    assert (await hub.http.request("DELETE", f"/users/{name}")).status == 204
    assert await opens(hub.url, "/ws/app", second) == 401
    assert (await hub.http.login(name, PASSWORD)).status == 401


async def test_users_tokens_outlive_the_hub(stage: Stage) -> None:
    hub = await stage.open_hub()
    kept, revoked = await user(hub, "ann"), await user(hub, "bob")
    assert (await RelayHttp(hub.url, revoked).request("POST", "/auth/logout")).status == 204
    await hub.restart()
    assert await opens(hub.url, "/ws/app", kept) == 101
    assert await opens(hub.url, "/ws/app", revoked) == 401


async def test_pages_of_another_site_stay_outside(shared: Stage) -> None:
    url, token = shared.hub.url, shared.hub.token
    for path in ("/ws/app", "/ws/push", "/ws/minicodex"):
        assert await opens(url, path, token, {"Origin": "https://evil.example"}) == 403, path
        assert await opens(url, path, token, {"Origin": "null"}) == 403, path
        assert await opens(url, path, token, {"Origin": url}) == 101, path
        assert await opens(url, path, token, {"Host": "evil.example"}) == 403, path
    evil = await shared.hub.http.request("GET", "/runs", headers={"Origin": "https://evil.example"})
    assert evil.status == 403
    assert "access-control-allow-origin" not in evil.headers


async def test_no_token_and_no_password_is_ever_in_a_log(stage: Stage) -> None:
    hub = await stage.open_hub()
    host = await stage.real_host("a")
    await stage.online(host.host_id)
    token = await user(hub, "ann")
    secrets = [token, hub.token, host.token, PASSWORD, "wrong-token-0123456789", "wrong password 1234", "typed-secret-9876"]
    identity = (host.home / "data" / "host.json").read_text()
    secrets.append(identity.partition('"host_token":"')[2].partition('"')[0])
    assert len(secrets[-1]) > 20
    for path in ("/ws/app", "/ws/push", "/ws/minicodex", "/ws/host", "/nowhere", "/runs"):
        for secret in (token, "wrong-token-0123456789"):
            await opens(hub.url, path, secret)
            await hub.http.request("GET", f"{path}?token={secret}&host_token={secret}")
    assert (await hub.http.login("ann", "wrong password 1234")).status == 401
    with pytest.raises(UpgradeRefused):
        await stage.host(host.host_id, "wrong-token-0123456789")
    app = await RelayApp.open(hub.url, token)
    async with app:
        run = await app.start(host.host_id, "read -s password; echo done", cwd=str(host.workspace))
        await app.next_of("run.ready", run)
        await app.command("run.send_input", run, input_id="secret-input", text="typed-secret-9876\n")
        await app.next_of("run.exited", run)
    assert await host.stop() == 0
    assert await hub.stop() == 0
    for tower in (hub, host):
        logs = tower.all_logs()
        assert logs
        for secret in secrets:
            assert secret not in logs, tower.name


async def test_too_much_waiting_is_refused_and_the_app_goes_on(shared: Stage, unique: str) -> None:
    app, host = await shared.app(patience=PATIENCE), await shared.host(unique)
    run = f"run_{unique}"
    await host.say(host.started(run))
    await app.next_of("run.started", run)
    for number in range(200):
        await app.command("rpc.fs.read", run, request_id=f"r{number}-{unique}", path="a")
    answers = [await app.answer(f"r{number}-{unique}") for number in range(64, 200)]
    assert {answer["error"] for answer in answers} == {"too many calls at once"}
    for _ in range(64):
        await host.respond(await host.next_of("rpc.fs.read", run), result={})
    assert all([(await app.answer(f"r{number}-{unique}"))["ok"] for number in range(64)])
