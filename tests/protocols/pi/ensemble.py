"""A conductor with everything around it in memory: the ports' doubles keep what they were told, in the order they were told.

A handler is whatever a test says it is; `stalled` makes one that waits until the test lets it go.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from switchtower.core import errors
from switchtower.core.ports import journal
from switchtower.protocols.pi import inbound, messages
from switchtower.protocols.pi.dispatch import ports
from switchtower.protocols.pi.dispatch.dispatcher import CommandDispatcher
from switchtower.protocols.pi.dispatch.limits import DispatchLimits
from switchtower.protocols.pi.errors import PiCommandError

Handle = Callable[[inbound.PiRequest], ports.HandlerResult | Awaitable[ports.HandlerResult]]
UNLIMITED = DispatchLimits(session_rate=0, client_rate=0)


class FakePiClient:
    def __init__(self, dispatcher_harness: "DispatcherHarness", key: str, namespace: str) -> None:
        self.key = key
        self.namespace = namespace
        self.responses: list[dict[str, Any]] = []
        self._harness = dispatcher_harness
        self._numbers = itertools.count(1)
        self.replays: list[tuple[str, str | None]] = []

    def find_objection(self, request: inbound.PiRequest) -> str | None:
        return None

    def on_replay(self, command: str, session_id: str | None) -> None:
        self.replays.append((command, session_id))

    def respond(self, frame: bytes) -> None:
        response = msgspec.json.decode(frame)
        self.responses.append(response)
        self._harness.hear("response", response)

    def send(self, type_: str, **fields: Any) -> None:
        self._harness.conductor.receive(msgspec.json.encode({"type": type_, **fields}), self)

    async def ask(self, type_: str, **fields: Any) -> dict[str, Any]:
        """Sends one command and returns its answer, which must be the next one."""
        place = len(self.responses)
        self.send(type_, **fields)
        await self._harness.wait_until(lambda: len(self.responses) > place)
        return self.responses[place]


class FakeOutcomeStore:
    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.settlements: list[ports.Settlement] = []
        self.receipts: dict[str, journal.Receipt] = {}
        self.gate: asyncio.Event | None = None
        self.broken = False
        self.waited: dict[str, float] = {}
        self.outliving: set[str] = set()

    def measure_user_wait(self, session_id: str) -> float:
        return self.waited.get(session_id, 0.0)

    def is_run_durable(self, session_id: str) -> bool:
        return session_id in self.outliving

    def get_version(self, session_id: str) -> int | None:
        return self.versions.get(session_id)

    async def settle(self, settlement: ports.Settlement) -> int | None:
        if self.gate is not None:
            await self.gate.wait()
        else:
            await asyncio.sleep(0)
        if self.broken:
            raise errors.JournalUnavailable("the disk is full")
        self.settlements.append(settlement)
        self.keep(settlement.receipts)
        if settlement.advances:
            self.versions[settlement.session_id] += 1
        return self.versions.get(settlement.session_id)

    def keep(self, receipts: Iterable[journal.Receipt]) -> None:
        for receipt in receipts:
            # As a store would: through bytes and back.
            self.receipts[receipt.key] = msgspec.json.decode(msgspec.json.encode(receipt), type=journal.Receipt)


class DispatcherHarness:
    def __init__(
        self, limits: DispatchLimits = UNLIMITED, ledger: FakeOutcomeStore | None = None, now_ms: int = 1_000_000
    ) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.announced: list[bytes] = []
        self.handles: dict[str, Handle] = {}
        self.began: list[str | None] = []
        """The ids of the commands whose handlers were called, in order."""
        self.ledger = ledger or FakeOutcomeStore()
        self.ledger.versions.setdefault("s", 0)
        self.now_ms = now_ms
        self._changed = asyncio.Event()
        self._escaped: list[dict[str, Any]] = []
        """Exceptions that reached the event loop: there must be none."""
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self._escaped.append(context))
        handlers = dict.fromkeys(messages.COMMANDS, self._handle)
        self.conductor = CommandDispatcher(handlers, self.ledger, self, limits=limits, now_ms=lambda: self.now_ms)

    def make_client(self, key: str = "client", namespace: str = "") -> FakePiClient:
        return FakePiClient(self, key, namespace)

    def _handle(
        self, request: inbound.PiRequest, client: ports.DispatchClient
    ) -> ports.HandlerResult | Awaitable[ports.HandlerResult]:
        self.began.append(request.id)
        handle = self.handles.get(request.id or "") or self.handles.get(request.type)
        return handle(request) if handle is not None else ports.HandlerResult({"of": request.id})

    def stall_handler(
        self, name: str, result: ports.HandlerResult | Exception | None = None
    ) -> asyncio.Future[ports.HandlerResult]:
        """The handler of this id or type waits until the future has a result."""
        future: asyncio.Future[ports.HandlerResult] = asyncio.get_running_loop().create_future()
        self.handles[name] = lambda _: future
        return future

    def finish_handler(self, name: str, *, is_run: bool = False) -> asyncio.Future[ports.HandlerResult]:
        """The handler of this id or type is done at once, but its command goes on until the future has a result."""
        future: asyncio.Future[ports.HandlerResult] = asyncio.get_running_loop().create_future()
        self.handles[name] = lambda _: ports.HandlerResult(rest=future, is_run=is_run)
        return future

    def refuse_handler(self, name: str, error: str) -> None:
        def refuse(_: inbound.PiRequest) -> ports.HandlerResult:
            raise PiCommandError(error)

        self.handles[name] = refuse

    # The bulletin

    def broadcast_lifecycle(self, frame: bytes) -> None:
        event = msgspec.json.decode(frame)
        assert set(event) == {"type", "data"}
        self.hear(event["type"], event["data"])

    def broadcast(self, frame: bytes) -> None:
        self.announced.append(frame)
        self.hear("announcement", {"frame": frame})

    def hear(self, kind: str, data: dict[str, Any]) -> None:
        self.heard.append((kind, data))
        self._changed.set()

    # What tests look at

    async def wait_until(self, met: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not met():
                self._changed.clear()
                await self._changed.wait()
        assert self._escaped == []

    async def wait_finished(self, id_: str) -> dict[str, Any]:
        await self.wait_until(lambda: "command_finished" in self.list_phases(id_))
        return next(data for kind, data in self.heard if kind == "command_finished" and data["commandId"] == id_)

    def list_phases(self, id_: str) -> list[str]:
        """What was heard of one command, in order."""
        return [
            kind for kind, data in self.heard if data.get("commandId") == id_ or (kind == "response" and data.get("id") == id_)
        ]
