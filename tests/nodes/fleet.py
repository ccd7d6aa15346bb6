"""A tower of several nodes: each a process with a home and a name of its own, behind a gate to the one database they share.

Its state is known from outside: signals, sockets, and the tables of homes and nodes, read past all gates.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.crash.tower_process import DaemonProcess, RawPushClient
from tests.nodes import gate as gates

from switchtower.core.ports import cluster
from switchtower.stores.postgres import database
from switchtower.stores.postgres.leases import PostgresLeases
from switchtower.testing.postgres_server import PostgresServer

COUNT = 3
TIMEOUT = 60.0
"""For what must happen; generous, because the machine may be busy with other tests."""
POLL = 0.01
_TROUBLES = ("JournalUnavailable", "LeasesUnavailable", "RegistryUnavailable", "Fenced", "HomeUnreachable")
"""What a node may have to say about the others and the database."""

Look = Callable[[], Any]


class NodeProcess:
    """One seat of the fleet: the process in it may be killed, and another takes its place."""

    def __init__(self, name: str, home: Path, gate: gates.DatabaseProxy, dsn: str, settings: dict[str, object]) -> None:
        self.name = name
        self.home = home
        self.gate = gate
        self.dsn = dsn
        self.settings = settings
        self.source: Path | None = None
        """Whose program runs, where it is not the one that is tested."""
        self.daemon: DaemonProcess | None = None
        self.busy = False
        """Something is being done to it."""

    @property
    def socket(self) -> Path:
        return self.home / "run" / "pushd.sock"

    @property
    def endpoints(self) -> dict[str, Any]:
        return dict(json.loads((self.home / "run" / "endpoints.json").read_bytes()))

    @property
    def log(self) -> str:
        return (self.home / "logs" / "tower.log").read_text()

    @property
    def bugs(self) -> list[str]:
        """What its log tells of that is nobody's fault but ours."""
        records = re.split(r"^(?=\d{4}-\d\d-\d\d )", self.log, flags=re.MULTILINE)
        raised = [record.rstrip().rpartition("\n")[2] for record in records if "\nTraceback " in record]
        return [said for said in raised if said.partition(":")[0].rpartition(".")[2] not in _TROUBLES]

    async def start(self) -> None:
        assert self.daemon is None
        self.daemon = _make_daemon(self)
        await self.daemon.wait_listening()

    def kill(self) -> None:
        """As a crash: at once, and nobody is told."""
        if self.daemon is not None:
            daemon, self.daemon = self.daemon, None
            daemon.kill()
            daemon.end()

    async def stop(self) -> int:
        assert self.daemon is not None
        daemon, self.daemon = self.daemon, None
        return await daemon.stop()

    def pause(self) -> None:
        assert self.daemon is not None
        self.daemon.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.daemon is not None
        self.daemon.process.send_signal(signal.SIGCONT)


def _make_daemon(node: NodeProcess) -> DaemonProcess:
    settings = {"http": "127.0.0.1:0", "demo_delay_ms": 0, "node_listen": "127.0.0.1:0", **node.settings}
    kind = DaemonProcess if node.source is None else partial(OtherVersionDaemon, node.source)
    return kind(node.home, store=node.dsn, node_name=node.name, **settings)


class OtherVersionDaemon(DaemonProcess):
    """One whose program is not the one that is tested: its Python begins with nothing of ours."""

    def __init__(self, source: Path, home: Path, **settings: object) -> None:
        self.home = home
        self.socket = home / "run" / "pushd.sock"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TOWER_", "PUSHD_"))}
        given = {f"TOWER_{name.upper()}": str(value) for name, value in {"pi": "off", **settings}.items()}
        self._announced, announce = os.pipe()
        try:
            self.process = subprocess.Popen(  # type: ignore[assignment]
                [sys.executable, "-c", _SERVE, str(announce)],
                env={**inherited, "PYTHONPATH": str(source), "TOWER_HOME": str(home), **given},
                pass_fds=[announce],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        finally:
            os.close(announce)


_SERVE = """
import os, sys
from switchtower import config
from switchtower.daemon import app
app.run_daemon(config.load(), lambda endpoints: os.write(int(sys.argv[1]), b"listening"))
"""


class ProcessCluster:
    def __init__(self, server: PostgresServer, database: str, folder: Path, **settings: object) -> None:
        self.server = server
        self.dsn = server.make_dsn(database)
        self.folder = folder
        self.workspace = folder / "ws"
        self.workspace.mkdir(exist_ok=True)
        self.nodes: list[NodeProcess] = []
        self.leases = PostgresLeases(self.dsn)
        self._database = database
        self._settings = settings

    async def start(self, count: int = COUNT) -> None:
        await asyncio.gather(*(self.add() for _ in range(count)))
        await self.leases.open()
        await self.wait_until(self.wait_until_joined, "the nodes know each other")

    async def add(self) -> NodeProcess:
        """One more node, which has joined."""
        name = chr(ord("a") + len(self.nodes))
        gate = gates.DatabaseProxy(self.folder / f"{name}-pg", self.server.folder / gates.SOCKET)
        dsn = f"postgresql://postgres@/{self._database}?host={gate.folder}"
        node = NodeProcess(name, self.folder / name, gate, dsn, dict(self._settings))
        self.nodes.append(node)
        await gate.open()
        await node.start()
        return node

    async def close(self) -> None:
        for node in self.nodes:
            node.kill()
            await node.gate.close()
        await self.leases.close()

    # What its tables say

    async def list_alive(self) -> dict[str, cluster.Node]:
        """By name. Of two of one name, which one has left behind, the one that joined last."""
        found = sorted(await self.leases.list_nodes(), key=lambda node: node.joined_at_ms)
        return {node.name: node for node in found if node.is_alive}

    async def wait_until_joined(self) -> bool:
        """All that run are among the living."""
        return set(await self.list_alive()) >= {node.name for node in self.nodes if node.daemon is not None}

    async def find_home(self, session_id: str) -> NodeProcess | None:
        lease = await self.leases.find_owner(session_id)
        if lease is None:
            return None
        names = {node.node_id: node.name for node in await self.leases.list_nodes() if node.is_alive}
        return next((node for node in self.nodes if node.name == names.get(lease.node_id)), None)

    async def ask_database(self, query: str, *values: object) -> list[Any]:
        connection = await database.connect(self.dsn)
        try:
            return await connection.fetch(query, *values)
        finally:
            await connection.close()

    async def wait_until(self, look: Look, what: str) -> Any:
        """Looks again and again: what tells of this is a table."""
        deadline = time.monotonic() + TIMEOUT
        while not (seen := await look()):
            assert time.monotonic() < deadline, f"it does not come about that {what}"
            await asyncio.sleep(POLL)
        return seen

    # Clients

    async def connect(self, node: NodeProcess, **options: Any) -> RawPushClient:
        return await RawPushClient.connect(node.socket, **options)

    async def start_session_on(self, node: NodeProcess, **fields: object) -> tuple[RawPushClient, str]:
        """A session whose home is this node, and who started it."""
        client = await self.connect(node)
        repo = {"rootPath": str(self.workspace), "currentBranch": "main", "defaultBranch": "main"}
        payload = {"mode": "interactive", "provider": "demo", "sandboxProvider": "local", "repo": repo, **fields}
        session_id = str((await client.ask("start_session", payload))["sessionId"])
        home = await self.find_home(session_id)
        assert home is node, f"a session begins where it was asked for, not on {home and home.name}"
        return client, session_id

    def list_others(self, *but: NodeProcess) -> list[NodeProcess]:
        return [node for node in self.nodes if node not in but]
