"""Turns: section 7.3 of the document, and that whoever only waits stops nobody who may pass."""

import asyncio
import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocols.pi.ensemble import UNLIMITED, DispatcherHarness

from switchtower.protocols.pi import inbound, messages
from switchtower.protocols.pi.dispatch import limits, ports
from switchtower.protocols.pi.errors import PiCommandError, SessionBusy

PASSING = [
    ("get_state", {}),
    ("get_messages", {}),
    ("list_session_files", {}),
    ("steer", {"message": "m"}),
    ("follow_up", {"message": "m"}),
    ("prompt", {"message": "m", "streamingBehavior": "steer"}),
    ("abort", {}),
    ("abort_bash", {}),
    ("abort_compaction", {}),
    ("abort_retry", {}),
    ("switch_session", {}),
    ("extension_ui_response", {"requestId": "r", "response": {"method": "cancelled"}}),
    ("health_check", {}),
]
STAYING = [
    ("prompt", {"message": "m"}),
    ("bash", {"command": "ls"}),
    ("compact", {}),
    ("set_session_name", {"name": "n"}),
    ("fork", {"entryId": "e"}),
    ("delete_session", {}),
    ("new_session", {}),
]


async def test_commands_of_one_session_take_turns_in_order_also_reads() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    works = {name: ensemble.stall_handler(name) for name in ("a", "b")}
    client.send("abort", id="a", sessionId="s")
    client.send("set_session_name", id="b", sessionId="s", name="n")
    client.send("get_state", id="c", sessionId="s")
    assert ensemble.began == ["a"]
    assert ensemble.list_phases("b") == ensemble.list_phases("c") == ["command_accepted"]
    works["a"].set_result(ports.HandlerResult())
    await ensemble.wait_until(lambda: "command_started" in ensemble.list_phases("b"))
    assert ensemble.list_phases("c") == ["command_accepted"]
    works["b"].set_result(ports.HandlerResult())
    assert (await ensemble.wait_finished("c"))["sessionVersion"] == 2
    assert ensemble.began == ["a", "b", "c"]
    assert ensemble.conductor.collect_metrics(client).stores.execution.laneCount == 0


async def test_sessions_and_the_server_do_not_wait_for_each_other() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    ensemble.stall_handler("a")
    ensemble.stall_handler("m")
    client.send("abort", id="a", sessionId="s")
    client.send("create_session", id="m")
    client.send("get_state", id="b", sessionId="t")
    assert ensemble.list_phases("b")[-1] == "response"
    client.send("list_sessions", id="l", sessionId="t")
    assert ensemble.list_phases("l")[-1] == "response"
    client.send("list_sessions", id="n")
    assert ensemble.list_phases("n") == ["command_accepted"]
    assert ensemble.conductor.collect_metrics(client).stores.execution.laneCount == 2
    await ensemble.conductor.close()


@pytest.mark.parametrize(("type_", "fields"), PASSING + STAYING)
async def test_a_running_prompt_does_not_hold_its_lane(type_: str, fields: dict[str, Any]) -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    run = ensemble.finish_handler("p")
    client.send("prompt", id="p", sessionId="s", message="m")
    client.send(type_, id="x", sessionId="s", **fields)
    await ensemble.wait_finished("x")
    assert ensemble.list_phases("p") == ["command_accepted", "command_started"]
    run.set_result(ports.HandlerResult({"done": True}))
    await ensemble.wait_finished("p")
    assert client.responses[-1]["data"] == {"done": True}


class BusySession:
    """A handler that finds its session busy until it is told otherwise."""

    def __init__(self, times: int = 1) -> None:
        self.until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.calls = 0
        self._times = times

    def __call__(self, _: inbound.PiRequest) -> ports.HandlerResult:
        self.calls += 1
        if self.calls <= self._times:
            raise SessionBusy(self.until)
        return ports.HandlerResult("at last")


@pytest.mark.parametrize(("type_", "fields"), PASSING)
async def test_passers_go_by_while_the_head_only_waits(type_: str, fields: dict[str, Any]) -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    busy = ensemble.handles["head"] = BusySession()
    client.send("prompt", id="head", sessionId="s", message="m")
    client.send("set_session_name", id="behind", sessionId="s", name="n")
    client.send(type_, id="x", sessionId="s", **fields)
    await ensemble.wait_finished("x")
    assert ensemble.list_phases("behind") == ["command_accepted"]
    busy.until.set_result(None)
    await ensemble.wait_finished("behind")
    assert ensemble.began == ["head", "x", "head", "behind"]
    assert ensemble.list_phases("head") == ["command_accepted", "command_started", "command_finished", "response"]


