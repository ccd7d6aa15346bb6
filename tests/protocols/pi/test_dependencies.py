"""What a command may wait for: section 9 of the document."""

import asyncio

import msgspec
from tests.protocols.pi.ensemble import UNLIMITED, DispatcherHarness

from switchtower.protocols.pi.dispatch import ports
from switchtower.protocols.pi.errors import PiCommandError


async def test_a_dependency_that_succeeded_lets_the_command_go_on_at_once() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    await client.ask("list_sessions", id="a")
    await client.ask("get_state", id="b", sessionId="s")
    assert (await client.ask("abort", id="c", sessionId="s", dependsOn=["a", "b", "a"]))["success"]


async def test_unknown_failed_and_own_dependencies_fail_after_the_start() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    ensemble.refuse_handler("bad", "it broke")
    await client.ask("get_state", id="bad", sessionId="s")
    unknown = await client.ask("abort", id="a", sessionId="s", dependsOn=["nobody"])
    failed = await client.ask("abort", id="b", sessionId="s", dependsOn=["bad"])
    itself = await client.ask("abort", id="c", sessionId="s", dependsOn=["nobody", "c"])
    assert [answer["error"] for answer in (unknown, failed, itself)] == [
        "Dependency 'nobody' is unknown",
        "Dependency 'bad' failed: it broke",
        "Command 'c' cannot depend on itself",
    ]
    assert ensemble.began == ["bad"]
    for id_ in "abc":
        assert ensemble.list_phases(id_) == ["command_accepted", "command_started", "command_finished", "response"]


async def test_a_command_may_not_depend_on_itself_by_another_name() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    block = ensemble.stall_handler("block")
    client.send("abort", id="block", sessionId="s")
    client.send("compact", id="a", idempotencyKey="k", sessionId="s", dependsOn=["b"])
    client.send("compact", id="b", idempotencyKey="k", sessionId="s", dependsOn=["b"])
    block.set_result(ports.HandlerResult())
    assert (await ensemble.wait_finished("a"))["error"] == "Command 'b' cannot depend on itself"


async def test_anonymous_commands_cannot_be_depended_on() -> None:
    ensemble = DispatcherHarness(now_ms=5)
    client = ensemble.make_client()
    await client.ask("list_sessions")
    assert (await client.ask("list_sessions", id="a", dependsOn=["anon:5:1"]))["error"] == "Dependency 'anon:5:1' is unknown"


async def test_a_dependency_in_another_lane_is_awaited_in_its_success_and_in_its_failure() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    good, bad = ensemble.stall_handler("good"), ensemble.stall_handler("bad")
    client.send("create_session", id="good", sessionId="x")
    client.send("create_session", id="bad", sessionId="y")
    client.send("abort", id="a", sessionId="s", dependsOn=["good"])
    client.send("abort", id="b", sessionId="t", dependsOn=["good", "bad"])
    assert ensemble.list_phases("a") == ["command_accepted", "command_started"]
    bad.set_exception(PiCommandError("no room"))
    assert (await ensemble.wait_finished("b"))["error"] == "Dependency 'bad' failed: no room"
    good.set_result(ports.HandlerResult())
    assert (await ensemble.wait_finished("a"))["success"]
    assert ensemble.began == ["good", "bad", "a"]


async def test_a_dependency_queued_in_the_same_lane_fails_fast() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    block = ensemble.stall_handler("block")
    client.send("abort", id="block", sessionId="s")
    client.send("compact", id="early", sessionId="s", dependsOn=["late"])
    client.send("compact", id="late", sessionId="s")
    block.set_result(ports.HandlerResult())
    error = "Dependency 'late' is queued in the same lane and cannot be awaited from this command"
    assert (await ensemble.wait_finished("early"))["error"] == error
    assert (await ensemble.wait_finished("late"))["success"]


async def test_a_running_dependency_of_the_same_lane_is_awaited_and_reads_pass_meanwhile() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    run = ensemble.finish_handler("p")
    client.send("prompt", id="p", sessionId="s", message="m")
    client.send("compact", id="then", sessionId="s", dependsOn=["p"])
    assert (await client.ask("get_state", sessionId="s"))["success"]
    assert ensemble.list_phases("then") == ["command_accepted", "command_started"]
    run.set_result(ports.HandlerResult())
    assert (await ensemble.wait_finished("then"))["sessionVersion"] == 2


async def test_waiting_for_a_dependency_ends_with_its_timeout_and_the_lane_goes_on() -> None:
    ensemble = DispatcherHarness(msgspec.structs.replace(UNLIMITED, dependency_timeout_s=0.02))
    client = ensemble.make_client()
    never = ensemble.finish_handler("never")
    client.send("prompt", id="never", sessionId="s", message="m")
    client.send("compact", id="a", sessionId="s", dependsOn=["never"])
    client.send("compact", id="b", sessionId="s")
    finished = await ensemble.wait_finished("a")
    assert finished["error"] == "Dependency 'never' timed out after 20ms"
    assert (await ensemble.wait_finished("b"))["success"]
    never.set_exception(PiCommandError("and then it failed"))
    await ensemble.wait_finished("never")
    assert (await client.ask("compact", id="a", sessionId="s", dependsOn=["never"]))["error"] == finished["error"]
    assert ensemble.began == ["never", "b"]


async def test_a_circle_over_two_lanes_ends_with_the_timeout() -> None:
    ensemble = DispatcherHarness(msgspec.structs.replace(UNLIMITED, dependency_timeout_s=0.02))
    ensemble.ledger.versions["t"] = 0
    client = ensemble.make_client()
    blocks = [ensemble.stall_handler("x"), ensemble.stall_handler("y")]
    client.send("abort", id="x", sessionId="s")
    client.send("abort", id="y", sessionId="t")
    client.send("compact", id="a", sessionId="s", dependsOn=["b"])
    client.send("compact", id="b", sessionId="t", dependsOn=["a"])
    for block in blocks:
        block.set_result(ports.HandlerResult())
    errors = [(await ensemble.wait_finished(id_))["error"] for id_ in ("a", "b")]
    assert errors[0].startswith("Dependency 'b'")
    assert errors[1].startswith("Dependency 'a'")
    assert any(error.endswith("timed out after 20ms") for error in errors)
    assert not {"a", "b"} & set(ensemble.began)
    assert (await client.ask("abort", sessionId="s"))["success"]


async def test_long_chains_of_dependencies_succeed_and_fail_without_exhausting_anything() -> None:
    for fails in (False, True):
        ensemble = DispatcherHarness()
        client = ensemble.make_client()
        root = ensemble.stall_handler("c0")
        client.send("get_state", id="c0", sessionId="s0")
        for number in range(1, 3_000):
            client.send("get_state", id=f"c{number}", sessionId=f"s{number}", dependsOn=[f"c{number - 1}"])
        if fails:
            root.set_exception(PiCommandError("no"))
        else:
            root.set_result(ports.HandlerResult())
        last = await ensemble.wait_finished("c2999")
        assert last["success"] is not fails
        await ensemble.wait_until(lambda client=client: len(client.responses) == 3_000)


async def test_a_crowd_that_waits_for_one_command_is_served() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    root = ensemble.finish_handler("root")
    client.send("prompt", id="root", sessionId="s", message="m")
    for number in range(3_000):
        client.send("get_state", id=f"c{number}", sessionId="s", dependsOn=["root"])
    await asyncio.sleep(0)
    assert client.responses == []
    root.set_result(ports.HandlerResult())
    await ensemble.wait_until(lambda: len(client.responses) == 3_001)
    assert ensemble.began == ["root", *(f"c{number}" for number in range(3_000))]
