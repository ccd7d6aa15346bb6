"""The daemon's setting `sandbox` holds over every protocol: a session that names none gets it, and one that names less is
refused unless the owner's own socket asks for it."""

import asyncio
import os
import shutil
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.pi.stage import PiDaemon
from tests.conformance.relay.peers import CheckedApp, CheckedHttp
from tests.conftest import Connect, StartDaemon
from tests.flows.flowing import make_document, make_node
from tests.warm import processes

from switchtower.testing.minicodex_client import MiniCodexClient
from switchtower.testing.pi_client import PiClient
from switchtower.testing.push_client import PushClient, make_start_payload
from switchtower.testing.wire import WebSocketWire
from switchtower.tools.sandboxes import sandbox

TIMEOUT = 60
WHY_NOT = sandbox.probe_sandbox("bubblewrap")
needs_bubblewrap = pytest.mark.skipif(WHY_NOT is not None, reason=f"no bubblewrap here: {WHY_NOT}")


def make_start_request(workspace: Path, **fields: object) -> dict[str, object]:
    """A `start_session` that leaves the sandbox to the daemon: push wants the field, and `auto` names none."""
    return make_start_payload(workspace, **{"sandboxProvider": "auto", **fields})


async def get_sandbox(push: PushClient, session_id: str) -> str:
    return str((await push.request_payload("get_session", {"sessionId": session_id}, session_id=session_id))["sandbox"])


@pytest.fixture
def pi_daemon() -> Iterator[Any]:
    started: list[PiDaemon] = []

    def start(**settings: object) -> PiDaemon:
        started.append(PiDaemon(**settings))
        started[-1].start()
        return started[-1]

    yield start
    for daemon in started:
        daemon.discard()


@pytest.fixture
def outside_folder() -> Iterator[Path]:
    """A folder that a sandboxed command can neither write nor see."""
    folder = Path(os.environ["HOME"]) / f"outside-{os.urandom(4).hex()}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


class StrictSessionStarters:
    """A daemon whose sessions belong in a sandbox and ask about nothing."""

    def __init__(self, daemon: PiDaemon, push: PushClient, workspace: Path) -> None:
        self.daemon = daemon
        self.push = push
        self.workspace = workspace

    async def start_over_push(self, client: PushClient) -> str:
        answer = await client.request_payload("start_session", make_start_request(self.workspace))
        return str(answer["sessionId"])

    async def begin(self, protocol: str, connect: Connect) -> str:
        """A new session that names no sandbox, over this protocol; its id."""
        match protocol:
            case "push":
                return await self.start_over_push(self.push)
            case "push over WebSocket":
                return await self.start_over_push(await connect(self.daemon, "websocket"))
            case "minicodex":
                mini = await MiniCodexClient.open(self.daemon.http, self.daemon.token, cwd=str(self.workspace))
                await mini.send_hello()
                mini.wire.abort()
                return mini.session_id
            case "pi":
                pi = PiClient(await WebSocketWire.open(self.daemon.pi, None, path="/"))
                await pi.receive()
                created = await pi.execute("create_session", cwd=str(self.workspace))
                pi.wire.abort()
                return str(created["sessionId"])
            case _:
                raise AssertionError(protocol)


@pytest.fixture
async def strict_session_starters(pi_daemon: Any, connect: Connect, workspace: Path) -> AsyncIterator[StrictSessionStarters]:
    daemon = pi_daemon(sandbox="bubblewrap", policy="yolo", provider="demo")
    return StrictSessionStarters(daemon, await connect(daemon), workspace)


PROTOCOLS = ("push", "push over WebSocket", "minicodex", "pi")


@needs_bubblewrap
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_agent_gets_the_configured_sandbox_over_every_protocol(
    protocol: str, strict_session_starters: StrictSessionStarters, connect: Connect, outside_folder: Path
) -> None:
    session_id = await strict_session_starters.begin(protocol, connect)

    assert await get_sandbox(strict_session_starters.push, session_id) == "bubblewrap"
    await strict_session_starters.push.attach(session_id)
    await strict_session_starters.push.run(session_id, f"run: touch {outside_folder}/escaped; touch inside")
    assert (strict_session_starters.workspace / "inside").exists()
    assert not (outside_folder / "escaped").exists()


@needs_bubblewrap
async def test_a_persons_command_over_pi_runs_in_the_configured_sandbox(
    strict_session_starters: StrictSessionStarters, outside_folder: Path
) -> None:
    pi = PiClient(await WebSocketWire.open(strict_session_starters.daemon.pi, None, path="/"))
    await pi.receive()
    created = await pi.execute("create_session", cwd=str(strict_session_starters.workspace))

    await pi.execute("bash", sessionId=created["sessionId"], command=f"touch {outside_folder}/escaped; touch inside")

    assert (strict_session_starters.workspace / "inside").exists()
    assert not (outside_folder / "escaped").exists()
    state = await pi.execute("get_state", sessionId=created["sessionId"])
    assert state["sandbox"] == "bubblewrap"
    pi.wire.abort()


