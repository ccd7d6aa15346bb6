"""A process of a run never acts for the owner, whatever it does to its mark, its parents and its connection. Real daemons, real
processes; once as the user who runs the tests, and once more as an ordinary user when that is root."""

import asyncio
import json
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.crash.tower_process import DaemonProcess
from tests.daemon.conftest import StartDaemon, read_endpoints
from tests.daemon.conftest import home as home
from tests.daemon.conftest import start_daemon_process as start_daemon_process
from tests.daemon.conftest import workspace as workspace
from tests.security import ordinary_user
from tests.security.run_attacker import CLOSED, UNREACHABLE, attempt, everywhere

from switchtower.testing.push_client import PushClient, ReceivedEvent
from switchtower.testing.relay_client import RelayHttp
from switchtower.tools.processes import marks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose process is at the other end")

ATTACKER = Path(__file__).with_name("run_attacker.py")
TIMEOUT = 60.0

AT_PORTS: dict[str, object] = {
    "ws push": 401,
    "ws app": 401,
    "ws minicodex": 401,
    "ws pi": 401,
    "ws host": 403,
    "http": 403,
    "pi": 1008,
    "pi with token": 1008,
}
AS_RUN = AT_PORTS | {"push": "ATTACH_FORBIDDEN", "pi socket": CLOSED, "host socket": 403}
"""What a process gets that is known to be of a run."""
UNKNOWN = AT_PORTS | {"push": CLOSED, "pi socket": CLOSED, "host socket": 403}
"""What a process gets whose run cannot be told."""
SOCKETS = ("push", "pi socket", "host socket")


class AttackHarness:
    """A daemon with a session that waits for a decision, and another one whose commands are the attacker's."""

    def __init__(self, home: Path, daemon: DaemonProcess, outside: PushClient, asked: ReceivedEvent) -> None:
        self.home = home
        self.workspace = home / "ws"
        self.daemon = daemon
        self.outside = outside
        self.asked = asked
        self.target = {
            **read_endpoints(home),
            "session": asked.session_id,
            "run": asked.run_id,
            "approval": asked.payload["approvalId"],
        }
        (self.workspace / "target.json").write_text(json.dumps(self.target))
        shutil.copy(ATTACKER, self.workspace / "run_attacker.py")

    def run_attacker(self, way: str = "everywhere") -> str:
        return f"{shlex.quote(sys.executable)} run_attacker.py {way} target.json told.json"

    async def run(self, script: str, **session: Any) -> list[ReceivedEvent]:
        """Runs a script as an approved command of a run, to the run's end."""
        (self.workspace / "attack.sh").write_text(script)
        started = await self.outside.start_session(self.workspace, **session)
        await self.outside.send(started.session_id, "run: sh attack.sh")
        return await self._read_decision(started.session_id)

    async def _read_decision(self, session_id: str) -> list[ReceivedEvent]:
        events = []
        while not events or (events[-1].type, events[-1].session_id) != ("run_complete", session_id):
            event = await self.outside.next_event()
            events.append(event)
            if event.type == "approval_required" and event.session_id == session_id:
                await self.outside.decide(event)
        return events

    def read_attacker_output(self) -> dict[str, Any]:
        found = self.workspace / "told.json"
        return dict(json.loads(found.read_text())) if found.exists() else {}

    async def check_nothing_happened(self) -> None:
        """The other session still waits, as it was."""
        http = RelayHttp(self.target["http"], self.target["token"])
        assert "renamed by a run" not in json.dumps(await http.get("/runs"))
        assert [asked["run_id"] for asked in await http.get("/approvals")] == [self.asked.session_id]
        assert not (self.workspace / "decided").exists()
        assert "host_forged" not in json.dumps(await http.get("/hosts"))


@pytest.fixture
async def attack_harness(
    home: Path, workspace: Path, start_daemon_process: StartDaemon, request: pytest.FixtureRequest
) -> AsyncIterator[AttackHarness]:
    settings = getattr(request, "param", {})
    daemon = await start_daemon_process(http="127.0.0.1:0", pi="127.0.0.1:0", **settings)
    async with AsyncExitStack() as stack:
        outside = await stack.enter_async_context(await PushClient.connect_socket(daemon.socket, timeout=TIMEOUT))
        await outside.send_hello()
        waiting = await outside.start_session(workspace)
        await outside.send(waiting.session_id, "run: touch decided")
        asked = (await outside.read_until("approval_required"))[-1]
        yield AttackHarness(home, daemon, outside, asked)


