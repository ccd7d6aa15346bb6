"""Ask once, run once: sections 5.1, 7.4 and 8 of the document, and what survives a restart."""

import asyncio
from typing import Any

import msgspec
from tests.protocols.pi.ensemble import UNLIMITED, DispatcherHarness

from switchtower.protocols.pi import inbound
from switchtower.protocols.pi.dispatch import ports
from switchtower.protocols.pi.dispatch.limits import DispatchLimits
from switchtower.protocols.pi.errors import PiCommandError


def make_limited_store(**changes: Any) -> DispatchLimits:
    return msgspec.structs.replace(UNLIMITED, **changes)


async def test_the_same_id_is_answered_as_before_and_runs_nothing() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    first = await client.ask("set_session_name", id="c", sessionId="s", name="n")
    again = await client.ask("set_session_name", name="n", sessionId="s", id="c")
    assert again == {**first, "replayed": True}
    assert ensemble.began == ["c"]
    assert ensemble.list_phases("c")[4:] == ["command_accepted", "command_finished", "response"]
    assert ensemble.heard[-2][1]["replayed"] is True
    assert ensemble.ledger.versions["s"] == 1


async def test_failures_are_replayed_too() -> None:
    ensemble = DispatcherHarness()
    ensemble.refuse_handler("c", "no")
    client = ensemble.make_client()
    first = await client.ask("get_state", id="c", sessionId="s")
    ensemble.handles.clear()
    assert await client.ask("get_state", id="c", sessionId="s") == {**first, "replayed": True}


async def test_the_same_id_for_something_else_is_a_conflict_and_changes_nothing() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    await client.ask("get_state", id="c", sessionId="s")
    other = await client.ask("list_sessions", id="c")
    assert other["error"] == "Conflicting id 'c': previously used for 'get_state', now used for 'list_sessions'"
    same_type = await client.ask("get_state", id="c", sessionId="t")
    assert same_type["error"].startswith("Conflicting id 'c'")
    assert ensemble.list_phases("c")[-3:] == ["command_accepted", "command_finished", "response"]
    assert (await client.ask("get_state", id="c", sessionId="s"))["replayed"] is True


async def test_a_key_is_replayed_with_the_new_id_or_with_none() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    first = await client.ask("abort", id="a", idempotencyKey="k", sessionId="s")
    with_other = await client.ask("abort", id="b", idempotencyKey="k", sessionId="s")
    assert with_other == {**first, "id": "b", "replayed": True}
    without = await client.ask("abort", idempotencyKey="k", sessionId="s")
    assert "id" not in without
    assert without["replayed"] is True
    assert ensemble.began == ["a"]
    # the second id now means the same command: it can be depended on, and not be used for another
    assert (await client.ask("get_state", id="d", sessionId="s", dependsOn=["b"]))["success"]
    assert "Conflicting id 'b'" in (await client.ask("get_state", id="b", sessionId="s"))["error"]


async def test_a_key_counts_within_its_session_and_the_server_is_one_too() -> None:
    ensemble = DispatcherHarness()
    ensemble.ledger.versions["t"] = 0
    client = ensemble.make_client()
    for fields in ({"sessionId": "s"}, {"sessionId": "t"}):
        assert "replayed" not in await client.ask("abort", idempotencyKey="k", **fields)
    assert "replayed" not in await client.ask("list_sessions", idempotencyKey="k")
    conflict = await client.ask("get_state", idempotencyKey="k", sessionId="s")
    assert conflict["error"] == "Conflicting idempotencyKey 'k': previously used for 'abort', now used for 'get_state'"


async def test_the_key_is_looked_at_before_the_id() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    await client.ask("abort", id="a", idempotencyKey="k", sessionId="s")
    await client.ask("get_state", id="b", sessionId="s")
    assert (await client.ask("abort", id="b", idempotencyKey="k", sessionId="s"))["replayed"] is True
    assert (await client.ask("get_state", id="b", sessionId="s"))["command"] == "get_state"


async def test_an_expired_key_executes_again() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    await client.ask("abort", idempotencyKey="k", sessionId="s")
    ensemble.now_ms += 599_999
    assert (await client.ask("abort", idempotencyKey="k", sessionId="s"))["replayed"] is True
    ensemble.now_ms += 1
    assert ensemble.conductor.collect_metrics(client).stores.replay.idempotencyCacheSize == 1
    again = await client.ask("get_state", idempotencyKey="k", sessionId="s")
    assert again["success"]
    assert "replayed" not in again