@needs_bubblewrap
async def test_a_program_gets_the_configured_sandbox(
    strict_session_starters: StrictSessionStarters, outside_folder: Path
) -> None:
    """Relay's `rpc.run.start` starts one, and MiniCodex does."""
    web = CheckedHttp(strict_session_starters.daemon.http, strict_session_starters.daemon.token)
    here = next(host["id"] for host in web.get("/hosts") if host["is_this_daemon"])
    app = await CheckedApp.open(strict_session_starters.daemon.http, strict_session_starters.daemon.token)
    run_id = await app.start(here, f"touch {outside_folder}/escaped; touch inside", cwd=str(strict_session_starters.workspace))
    row = await asyncio.to_thread(web.wait_for_row, run_id, lambda row: row["status"] == "exited")
    mini = await MiniCodexClient.open(
        strict_session_starters.daemon.http,
        strict_session_starters.daemon.token,
        cwd=str(strict_session_starters.workspace),
        command="true",
    )
    await mini.send_hello()

    assert row["sandbox"] == "bubblewrap"
    assert (strict_session_starters.workspace / "inside").exists()
    assert not (outside_folder / "escaped").exists()
    assert await get_sandbox(strict_session_starters.push, mini.session_id) == "bubblewrap"
    mini.wire.abort()
    app.wire.abort()


@needs_bubblewrap
async def test_a_command_from_afar_runs_in_the_sandbox_of_its_session(
    strict_session_starters: StrictSessionStarters, outside_folder: Path
) -> None:
    """Relay's `rpc.bash`, approved."""
    web = CheckedHttp(strict_session_starters.daemon.http, strict_session_starters.daemon.token)
    here = next(host["id"] for host in web.get("/hosts") if host["is_this_daemon"])
    app = await CheckedApp.open(strict_session_starters.daemon.http, strict_session_starters.daemon.token)
    run_id = await app.start(here, "sleep 60", cwd=str(strict_session_starters.workspace))
    await app.subscribe(run_id)
    await app.send_command("rpc.bash", run_id, request_id="b-1", cmd=f"touch {outside_folder}/escaped; touch inside")
    asked = await app.next_of_type("run.permission_requested", run_id)

    await app.send_command("run.permission.approve", run_id, request_id=asked["data"]["request_id"])
    answer = await app.wait_for_answer("b-1")

    assert answer["ok"], answer
    assert (strict_session_starters.workspace / "inside").exists()
    assert not (outside_folder / "escaped").exists()
    app.wire.abort()


@needs_bubblewrap
async def test_a_flow_gets_the_configured_sandbox(strict_session_starters: StrictSessionStarters) -> None:
    flow = {"document": make_document([make_node("a", "log", message="hi")])}

    answer = await strict_session_starters.push.request_payload(
        "start_session", make_start_request(strict_session_starters.workspace, engine="flow", provider="flow", flow=flow)
    )

    assert await get_sandbox(strict_session_starters.push, answer["sessionId"]) == "bubblewrap"


@needs_bubblewrap
async def test_less_than_the_setting_is_refused_with_an_owners_token(
    strict_session_starters: StrictSessionStarters, connect: Connect
) -> None:
    client = await connect(strict_session_starters.daemon, "websocket")

    answer = await client.request("start_session", make_start_payload(strict_session_starters.workspace, sandboxProvider="local"))

    assert answer.code == "SANDBOX_UNAVAILABLE"
    assert answer.error is not None
    assert "`local` is less" in answer.error["message"]
    assert not (await client.request_payload("list_sessions", {"limit": 10}))["sessions"]


@needs_bubblewrap
async def test_the_owners_own_socket_may_name_less(strict_session_starters: StrictSessionStarters, outside_folder: Path) -> None:
    started = await strict_session_starters.push.start_session(strict_session_starters.workspace, sandboxProvider="local")

    await strict_session_starters.push.run(started.session_id, f"run: touch {outside_folder}/wanted")

    assert (outside_folder / "wanted").exists()
    assert await get_sandbox(strict_session_starters.push, started.session_id) == "local"


