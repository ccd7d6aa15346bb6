"""`hub_may`: how far a host obeys its hub. The hub is made up and asks for everything; the host is a real daemon."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.conformance.relay.fake_hub import FakeHub
from tests.relay.stage import RelayNetwork, RestartableDaemon
from tests.relay.stage import relay_network as relay_network

from switchtower.protocols.relay import messages
from switchtower.protocols.relay.link import hub_requests

START = "this host does not let its hub start programs or change files; set `hub_may = start` there"
DECIDE = "this host lets its hub only watch; set `hub_may = decide` there to decide, type and stop"
ASKS = "printf 'Proceed? (y/n) '; read answer; echo got:$answer: > answered; cat"


class LinkedTestHost:
    """A host that has dialled the hub of the test, and has one run of its owner's."""

    def __init__(self, hub: FakeHub, host: RestartableDaemon) -> None:
        self.hub = hub
        self.host = host
        self.run_id = ""
        self.question = ""

    async def open(self) -> None:
        app = await self.host.connect_app()
        async with app:
            self.run_id = await app.start(self.host.host_id, ASKS, cwd=str(self.host.workspace))
        asked = await asyncio.to_thread(self.hub.wait_for, "run.permission_requested", self.run_id)
        self.question = asked["data"]["request_id"]

    async def request_error(self, type_: str, run_id: str | None = None, **data: Any) -> str:
        return await asyncio.to_thread(lambda: self.hub.request_error(type_, run_id, **data))

    async def request_result(self, type_: str, run_id: str | None = None, **data: Any) -> Any:
        return await asyncio.to_thread(lambda: self.hub.request_result(type_, run_id, **data))

    async def send_refused_command(self, type_: str, **data: Any) -> str:
        since = len(self.hub.frames)
        self.hub.send(type_, data, run_id=self.run_id)
        told = await asyncio.to_thread(lambda: self.hub.wait_for("run.error", self.run_id, since=since))
        assert told["data"]["command"] == type_
        return str(told["data"]["error"])

    async def check_starts_refused(self) -> None:
        workspace = self.host.workspace
        assert await self.request_error("rpc.run.start", tool="x", cmd="touch started", cwd=str(workspace)) == START
        assert await self.request_error("rpc.bash", self.run_id, cmd="touch ran") == START
        assert await self.request_error("rpc.fs.write", self.run_id, path="written", content="x") == START
        for name in ("started", "ran", "written"):
            assert not (workspace / name).exists()
        assert not [
            frame
            for frame in self.hub.list_run_messages(self.run_id, "run.permission_requested", "tool.call")
            if self.is_new(frame)
        ]

    def is_new(self, frame: dict[str, Any]) -> bool:
        return bool(frame["data"].get("request_id") != self.question)


@pytest.fixture
async def linked_host(relay_network: RelayNetwork, request: pytest.FixtureRequest) -> AsyncIterator[LinkedTestHost]:
    hub = FakeHub()
    settings = {} if request.param is None else {"hub_may": request.param}
    made = LinkedTestHost(hub, await relay_network.start_daemon("obeying", hub=hub.url, **settings))
    try:
        await made.open()
        yield made
    finally:
        await asyncio.to_thread(hub.close)


@pytest.mark.parametrize("linked_host", ["watch"], indirect=True)
async def test_a_hub_that_may_watch_sees_and_does_nothing(linked_host: LinkedTestHost) -> None:
    await linked_host.check_starts_refused()
    (linked_host.host.workspace / "note.txt").write_text("hello\n")
    assert (await linked_host.request_result("rpc.fs.read", linked_host.run_id, path="note.txt"))["content"] == "hello\n"
    assert (await linked_host.request_result("rpc.host.info", host_id=linked_host.host.host_id))[
        "host_id"
    ] == linked_host.host.host_id
    assert await linked_host.request_error("rpc.run.stop", linked_host.run_id) == DECIDE
    commands: dict[str, dict[str, object]] = {
        "run.permission.approve": {"request_id": linked_host.question},
        "run.permission.deny": {"request_id": linked_host.question, "decision": "abort"},
        "run.send_input": {"input_id": "i1", "text": "y\n"},
        "run.send_stdin": {"text": "y\n"},
        "run.resize": {"cols": 20, "rows": 5},
        "run.stop": {"signal": "kill"},
    }
    for type_, data in commands.items():
        assert await linked_host.send_refused_command(type_, **data) == DECIDE
    row = await linked_host.host.http.get_run(linked_host.run_id)
    assert (row["status"], row["pending_request_id"]) == ("awaiting_approval", linked_host.question)
    assert not (linked_host.host.workspace / "answered").exists()
    assert (await linked_host.host.http.get("/audit"))["items"] == []


@pytest.mark.parametrize("linked_host", [None, "decide"], indirect=True, ids=["by default", "decide"])
async def test_a_hub_that_may_decide_decides_types_and_stops_but_starts_nothing(linked_host: LinkedTestHost) -> None:
    await linked_host.check_starts_refused()
    linked_host.hub.send("run.permission.approve", {"request_id": linked_host.question}, run_id=linked_host.run_id)
    await asyncio.to_thread(linked_host.hub.wait_for, "run.permission_decided", linked_host.run_id)
    linked_host.hub.send("run.send_input", {"input_id": "i1", "text": "typed by the hub\n"}, run_id=linked_host.run_id)
    await asyncio.to_thread(lambda: linked_host.hub.wait_for("run.input", linked_host.run_id, input_id="i1"))
    assert (await linked_host.request_result("rpc.run.stop", linked_host.run_id, signal="kill")) == {"signal": "kill"}
    await asyncio.to_thread(linked_host.hub.wait_for, "run.exited", linked_host.run_id)


@pytest.mark.parametrize("linked_host", ["start"], indirect=True)
async def test_a_hub_that_may_start_starts(linked_host: LinkedTestHost) -> None:
    run_id = await asyncio.to_thread(lambda: linked_host.hub.start("touch started", linked_host.host.workspace))
    await asyncio.to_thread(linked_host.hub.wait_for, "run.exited", run_id)
    assert (linked_host.host.workspace / "started").exists()


@pytest.mark.parametrize("linked_host", ["watch"], indirect=True)
async def test_a_refusal_is_in_the_log_once_for_each_type(linked_host: LinkedTestHost) -> None:
    for _ in range(3):
        assert await linked_host.request_error("rpc.bash", linked_host.run_id, cmd="true") == START
    assert await linked_host.request_error("rpc.run.stop", linked_host.run_id) == DECIDE
    lines = [line for line in linked_host.host.log().splitlines() if "`hub_may` does not allow" in line]
    assert [line.partition("asked for ")[2].partition(",")[0] for line in lines] == ["rpc.bash", "rpc.run.stop"]


def test_what_is_known_has_a_level_and_what_is_not_needs_the_most() -> None:
    levels = {type_: hub_requests.get_required_level(type_) for type_ in (*messages.RPCS, *messages.COMMAND_DATA)}
    assert {type_ for type_, level in levels.items() if level == "start"} == {"rpc.run.start", "rpc.bash", "rpc.fs.write"}
    assert {type_ for type_, level in levels.items() if level == "decide"} == {*messages.COMMAND_DATA, "rpc.run.stop"}
    assert hub_requests.get_required_level("rpc.something.new") == hub_requests.get_required_level("run.something.new") == "start"