async def test_expired_keys_are_forgotten_when_new_ones_come() -> None:
    for command in ("abort", "get_state"):
        ensemble = DispatcherHarness()
        client = ensemble.make_client()
        for number in range(5):
            await client.ask(command, idempotencyKey=f"k{number}", sessionId="s")
        ensemble.now_ms += 600_000
        await client.ask(command, idempotencyKey="new", sessionId="s")
        assert ensemble.conductor.collect_metrics(client).stores.replay.idempotencyCacheSize == 1


async def test_a_duplicate_in_flight_waits_for_the_first_and_comes_after_it() -> None:
    ensemble = DispatcherHarness()
    work = ensemble.stall_handler("a")
    first, second = ensemble.make_client("1"), ensemble.make_client("2")
    first.send("abort", id="a", idempotencyKey="k", sessionId="s")
    second.send("abort", id="a", sessionId="s")
    second.send("abort", id="b", idempotencyKey="k", sessionId="s")
    second.send("get_state", id="a", sessionId="s")
    assert [answer["error"][:11] for answer in second.responses] == ["Conflicting"]
    await asyncio.sleep(0)
    work.set_result(ports.HandlerResult("done"))
    await ensemble.wait_until(lambda: len(second.responses) == 3)
    assert [answer.get("replayed") for answer in first.responses + second.responses[1:]] == [None, True, True]
    assert [answer["id"] for answer in second.responses[1:]] == ["a", "b"]
    assert ensemble.began == ["a"]
    answers = [data["id"] for kind, data in ensemble.heard if kind == "response" and data["success"]]
    assert answers == ["a", "a", "b"]


async def test_namespaces_do_not_share_ids() -> None:
    ensemble = DispatcherHarness()
    await ensemble.make_client().ask("get_state", id="c", sessionId="s")
    assert (await ensemble.make_client("io", "stdio-1").ask("list_sessions", id="c"))["success"]
    unknown = await ensemble.make_client("io", "stdio-2").ask("list_sessions", id="d", dependsOn=["c"])
    assert unknown["error"] == "Dependency 'c' is unknown"


async def test_only_the_newest_outcomes_are_kept() -> None:
    ensemble = DispatcherHarness(make_limited_store(outcomes=3))
    client = ensemble.make_client()
    for number in range(5):
        await client.ask("list_sessions", id=f"c{number}")
    assert ensemble.conductor.collect_metrics(client).stores.replay.outcomeCount == 3
    assert "replayed" not in await client.ask("get_metrics", id="c0")
    assert (await client.ask("list_sessions", id="c4"))["replayed"] is True


async def test_large_answers_do_not_pile_up() -> None:
    ensemble = DispatcherHarness(make_limited_store(outcome_bytes=10_000))
    ensemble.handles["get_messages"] = lambda _: ports.HandlerResult("x" * 4_000)
    client = ensemble.make_client()
    for number in range(5):
        await client.ask("get_messages", id=f"c{number}", sessionId="s")
    assert ensemble.conductor.collect_metrics(client).stores.replay.outcomeCount == 2
    ensemble.handles["get_messages"] = lambda _: ports.HandlerResult("x" * 40_000)
    await client.ask("get_messages", id="huge", sessionId="s")
    assert (await client.ask("get_messages", id="huge", sessionId="s"))["replayed"] is True


async def test_forgotten_namespaces_make_room_for_new_ones_but_never_that_of_the_websockets() -> None:
    ensemble = DispatcherHarness(make_limited_store(namespaces=3))
    await ensemble.make_client().ask("list_sessions", id="c")
    for number in range(10):
        await ensemble.make_client(f"k{number}", f"stdio-{number}").ask("list_sessions", id="c")
    assert ensemble.conductor.collect_metrics(ensemble.make_client()).stores.replay.outcomeCount == 3
    assert (await ensemble.make_client().ask("list_sessions", id="c"))["replayed"] is True


async def test_a_namespace_with_work_under_way_is_not_forgotten() -> None:
    ensemble = DispatcherHarness(make_limited_store(namespaces=2))
    work = ensemble.stall_handler("a")
    busy = ensemble.make_client("busy", "stdio-busy")
    busy.send("abort", id="a", sessionId="s")
    for number in range(3):
        await ensemble.make_client(f"k{number}", f"stdio-{number}").ask("list_sessions", id="c")
    work.set_result(ports.HandlerResult())
    await ensemble.wait_finished("a")
    assert (await busy.ask("abort", id="a", sessionId="s"))["replayed"] is True