def make_lowered_command() -> str:
    limit = marks.find_free_limit()
    assert limit is not None
    return f"env -i prlimit {limit.option}=1"


async def test_the_owner_gets_in_everywhere_while_a_run_is_active(attack_harness: AttackHarness) -> None:
    """What the others are refused is not refused to all."""
    running = asyncio.create_task(attack_harness.run("touch running; while [ ! -e told ]; do sleep 0.05; done"))
    async with asyncio.timeout(TIMEOUT):
        while not (attack_harness.workspace / "running").exists():
            await asyncio.sleep(0)
    assert await everywhere(attack_harness.target) == {
        "push": "approved",
        "ws push": "open",
        "ws app": "open",
        "ws minicodex": "open",
        "ws pi": "open",
        "ws host": "open",
        "http": 204,
        "pi": "server_ready",
        "pi with token": "server_ready",
        "pi socket": "server_ready",
        "host socket": 404,
    }, "at the last one it is let in, and names an approval by an id that relay does not have"
    (attack_harness.workspace / "told").touch()
    await running


async def test_a_plain_process_of_a_run_is_refused(attack_harness: AttackHarness) -> None:
    await attack_harness.run(attack_harness.run_attacker())
    assert attack_harness.read_attacker_output() == AS_RUN
    await attack_harness.check_nothing_happened()


async def test_one_that_has_lowered_its_number_and_dropped_its_environment_is_refused(attack_harness: AttackHarness) -> None:
    await attack_harness.run(f"{make_lowered_command()} {attack_harness.run_attacker()}")
    assert attack_harness.read_attacker_output() == AS_RUN
    await attack_harness.check_nothing_happened()


async def test_one_whose_descriptors_cannot_be_listed_is_refused(attack_harness: AttackHarness) -> None:
    await attack_harness.run(f"{make_lowered_command()} {attack_harness.run_attacker('unreadable')}")
    assert attack_harness.read_attacker_output() == AS_RUN
    await attack_harness.check_nothing_happened()


@pytest.mark.parametrize("prefix", ["setsid env -i", "setsid {lowered}"])
async def test_an_orphan_that_the_daemon_has_adopted_is_refused(attack_harness: AttackHarness, prefix: str) -> None:
    await attack_harness.run(
        f"({prefix.format(lowered=make_lowered_command())} {attack_harness.run_attacker()} &)\n"
        "while [ ! -e told.json ]; do sleep 0.05; done"
    )
    assert attack_harness.read_attacker_output() in (UNKNOWN, AS_RUN)
    await attack_harness.check_nothing_happened()


async def test_a_child_that_connects_and_ends_lends_its_parent_nothing(attack_harness: AttackHarness) -> None:
    await attack_harness.run(f"{make_lowered_command()} {attack_harness.run_attacker('connected_by_a_child')}")
    assert set(attack_harness.read_attacker_output()["push"]) <= {"ATTACH_FORBIDDEN", CLOSED}
    await attack_harness.check_nothing_happened()


async def test_a_child_that_asks_and_ends_is_not_heard(attack_harness: AttackHarness) -> None:
    """With the daemon kept busy, so that it looks late."""
    busy = asyncio.Event()

    async def keep_busy() -> None:
        http = RelayHttp(attack_harness.target["http"], attack_harness.target["token"])
        while not busy.is_set():
            await asyncio.gather(*(http.get("/runs") for _ in range(8)))

    keeping = asyncio.create_task(keep_busy())
    try:
        await attack_harness.run(f"{make_lowered_command()} {attack_harness.run_attacker('asked_by_a_child_that_ends')}")
    finally:
        busy.set()
        await keeping
    await attack_harness.check_nothing_happened()


async def test_a_connection_on_its_way_between_two_processes_is_refused(attack_harness: AttackHarness) -> None:
    await attack_harness.run(f"{make_lowered_command()} {attack_harness.run_attacker('passed_in_flight')}")
    assert attack_harness.read_attacker_output() == {"http": [403]}
    await attack_harness.check_nothing_happened()


