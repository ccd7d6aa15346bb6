"""What is asked of a host: its answer goes to who asked and to nobody else, and one that has gone is no riddle."""

from typing import Any

from tests.relay.seen import read_up_to
from tests.relay.stage import RelayNetwork, wait_until


async def test_an_answer_goes_only_to_who_asked(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    asker, other, host, run = (
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_host(unique_name),
        f"run_{unique_name}",
    )
    await host.send_frames(host.make_started(run))
    await host.wait_for_ack(run, 1)
    await asker.send_command("rpc.fs.read", run, request_id=unique_name, path="secret.txt")
    asked = await host.next_of_type("rpc.fs.read", run)
    assert asked["data"]["path"] == "secret.txt"
    await host.respond(asked, result={"path": "secret.txt", "content": f"contents-{unique_name}", "truncated": False})
    answer = await asker.wait_for_answer(unique_name)
    assert answer["result"]["content"] == f"contents-{unique_name}"
    await host.send_frames(host.make_output(run, 2))
    await read_up_to(other, run, 2)
    assert f"contents-{unique_name}" not in str(other.frames)
    assert f"contents-{unique_name}" not in str(await shared_relay_network.hub.http.list_messages(run))


async def test_an_answer_that_is_numbered_goes_only_to_who_asked_too(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    asker, other, host, run = (
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_host(unique_name),
        f"run_{unique_name}",
    )
    await host.send_frames(host.make_started(run))
    await asker.next_of_type("run.started", run)
    await asker.send_command("rpc.fs.read", run, request_id=unique_name, path="secret.txt")
    await host.next_of_type("rpc.fs.read", run)
    data = {"request_id": unique_name, "ok": True, "rpc_type": "rpc.fs.read", "result": {"content": f"contents-{unique_name}"}}
    await host.send_frames(host.make_event("rpc.response", run, 2, data), host.make_output(run, 3))
    assert (await asker.wait_for_answer(unique_name))["ok"]
    await host.wait_for_ack(run, 3)
    await read_up_to(other, run, 3)
    assert f"contents-{unique_name}" not in str(other.frames)
    assert f"contents-{unique_name}" not in str(await shared_relay_network.hub.http.list_messages(run))


async def test_another_host_cannot_answer_what_was_asked_of_this_one(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    app, run = await shared_relay_network.connect_app(), f"run_{unique_name}"
    host, forger = (
        await shared_relay_network.connect_host(f"a-{unique_name}"),
        await shared_relay_network.connect_host(f"b-{unique_name}"),
    )
    await host.send_frames(host.make_started(run))
    await app.next_of_type("run.started", run)
    await app.send_command("rpc.fs.read", run, request_id=unique_name, path="a")
    asked = await host.next_of_type("rpc.fs.read", run)
    await forger.respond(asked, result={"content": "forged"})
    await forger.wait_until_read()
    await host.respond(asked, result={"content": "true"})
    assert (await app.wait_for_answer(unique_name))["result"] == {"content": "true"}


async def test_who_waits_for_an_answer_is_told_at_once_that_the_host_has_gone(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    app, host, run = (
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_host(unique_name),
        f"run_{unique_name}",
    )
    await host.send_frames(host.make_started(run))
    await app.next_of_type("run.started", run)
    for type_, data in (("rpc.fs.read", {"path": "a"}), ("rpc.bash", {"cmd": "true"}), ("rpc.git.status", {})):
        await app.send_command(type_, run, request_id=f"{type_}-{unique_name}", **data)
        await host.next_of_type(type_, run)
    host.wire.abort()
    for type_ in ("rpc.fs.read", "rpc.bash", "rpc.git.status"):
        answer = await app.wait_for_answer(f"{type_}-{unique_name}")
        assert (answer["ok"], answer["error"]) == (False, "host disconnected before it answered")


async def test_what_is_asked_of_an_offline_host_is_refused_at_once(shared_relay_network: RelayNetwork, unique_name: str) -> None:
    app, host, run = (
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_host(unique_name),
        f"run_{unique_name}",
    )
    await host.send_frames(host.make_started(run))
    await app.next_of_type("run.started", run)
    host.wire.abort()

    async def is_offline() -> bool:
        return not (await shared_relay_network.hub.http.list_hosts())[unique_name]["online"]

    await wait_until(is_offline)
    commands: dict[str, dict[str, Any]] = {
        "run.send_input": {"input_id": "i1", "text": "x"},
        "run.send_stdin": {"text": "x"},
        "run.stop": {},
        "run.resize": {"cols": 80, "rows": 24},
        "run.permission.approve": {"request_id": "q"},
        "run.permission.deny": {"request_id": "q"},
    }
    for type_, data in commands.items():
        await app.send_command(type_, run, **data)
        error = await app.next_of_type("run.error", run)
        assert (error["data"]["command"], error["data"]["error"]) == (type_, "host offline")
    for type_, data in (("rpc.fs.read", {"path": "a"}), ("rpc.bash", {"cmd": "x"}), ("rpc.runs.list", {}), ("rpc.run.stop", {})):
        assert (await app.request(type_, run, **data))["error"] == "host offline"
    for type_ in ("rpc.host.info", "rpc.host.logs.tail", "rpc.host.capabilities"):
        assert (await app.request(type_, host_id=unique_name))["error"] == "host offline"
    assert (await app.request("rpc.run.start", host_id=unique_name, cmd="true", tool="x"))["error"] == "host offline"
    assert (await app.request("rpc.run.start", host_id=f"none-{unique_name}", cmd="true", tool="x"))["error"] == "unknown host_id"
    answer = await shared_relay_network.hub.http.request("POST", f"/runs/{run}/input", {"input_id": "i2", "text": "x"})
    assert answer.status == 502


async def test_a_refusal_of_the_host_reaches_only_the_app_that_asked(
    shared_relay_network: RelayNetwork, unique_name: str
) -> None:
    asker, other, host, run = (
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_app(),
        await shared_relay_network.connect_host(unique_name),
        f"run_{unique_name}",
    )
    await host.send_frames(host.make_started(run))
    await asker.next_of_type("run.started", run)
    await asker.send_command("run.send_input", run, input_id=unique_name, text="x")
    asked = await host.next_of_type("run.send_input", run)
    problem = {"command": "run.send_input", "error": "run has exited", "input_id": unique_name}
    await host.send_frames({"type": "run.error", "run_id": run, "data": {**problem, "command_id": asked["data"]["command_id"]}})
    assert (await asker.next_of_type("run.error", run))["data"] == problem
    await other.wait_until_processed()
    assert not [frame for frame in other.frames if frame["type"] == "run.error" and frame.get("run_id") == run]