@pytest.mark.parametrize(("type_", "fields"), STAYING)
async def test_all_others_keep_their_place_behind_a_head_that_waits(type_: str, fields: dict[str, Any]) -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    busy = ensemble.handles["head"] = BusySession()
    client.send("prompt", id="head", sessionId="s", message="m")
    client.send(type_, id="x", sessionId="s", **fields)
    client.send("get_state", id="passer", sessionId="s")
    await ensemble.wait_finished("passer")
    assert ensemble.list_phases("x") == ["command_accepted"]
    busy.until.set_exception(RuntimeError("however it ended"))
    await ensemble.wait_finished("x")
    assert ensemble.began == ["head", "passer", "head", "x"]


async def test_passers_that_were_queued_go_in_their_own_order_when_the_head_begins_to_wait() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    first = ensemble.stall_handler("first")
    steer = ensemble.stall_handler("steer1")
    busy = ensemble.handles["head"] = BusySession(times=2)
    client.send("abort", id="first", sessionId="s")
    client.send("bash", id="head", sessionId="s", command="ls")
    client.send("compact", id="behind", sessionId="s")
    client.send("steer", id="steer1", sessionId="s", message="m")
    client.send("get_state", id="read", sessionId="s")
    assert ensemble.began == ["first"]
    first.set_result(ports.HandlerResult())
    await ensemble.wait_until(lambda: "command_started" in ensemble.list_phases("steer1"))
    assert ensemble.list_phases("read") == ["command_accepted"]  # one at a time is at work, passers too
    busy.until.set_result(None)
    await asyncio.sleep(0)
    assert busy.calls == 1  # the head is ready, and waits for the passer at work
    steer.set_result(ports.HandlerResult())
    await ensemble.wait_finished("behind")
    assert [name for name in ensemble.began if name != "head"] == ["first", "steer1", "read", "behind"]


async def test_a_passer_that_waits_itself_holds_up_only_what_came_after_it() -> None:
    ensemble = DispatcherHarness()
    ensemble.ledger.versions["t"] = 0
    client = ensemble.make_client()
    elsewhere = ensemble.finish_handler("elsewhere")
    busy = ensemble.handles["head"] = BusySession()
    client.send("prompt", id="elsewhere", sessionId="t", message="m")
    client.send("bash", id="head", sessionId="s", command="ls")
    client.send("compact", id="before", sessionId="s")
    client.send("abort", id="passer", sessionId="s", dependsOn=["elsewhere"])
    client.send("compact", id="after", sessionId="s")
    assert "command_started" in ensemble.list_phases("passer")
    busy.until.set_result(None)
    await ensemble.wait_finished("before")
    await ensemble.wait_finished("head")
    assert ensemble.list_phases("after") == ["command_accepted"]
    elsewhere.set_result(ports.HandlerResult())
    await ensemble.wait_finished("after")
    assert ensemble.began == ["elsewhere", "head", "head", "before", "passer", "after"]


async def test_a_read_may_find_its_session_busy_too() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    busy = ensemble.handles["head"] = BusySession()
    client.send("get_messages", id="head", sessionId="s")
    assert ensemble.list_phases("head") == ["command_accepted", "command_started"]
    busy.until.set_result(None)
    assert (await ensemble.wait_finished("head"))["success"]
    assert client.responses[-1]["data"] == "at last"


async def test_the_expected_version_is_looked_at_again_after_a_wait() -> None:
    ensemble = DispatcherHarness()
    client = ensemble.make_client()
    busy = ensemble.handles["head"] = BusySession()
    client.send("bash", id="head", sessionId="s", command="ls", ifSessionVersion=0)
    await client.ask("steer", sessionId="s", message="m")
    busy.until.set_result(None)
    assert (await ensemble.wait_finished("head"))["error"] == "Session version mismatch: expected 0, got 1"


def test_every_command_of_the_document_is_a_passer_or_is_not() -> None:
    assert set(messages.COMMANDS) >= limits.OVERTAKING
    assert {type_ for type_, _ in PASSING} - {"prompt"} <= limits.OVERTAKING
    assert not {type_ for type_, _ in STAYING} & limits.OVERTAKING
    assert limits.MUTATING | limits.READS | {"switch_session", "extension_ui_response", "health_check"} == set(messages.COMMANDS)


# Any interleaving

KINDS = ["at once", "later", "resting", "refused", "refused later", "busy", "failing rest"]
STEP = st.fixed_dictionaries(
    {
        "command": st.sampled_from(["get_state", "abort", "compact", "bash", "steer"]),
        "session": st.sampled_from(["s", "t"]),
        "kind": st.sampled_from(KINDS),
        "depends": st.lists(st.integers(0, 12), max_size=2),
        "repeat": st.booleans(),
        "release": st.lists(st.integers(0, 5), max_size=3),
    }
)
FIELDS: dict[str, dict[str, Any]] = {"bash": {"command": "ls"}, "steer": {"message": "m"}}


