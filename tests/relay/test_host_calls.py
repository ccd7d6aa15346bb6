"""What is asked of a host: its answer goes to who asked and to nobody else, and one that has gone is no riddle."""

from typing import Any

from tests.relay.seen import told_up_to
from tests.relay.stage import Stage, eventually


async def test_an_answer_goes_only_to_who_asked(shared: Stage, unique: str) -> None:
    asker, other, host, run = await shared.app(), await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say(host.started(run))
    await host.acknowledged(run, 1)
    await asker.command("rpc.fs.read", run, request_id=unique, path="secret.txt")
    asked = await host.next_of("rpc.fs.read", run)
    assert asked["data"]["path"] == "secret.txt"
    await host.respond(asked, result={"path": "secret.txt", "content": f"contents-{unique}", "truncated": False})
    answer = await asker.answer(unique)
    assert answer["result"]["content"] == f"contents-{unique}"
    await host.say(host.output(run, 2))
    await told_up_to(other, run, 2)
    assert f"contents-{unique}" not in str(other.frames)
    assert f"contents-{unique}" not in str(await shared.hub.http.messages(run))


async def test_an_answer_that_is_numbered_goes_only_to_who_asked_too(shared: Stage, unique: str) -> None:
    asker, other, host, run = await shared.app(), await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say(host.started(run))
    await asker.next_of("run.started", run)
    await asker.command("rpc.fs.read", run, request_id=unique, path="secret.txt")
    await host.next_of("rpc.fs.read", run)
    data = {"request_id": unique, "ok": True, "rpc_type": "rpc.fs.read", "result": {"content": f"contents-{unique}"}}
    await host.say(host.event("rpc.response", run, 2, data), host.output(run, 3))
    assert (await asker.answer(unique))["ok"]
    await host.acknowledged(run, 3)
    await told_up_to(other, run, 3)
    assert f"contents-{unique}" not in str(other.frames)
    assert f"contents-{unique}" not in str(await shared.hub.http.messages(run))


async def test_another_host_cannot_answer_what_was_asked_of_this_one(shared: Stage, unique: str) -> None:
    app, run = await shared.app(), f"run_{unique}"
    host, forger = await shared.host(f"a-{unique}"), await shared.host(f"b-{unique}")
    await host.say(host.started(run))
    await app.next_of("run.started", run)
    await app.command("rpc.fs.read", run, request_id=unique, path="a")
    asked = await host.next_of("rpc.fs.read", run)
    await forger.respond(asked, result={"content": "forged"})
    await forger.heard()
    await host.respond(asked, result={"content": "true"})
    assert (await app.answer(unique))["result"] == {"content": "true"}


async def test_who_waits_for_an_answer_is_told_at_once_that_the_host_has_gone(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say(host.started(run))
    await app.next_of("run.started", run)
    for type_, data in (("rpc.fs.read", {"path": "a"}), ("rpc.bash", {"cmd": "true"}), ("rpc.git.status", {})):
        await app.command(type_, run, request_id=f"{type_}-{unique}", **data)
        await host.next_of(type_, run)
    host.wire.abort()
    for type_ in ("rpc.fs.read", "rpc.bash", "rpc.git.status"):
        answer = await app.answer(f"{type_}-{unique}")
        assert (answer["ok"], answer["error"]) == (False, "host disconnected before it answered")


async def test_what_is_asked_of_an_offline_host_is_refused_at_once(shared: Stage, unique: str) -> None:
    app, host, run = await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say(host.started(run))
    await app.next_of("run.started", run)
    host.wire.abort()

    async def is_offline() -> bool:
        return not (await shared.hub.http.hosts())[unique]["online"]

    await eventually(is_offline)
    commands: dict[str, dict[str, Any]] = {
        "run.send_input": {"input_id": "i1", "text": "x"},
        "run.send_stdin": {"text": "x"},
        "run.stop": {},
        "run.resize": {"cols": 80, "rows": 24},
        "run.permission.approve": {"request_id": "q"},
        "run.permission.deny": {"request_id": "q"},
    }
    for type_, data in commands.items():
        await app.command(type_, run, **data)
        error = await app.next_of("run.error", run)
        assert (error["data"]["command"], error["data"]["error"]) == (type_, "host offline")
    for type_, data in (("rpc.fs.read", {"path": "a"}), ("rpc.bash", {"cmd": "x"}), ("rpc.runs.list", {}), ("rpc.run.stop", {})):
        assert (await app.ask(type_, run, **data))["error"] == "host offline"
    for type_ in ("rpc.host.info", "rpc.host.logs.tail", "rpc.host.capabilities"):
        assert (await app.ask(type_, host_id=unique))["error"] == "host offline"
    assert (await app.ask("rpc.run.start", host_id=unique, cmd="true", tool="x"))["error"] == "host offline"
    assert (await app.ask("rpc.run.start", host_id=f"none-{unique}", cmd="true", tool="x"))["error"] == "unknown host_id"
    answer = await shared.hub.http.request("POST", f"/runs/{run}/input", {"input_id": "i2", "text": "x"})
    assert answer.status == 502


async def test_a_refusal_of_the_host_reaches_only_the_app_that_asked(shared: Stage, unique: str) -> None:
    asker, other, host, run = await shared.app(), await shared.app(), await shared.host(unique), f"run_{unique}"
    await host.say(host.started(run))
    await asker.next_of("run.started", run)
    await asker.command("run.send_input", run, input_id=unique, text="x")
    asked = await host.next_of("run.send_input", run)
    problem = {"command": "run.send_input", "error": "run has exited", "input_id": unique}
    await host.say({"type": "run.error", "run_id": run, "data": {**problem, "command_id": asked["data"]["command_id"]}})
    assert (await asker.next_of("run.error", run))["data"] == problem
    await other.settled()
    assert not [frame for frame in other.frames if frame["type"] == "run.error" and frame.get("run_id") == run]