@needs_bubblewrap
async def test_a_fork_keeps_the_sandbox_of_its_session(strict_session_starters: StrictSessionStarters) -> None:
    local = await strict_session_starters.push.start_session(strict_session_starters.workspace, sandboxProvider="local")
    await strict_session_starters.push.run(local.session_id, "say: hi")
    boxed = await strict_session_starters.start_over_push(strict_session_starters.push)
    await strict_session_starters.push.run(boxed, "say: hi")

    forks = [
        (await strict_session_starters.push.request_payload("fork_session", {"sessionId": one}, session_id=one))["sessionId"]
        for one in (local.session_id, boxed)
    ]

    assert [await get_sandbox(strict_session_starters.push, fork) for fork in forks] == ["local", "bubblewrap"]


@needs_bubblewrap
async def test_the_command_line_leaves_the_sandbox_to_the_daemon(
    strict_session_starters: StrictSessionStarters, outside_folder: Path
) -> None:
    """The settings of the shell that `tower run` is called in are not the daemon's."""
    environment = {**strict_session_starters.daemon.environment, "TOWER_SANDBOX": "local"}

    def tower(*arguments: str) -> str:
        words = [sys.executable, "-P", "-m", "switchtower", *arguments]
        ended = processes.run(words, cwd=strict_session_starters.workspace, env=environment, capture_output=True, timeout=TIMEOUT)
        return str(ended.stderr.decode())

    told = await asyncio.to_thread(tower, "run", "--headless", f"run: touch {outside_folder}/escaped; touch inside")
    chosen = await asyncio.to_thread(tower, "run", "--headless", "--sandbox", "local", f"run: touch {outside_folder}/wanted")

    assert "sandbox bubblewrap" in told
    assert (strict_session_starters.workspace / "inside").exists()
    assert not (outside_folder / "escaped").exists()
    assert "sandbox local" in chosen
    assert (outside_folder / "wanted").exists()


# The default


@needs_bubblewrap
async def test_by_default_an_agent_is_sandboxed_and_a_persons_program_is_not(
    start_daemon: StartDaemon, connect: Connect, workspace: Path
) -> None:
    client = await connect(start_daemon(sandbox="auto"))

    agent = await client.request_payload("start_session", make_start_request(workspace))
    program = await client.request_payload("start_session", make_start_request(workspace, engine="pty", command=["true"]))

    assert await get_sandbox(client, agent["sessionId"]) == "bubblewrap"
    assert await get_sandbox(client, program["sessionId"]) == "local"
    cards = (await client.request_payload("list_cards", {"limit": 100}))["cards"]
    assert {card["sandbox"] for card in cards if card["sessionId"] == agent["sessionId"]} == {"bubblewrap"}


class DaemonWithoutBubblewrap(ManagedDaemon):
    """Finds a `bwrap` that does not work."""

    @property
    def environment(self) -> dict[str, str]:
        programs = self.home / "programs"
        programs.mkdir(exist_ok=True)
        (programs / "bwrap").write_text("#!/bin/sh\necho 'bwrap: no user namespaces here' >&2\nexit 1\n")
        (programs / "bwrap").chmod(stat.S_IRWXU)
        return {**super().environment, "PATH": f"{programs}:{os.environ['PATH']}"}


@pytest.fixture
def daemon_without_bubblewrap() -> Iterator[Any]:
    started: list[ManagedDaemon] = []

    def start(**settings: object) -> ManagedDaemon:
        started.append(DaemonWithoutBubblewrap(**settings))
        return started[-1].start()

    yield start
    for daemon in started:
        daemon.discard()


async def test_where_no_sandbox_can_be_had_the_session_says_so(
    daemon_without_bubblewrap: Any, connect: Connect, workspace: Path
) -> None:
    client = await connect(daemon_without_bubblewrap(sandbox="auto"))

    session_id = (await client.request_payload("start_session", make_start_request(workspace)))["sessionId"]

    warned = (await client.read_until("warning"))[-1].payload
    assert warned["code"] == "NO_SANDBOX"
    assert "no user namespaces here" in warned["message"]
    assert await get_sandbox(client, session_id) == "local"


async def test_a_sandbox_that_was_chosen_is_never_replaced_by_less(
    daemon_without_bubblewrap: Any, connect: Connect, workspace: Path
) -> None:
    client = await connect(daemon_without_bubblewrap(sandbox="bubblewrap"))

    answer = await client.request("start_session", make_start_request(workspace))

    assert answer.code == "SANDBOX_UNAVAILABLE"


def test_the_doctor_says_where_agents_commands_run(daemon_without_bubblewrap: Any) -> None:
    daemon = daemon_without_bubblewrap(sandbox="auto")
    words = [sys.executable, "-P", "-m", "switchtower", "doctor"]

    told = processes.run(words, env=daemon.environment, capture_output=True, timeout=TIMEOUT).stdout.decode()

    assert "agents' commands run without a sandbox" in told