async def test_a_kept_answer_does_not_change_with_what_it_was_made_from() -> None:
    ensemble = DispatcherHarness()
    state = {"messageCount": 1}
    ensemble.handles["get_state"] = lambda _: ports.HandlerResult(state)
    client = ensemble.make_client()
    await client.ask("get_state", id="c", sessionId="s")
    state["messageCount"] = 2
    assert (await client.ask("get_state", id="c", sessionId="s"))["data"] == {"messageCount": 1}


# Over a restart


class FakeResolver:
    def __init__(self, result: ports.HandlerResult | Exception) -> None:
        self.result = result
        self.asked: list[tuple[str, str | None, dict[str, Any]]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, command: str, session_id: str | None, facts: dict[str, Any]) -> ports.HandlerResult:
        self.asked.append((command, session_id, facts))
        await self.gate.wait()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def restart_store(before: DispatcherHarness, resolver: FakeResolver) -> DispatcherHarness:
    ensemble = DispatcherHarness(ledger=before.ledger, now_ms=before.now_ms + 1_000)
    ensemble.conductor.restore(list(before.ledger.receipts.values()), resolver)
    return ensemble


def make_unexpected_resolver() -> FakeResolver:
    return FakeResolver(RuntimeError("nothing had only begun"))


async def test_finished_commands_are_replayed_after_a_restart_as_if_nothing_had_happened() -> None:
    before = DispatcherHarness()
    client = before.make_client()
    first = await client.ask("bash", id="c", idempotencyKey="k", sessionId="s", command="ls")
    before.refuse_handler("f", "no")
    failed = await client.ask("abort", id="f", sessionId="s")
    resolver = make_unexpected_resolver()
    after = restart_store(before, resolver)
    client = after.make_client()
    assert await client.ask("bash", id="c", sessionId="s", command="ls") == {**first, "replayed": True}
    by_key = await client.ask("bash", id="new", idempotencyKey="k", sessionId="s", command="ls")
    assert by_key == {**first, "id": "new", "replayed": True}
    assert await client.ask("abort", id="f", sessionId="s") == {**failed, "replayed": True}
    conflict = await client.ask("bash", id="c", sessionId="s", command="rm")
    assert conflict["error"] == "Conflicting id 'c': previously used for 'bash', now used for 'bash'"
    assert (after.began, resolver.asked) == ([], [])


async def test_stored_keys_expire_and_stored_ids_stay() -> None:
    before = DispatcherHarness()
    await before.make_client().ask("abort", id="c", idempotencyKey="k", sessionId="s")
    before.now_ms += 600_000
    client = restart_store(before, make_unexpected_resolver()).make_client()
    assert "replayed" not in await client.ask("abort", idempotencyKey="k", sessionId="s")
    assert (await client.ask("abort", id="c", idempotencyKey="k", sessionId="s"))["replayed"] is True


async def test_stored_ids_expire_after_long() -> None:
    before = DispatcherHarness()
    await before.make_client().ask("abort", id="c", sessionId="s")
    before.now_ms += 7 * 24 * 3_600_000
    assert "replayed" not in await restart_store(before, make_unexpected_resolver()).make_client().ask(
        "abort", id="c", sessionId="s"
    )


async def test_the_key_of_a_command_that_only_began_outlives_the_time_of_keys() -> None:
    before = await make_interrupted_prompt(idempotencyKey="k")
    before.now_ms += 3_600_000
    client = restart_store(before, FakeResolver(ports.HandlerResult("found out"))).make_client()
    assert (await client.ask("prompt", idempotencyKey="k", sessionId="s", message="m"))["data"] == "found out"


async def test_names_of_receipts_cannot_be_mistaken_for_each_other() -> None:
    ensemble = DispatcherHarness()
    asked: list[tuple[str, dict[str, Any]]] = [
        ("", {"id": "x"}),
        ("", {"idempotencyKey": "x"}),
        ("", {"id": '"x'}),
        ("id", {"id": "x"}),
        ('","', {"id": "x"}),
    ]
    for number, (namespace, identity) in enumerate(asked):
        await ensemble.make_client(str(number), namespace).ask("abort", sessionId="s", **identity)
    assert len(ensemble.ledger.receipts) == len(asked)