async def play(steps: list[dict[str, Any]]) -> tuple[DispatcherHarness, list[str], limits.StoreCounts]:
    """Sends the commands, letting stalled work go on at the places that the steps say, and then all of it."""
    # Some interleavings are circles of dependencies over both lanes, which end with this timeout.
    ensemble = DispatcherHarness(msgspec.structs.replace(UNLIMITED, dependency_timeout_s=0.1))
    ensemble.ledger.versions["t"] = 0
    client = ensemble.make_client()
    held: list[asyncio.Future[Any]] = []
    sent: list[str] = []

    def future(result: Any) -> Any:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        held.append(waiting)

        async def wait() -> ports.HandlerResult:
            await waiting
            if isinstance(result, Exception):
                raise result
            return ports.HandlerResult(result)

        return wait()

    def handler(kind: str) -> Any:
        calls = itertools.count()

        def handle(_: inbound.PiRequest) -> Any:
            match kind:
                case "later":
                    return future("later")
                case "refused later":
                    return future(PiCommandError("no"))
                case "resting":
                    return ports.HandlerResult(rest=future("rested"))
                case "failing rest":
                    return ports.HandlerResult(rest=future(PiCommandError("no")))
                case "refused":
                    raise PiCommandError("no")
                case "busy" if next(calls) == 0:
                    until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    held.append(until)
                    raise SessionBusy(until)
            return ports.HandlerResult("at once")

        return handle

    def let_go(place: int) -> None:
        if held:
            held.pop(place % len(held)).set_result(None)

    for number, step in enumerate(steps):
        id_ = f"c{number}"
        ensemble.handles[id_] = handler(step["kind"])
        fields = {"sessionId": step["session"], **FIELDS.get(step["command"], {})}
        if step["depends"]:
            fields["dependsOn"] = [f"c{place}" for place in step["depends"]]
        for _ in range(1 + step["repeat"]):
            client.send(step["command"], id=id_, **fields)
            sent.append(id_)
        for place in step["release"]:
            let_go(place)
            await asyncio.sleep(0)

    def all_finished() -> bool:
        return len(client.responses) == len(sent)

    async with asyncio.timeout(60):
        while not all_finished():
            let_go(0)
            await asyncio.sleep(0)
    return ensemble, sent, ensemble.conductor.collect_metrics(client).stores


@settings(max_examples=80)
@given(st.lists(STEP, max_size=12))
def test_each_command_finishes_exactly_once_with_its_phases_in_order(steps: list[dict[str, Any]]) -> None:
    ensemble, sent, left = asyncio.run(play(steps))
    for id_ in set(sent):
        phases = ensemble.list_phases(id_)
        asked = sent.count(id_)
        assert phases.count("command_accepted") == phases.count("command_finished") == phases.count("response") == asked
        assert phases.count("command_started") == 1
        first = [phase for phase in phases if phase != "command_accepted"]
        assert first[:3] == ["command_started", "command_finished", "response"]
    assert (left.execution.laneCount, left.replay.inFlightCount) == (0, 0)


@settings(max_examples=80)
@given(st.lists(STEP, max_size=12))
def test_turns_are_taken_in_order_except_by_passers(steps: list[dict[str, Any]]) -> None:
    ensemble, _, _ = asyncio.run(play(steps))
    for session_id in ("s", "t"):
        mine = [f"c{number}" for number, step in enumerate(steps) if step["session"] == session_id]
        stayers = [id_ for id_ in mine if steps[int(id_[1:])]["command"] in ("compact", "bash")]
        started = [data["commandId"] for kind, data in ensemble.heard if kind == "command_started"]
        assert [id_ for id_ in started if id_ in stayers] == stayers
        passers = [id_ for id_ in mine if id_ not in stayers]
        assert [id_ for id_ in started if id_ in passers] == passers
        # nobody who stays begins before a passer that came earlier
        for stayer in stayers:
            earlier = [id_ for id_ in passers if int(id_[1:]) < int(stayer[1:])]
            assert all(started.index(id_) < started.index(stayer) for id_ in earlier)


@settings(max_examples=60)
@given(st.lists(STEP, max_size=12))
def test_the_version_counts_the_successes_and_each_is_told_once(steps: list[dict[str, Any]]) -> None:
    ensemble, _, _ = asyncio.run(play(steps))
    for session_id in ("s", "t"):
        told = [
            data["sessionVersion"]
            for kind, data in ensemble.heard
            if kind == "command_finished"
            and data["sessionId"] == session_id
            and data["success"]
            and data["commandType"] != "get_state"
            and "replayed" not in data
        ]
        assert told == list(range(1, len(told) + 1))
        assert ensemble.ledger.versions[session_id] == len(told)
        stored = {
            receipt.outcome["response"]["sessionVersion"]
            for receipt in ensemble.ledger.receipts.values()
            if receipt.outcome["sessionId"] == session_id and receipt.outcome["response"]["success"]
        }
        assert stored == set(told)