async def test_by_another_address_of_the_machine_it_is_refused_too(
    home: Path, workspace: Path, start_daemon_process: StartDaemon
) -> None:
    """Not only loopback leads here."""
    daemon = await start_daemon_process(http="0.0.0.0:0", pi="off", origins="*")
    async with await PushClient.connect_socket(daemon.socket, timeout=TIMEOUT) as outside:
        await outside.send_hello()
        waiting = await outside.start_session(workspace)
        await outside.send(waiting.session_id, "run: touch decided")
        stage = AttackHarness(home, daemon, outside, (await outside.read_until("approval_required"))[-1])
        address = _get_own_address()
        if address is None:
            pytest.skip("this machine has no address but loopback's")
        elsewhere = stage.target | {"http": stage.target["http"].replace("127.0.0.1", address), "pi": "ws://127.0.0.1:9"}
        (workspace / "target.json").write_text(json.dumps(elsewhere))
        await stage.run(stage.run_attacker())
        told = stage.read_attacker_output()
        assert {name: told[name] for name in AT_PORTS if not name.startswith("pi")} == {
            name: status for name, status in AT_PORTS.items() if not name.startswith("pi")
        }
        await stage.check_nothing_happened()


def _get_own_address() -> str | None:
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; tells which address we would send from
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address


# From inside a sandbox

WHY_NOT = (
    "bubblewrap is not installed"
    if shutil.which("bwrap") is None
    else "this Python lies below /tmp, which is another folder in a sandbox"
    if Path(sys.executable).is_relative_to("/tmp")
    else None
)
needs_bubblewrap = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


@needs_bubblewrap
@pytest.mark.parametrize("attack_harness", [{"sandbox_network": "true"}], indirect=True)
@pytest.mark.parametrize("prefix", ["", "lowered"])
async def test_in_a_sandbox_with_network_the_ports_are_useless(attack_harness: AttackHarness, prefix: str) -> None:
    command = f"{make_lowered_command() if prefix else ''} {attack_harness.run_attacker()}"
    await attack_harness.run(command, sandboxProvider="bubblewrap")
    assert attack_harness.read_attacker_output() == AT_PORTS | dict.fromkeys(SOCKETS, UNREACHABLE)
    await attack_harness.check_nothing_happened()


@needs_bubblewrap
async def test_in_a_sandbox_without_network_nothing_is_reached(attack_harness: AttackHarness) -> None:
    await attack_harness.run(attack_harness.run_attacker(), sandboxProvider="bubblewrap")
    assert attack_harness.read_attacker_output() == dict.fromkeys(AS_RUN, UNREACHABLE)
    await attack_harness.check_nothing_happened()


# A person's own commands


async def test_a_persons_own_command_is_the_owners_also_while_a_run_is_active(attack_harness: AttackHarness) -> None:
    from switchtower.testing.pi_client import PiClient
    from switchtower.testing.wire import WebSocketWire

    running = asyncio.create_task(attack_harness.run("touch running; while [ ! -e told ]; do sleep 0.05; done"))
    async with asyncio.timeout(TIMEOUT):
        while not (attack_harness.workspace / "running").exists():
            await asyncio.sleep(0)
    wire = await WebSocketWire.open(attack_harness.target["pi"].replace("ws://", "http://"), None, path="/")
    async with PiClient(wire, timeout=TIMEOUT) as pi:
        assert (await pi.receive())["type"] == "server_ready"
        made = await pi.execute("create_session", cwd=str(attack_harness.workspace))
        await pi.execute("switch_session", sessionId=made["sessionId"])
        ran = await pi.execute("bash", sessionId=made["sessionId"], command=attack_harness.run_attacker())
        assert ran["exitCode"] == 0
    told = attack_harness.read_attacker_output()
    assert (told["ws push"], told["http"], told["pi"]) == ("open", 204, "server_ready")
    assert told["push"] == "approved"
    (attack_harness.workspace / "told").touch()
    await running


async def test_nothing_is_refused_for_want_of_a_process_when_there_is_no_listener(attack_harness: AttackHarness) -> None:
    """The attacker's report tells a listener that refuses from one that is not there."""
    import asyncio as loop

    assert await attempt(loop.open_connection("127.0.0.1", 1)) == UNREACHABLE


def test_all_of_this_holds_for_an_ordinary_user() -> None:
    ordinary_user.run_tests(str(Path(__file__)))