async def test_receipts_that_cannot_be_read_are_passed_over() -> None:
    before = DispatcherHarness()
    await before.make_client().ask("abort", id="c", sessionId="s")
    [good] = before.ledger.receipts.values()
    for number, changes in enumerate(
        [{"key": "rubbish"}, {"key": "[1,2]"}, {"outcome": {}}, {"outcome": {"state": "finished", "response": 5}}, {"scope": "x"}]
    ):
        before.ledger.receipts[str(number)] = msgspec.structs.replace(good, **changes)
    client = restart_store(before, make_unexpected_resolver()).make_client()
    assert (await client.ask("abort", id="c", sessionId="s"))["replayed"] is True


async def make_interrupted_prompt(**identity: str) -> DispatcherHarness:
    """A prompt began, its receipt was committed with its run, and the process is gone."""
    before = DispatcherHarness()
    client = before.make_client()

    def prompt(request: inbound.PiRequest) -> ports.HandlerResult:
        before.ledger.keep(before.conductor.make_start_receipts(request, client, run_id="run_1"))
        return ports.HandlerResult(rest=asyncio.get_running_loop().create_future())

    before.handles["prompt"] = prompt
    client.send("prompt", sessionId="s", message="m", **identity)
    return before


async def test_a_command_without_identity_leaves_no_receipt_when_it_begins() -> None:
    assert (await make_interrupted_prompt()).ledger.receipts == {}


async def test_a_begun_command_is_resolved_once_when_it_is_first_asked_for() -> None:
    before = await make_interrupted_prompt(id="p", idempotencyKey="k")
    assert {receipt.outcome["state"] for receipt in before.ledger.receipts.values()} == {"begun"}
    resolver = FakeResolver(ports.HandlerResult({"answer": 42}))
    resolver.gate.clear()
    after = restart_store(before, resolver)
    client = after.make_client()
    client.send("prompt", id="p", sessionId="s", message="m")
    client.send("prompt", idempotencyKey="k", sessionId="s", message="m")
    client.send("get_state", id="d", sessionId="s", dependsOn=["p"])
    assert client.responses == []
    resolver.gate.set()
    await after.wait_until(lambda: len(client.responses) == 3)
    assert client.responses[0] == {
        "type": "response",
        "command": "prompt",
        "success": True,
        "id": "p",
        "data": {"answer": 42},
        "sessionVersion": 1,
        "replayed": True,
    }
    assert client.responses[1]["replayed"] is True
    assert client.responses[2]["success"]
    assert resolver.asked == [("prompt", "s", {"run_id": "run_1"})]
    assert after.began == ["d"]
    assert after.list_phases("p") == ["command_accepted", "command_finished", "response"]
    # and what was found out is stored, for the next process
    third = restart_store(after, make_unexpected_resolver())
    assert await third.make_client().ask("prompt", id="p", sessionId="s", message="m") == client.responses[0]
    assert third.ledger.versions["s"] == 1


async def test_a_begun_command_that_failed_is_a_stored_failure() -> None:
    resolver = FakeResolver(PiCommandError("The run was interrupted"))
    after = restart_store(await make_interrupted_prompt(id="p"), resolver)
    client = after.make_client()
    dependent = await client.ask("abort", id="d", sessionId="s", dependsOn=["p"])
    assert dependent["error"] == "Dependency 'p' failed: The run was interrupted"
    again = await client.ask("prompt", id="p", sessionId="s", message="m")
    assert (again["error"], again["replayed"]) == ("The run was interrupted", True)
    assert len(resolver.asked) == 1
    assert after.ledger.versions["s"] == 0


async def test_a_begun_command_asked_for_in_other_words_is_a_conflict_and_not_resolved() -> None:
    resolver = make_unexpected_resolver()
    client = restart_store(await make_interrupted_prompt(id="p"), resolver).make_client()
    assert (await client.ask("prompt", id="p", sessionId="s", message="other"))["error"].startswith("Conflicting id 'p'")
    assert resolver.asked == []


async def test_closing_sends_no_outcome_to_those_who_wait_for_a_begun_command() -> None:
    resolver = FakeResolver(ports.HandlerResult())
    resolver.gate.clear()
    after = restart_store(await make_interrupted_prompt(id="p"), resolver)
    client = after.make_client()
    client.send("prompt", id="p", sessionId="s", message="m")
    await asyncio.sleep(0)
    await after.conductor.close()
    assert client.responses == []
    assert after.ledger.settlements == []
