"""What a command may wait for: section 9 of the document."""

import asyncio

import msgspec
from tests.protocols.pi.ensemble import UNLIMITED, Ensemble

from switchtower.protocols.pi.order import ports


async def test_a_dependency_that_succeeded_lets_the_command_go_on_at_once() -> None:
    ensemble = Ensemble()
    client = ensemble.client()
    await client.ask("list_sessions", id="a")
    await client.ask("get_state", id="b", sessionId="s")
    assert (await client.ask("abort", id="c", sessionId="s", dependsOn=["a", "b", "a"]))["success"]


async def test_unknown_failed_and_own_dependencies_fail_after_the_start() -> None:
    ensemble = Ensemble()
    client = ensemble.client()
    ensemble.refusing("bad", "it broke")
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
        assert ensemble.phases(id_) == ["command_accepted", "command_started", "command_finished", "response"]


async def test_a_command_may_not_depend_on_itself_by_another_name() -> None:
    ensemble = Ensemble()
    client = ensemble.client()
    block = ensemble.stalled("block")
    client.send("abort", id="block", sessionId="s")
    client.send("compact", id="a", idempotencyKey="k", sessionId="s", dependsOn=["b"])
    client.send("compact", id="b", idempotencyKey="k", sessionId="s", dependsOn=["b"])
    block.set_result(ports.Handled())
    assert (await ensemble.finished("a"))["error"] == "Command 'b' cannot depend on itself"


async def test_anonymous_commands_cannot_be_depended_on() -> None:
    ensemble = Ensemble(now_ms=5)
    client = ensemble.client()
    await client.ask("list_sessions")
    assert (await client.ask("list_sessions", id="a", dependsOn=["anon:5:1"]))["error"] == "Dependency 'anon:5:1' is unknown"


async def test_a_dependency_in_another_lane_is_awaited_in_its_success_and_in_its_failure() -> None:
    ensemble = Ensemble()
    client = ensemble.client()
    good, bad = ensemble.stalled("good"), ensemble.stalled("bad")
    client.send("create_session", id="good", sessionId="x")
    client.send("create_session", id="bad", sessionId="y")
    client.send("abort", id="a", sessionId="s", dependsOn=["good"])
    client.send("abort", id="b", sessionId="t", dependsOn=["good", "bad"])
    assert ensemble.phases("a") == ["command_accepted", "command_started"]
    bad.set_exception(ports.Refused("no room"))
    assert (await ensemble.finished("b"))["error"] == "Dependency 'bad' failed: no room"
    good.set_result(ports.Handled())
    assert (await ensemble.finished("a"))["success"]
    assert ensemble.began == ["good", "bad", "a"]


async def test_a_dependency_queued_in_the_same_lane_fails_fast() -> None:
    ensemble = Ensemble()
    client = ensemble.client()
    block = ensemble.stalled("block")
    client.send("abort", id="block", sessionId="s")
    client.send("compact", id="early", sessionId="s", dependsOn=["late"])
    client.send("compact", id="late", sessionId="s")
    block.set_result(ports.Handled())
    error = "Dependency 'late' is queued in the same lane and cannot be awaited from this command"
    assert (await ensemble.finished("early"))["error"] == error
    assert (await ensemble.finished("late"))["success"]


async def test_a_running_dependency_of_the_same_lane_is_awaited_and_reads_pass_meanwhile() -> None:
    ensemble = Ensemble()
    client = ensemble.client()
    run = ensemble.resting("p")
    client.send("prompt", id="p", sessionId="s", message="m")
    client.send("compact", id="then", sessionId="s", dependsOn=["p"])
    assert (await client.ask("get_state", sessionId="s"))["success"]
    assert ensemble.phases("then") == ["command_accepted", "command_started"]
    run.set_result(ports.Handled())
    assert (await ensemble.finished("then"))["sessionVersion"] == 2


async def test_waiting_for_a_dependency_ends_with_its_timeout_and_the_lane_goes_on() -> None:
    ensemble = Ensemble(msgspec.structs.replace(UNLIMITED, dependency_timeout_s=0.02))
    client = ensemble.client()
    never = ensemble.resting("never")
    client.send("prompt", id="never", sessionId="s", message="m")
    client.send("compact", id="a", sessionId="s", dependsOn=["never"])
    client.send("compact", id="b", sessionId="s")
    finished = await ensemble.finished("a")
    assert finished["error"] == "Dependency 'never' timed out after 20ms"
    assert (await ensemble.finished("b"))["success"]
    never.set_exception(ports.Refused("and then it failed"))
    await ensemble.finished("never")
    assert (await client.ask("compact", id="a", sessionId="s", dependsOn=["never"]))["error"] == finished["error"]
    assert ensemble.began == ["never", "b"]


async def test_a_circle_over_two_lanes_ends_with_the_timeout() -> None:
    ensemble = Ensemble(msgspec.structs.replace(UNLIMITED, dependency_timeout_s=0.02))
    ensemble.ledger.versions["t"] = 0
    client = ensemble.client()
    blocks = [ensemble.stalled("x"), ensemble.stalled("y")]
    client.send("abort", id="x", sessionId="s")
    client.send("abort", id="y", sessionId="t")
    client.send("compact", id="a", sessionId="s", dependsOn=["b"])
    client.send("compact", id="b", sessionId="t", dependsOn=["a"])
    for block in blocks:
        block.set_result(ports.Handled())
    errors = [(await ensemble.finished(id_))["error"] for id_ in ("a", "b")]
    assert errors[0].startswith("Dependency 'b'")
    assert errors[1].startswith("Dependency 'a'")
    assert any(error.endswith("timed out after 20ms") for error in errors)
    assert not {"a", "b"} & set(ensemble.began)
    assert (await client.ask("abort", sessionId="s"))["success"]


async def test_long_chains_of_dependencies_succeed_and_fail_without_exhausting_anything() -> None:
    for fails in (False, True):
        ensemble = Ensemble()
        client = ensemble.client()
        root = ensemble.stalled("c0")
        client.send("get_state", id="c0", sessionId="s0")
        for number in range(1, 3_000):
            client.send("get_state", id=f"c{number}", sessionId=f"s{number}", dependsOn=[f"c{number - 1}"])
        if fails:
            root.set_exception(ports.Refused("no"))
        else:
            root.set_result(ports.Handled())
        last = await ensemble.finished("c2999")
        assert last["success"] is not fails
        await ensemble.until(lambda client=client: len(client.responses) == 3_000)


async def test_a_crowd_that_waits_for_one_command_is_served() -> None:
    ensemble = Ensemble()
    client = ensemble.client()
    root = ensemble.resting("root")
    client.send("prompt", id="root", sessionId="s", message="m")
    for number in range(3_000):
        client.send("get_state", id=f"c{number}", sessionId="s", dependsOn=["root"])
    await asyncio.sleep(0)
    assert client.responses == []
    root.set_result(ports.Handled())
    await ensemble.until(lambda: len(client.responses) == 3_001)
    assert ensemble.began == ["root", *(f"c{number}" for number in range(3_000))]
