"""MiniCodex in the load: one session a client, which it follows from node to node, and steers as it goes.

It believes what it is told, and in the end that must be what the tower says the session is.
"""

import asyncio
import json
import random

from tests.nodes.fleet import NodeProcess, ProcessCluster
from tests.nodes.ledger import ClusterCommand, ClusterOracle
from tests.nodes.people import RetryBudget

from switchtower.testing import minicodex_client
from switchtower.testing.minicodex_client import Frame, MiniCodexClient
from switchtower.testing.wire import UpgradeRefused

GONE = (EOFError, OSError, TimeoutError, asyncio.IncompleteReadError, UpgradeRefused)
PASSING = ("UNAVAILABLE", "BUSY")


class MiniCodexLoad:
    def __init__(self, process_cluster: ProcessCluster, ledger: ClusterOracle, dice: random.Random, short: float) -> None:
        self.cluster, self.ledger, self.dice = process_cluster, ledger, dice
        self.view = minicodex_client.FoldedSession()
        self._short = short
        self._client: MiniCodexClient | None = None
        self._working: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        self._working = asyncio.create_task(self._run())

    def check(self) -> None:
        if self._working is not None and self._working.done():
            self._working.result()

    async def finish(self) -> None:
        """Finishes, and compares what it holds with what each node says that there is."""
        self._stopping = True
        assert self._working is not None
        await self._working
        for node in self.cluster.nodes:
            snapshot = await self._fetch_snapshot(node)
            assert snapshot == self.view.build_snapshot(), f"its view is not the session's as {node.name} has it"
        self.leave()

    async def _fetch_snapshot(self, node: NodeProcess) -> Frame:
        """Whoever is answered has been told all that came before."""
        patience = RetryBudget(f"{node.name} shows a session")
        while True:
            self.leave()
            try:
                return await (await self._connect_to(node)).request_snapshot()
            except GONE:
                await patience.wait()

    async def stop(self) -> None:
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
        self.leave()

    def leave(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            client.wire.abort()

    async def _run(self) -> None:
        while not self._stopping:
            if not self.view.session_state:
                await self._get_client()
            await self._run_turn(self.ledger.note(self.view.session_state["session_id"], "approve", "write {file}: {number}"))

    async def _run_turn(self, message: ClusterCommand) -> None:
        runs = self.view.session_state["run_counter"]
        await self._request_until_answered("send", text=message.text, client_msg_id=message.id)
        self.ledger.record_accepted(message)
        patience = RetryBudget(f"{message} ends")
        while self._runs_ended <= runs:
            state = self.view.run_state
            if state is not None and state["pending_approvals"]:
                if self.dice.random() < 0.3:
                    self.leave()
                await self._request_until_answered("approve", call_id=state["pending_approvals"][0]["call_id"])
            try:
                client = await self._get_client()
                await client.receive()
            except GONE:
                self.leave()
                await patience.wait()
        assert self._runs_ended == runs + 1, "however often it was sent, it ran once"
        self.ledger.seen["MiniCodex runs"] += 1
        if self.dice.random() < 0.5:
            self.leave()

    @property
    def _runs_ended(self) -> int:
        state = self.view.run_state
        is_over = state is None or state["status"] in minicodex_client.ENDED
        return int(self.view.session_state["run_counter"]) - (not is_over)

    async def _request_until_answered(self, type_: str, **fields: object) -> None:
        patience = RetryBudget(f"{type_} {fields}")
        while True:
            try:
                answer = await (await self._get_client()).request(type_, **fields)
                patience.heard = answer
            except GONE:
                self.leave()
            else:
                if answer["type"] == "accepted":
                    return
                code = str(answer["code"])
                if type_ == "approve" and code in ("APPROVAL_CONFLICT", "NOT_RUNNING", "STALE_RUN_ID"):
                    return  # it was heard when nobody could say so any more
                assert code in PASSING, answer
            await patience.wait()

    async def _get_client(self) -> MiniCodexClient:
        patience = RetryBudget("MiniCodex is served")
        while self._client is None:
            try:
                return await self._connect_to(self.dice.choice(self.cluster.nodes))
            except GONE:
                self.leave()
                await patience.wait()
        return self._client

    async def _connect_to(self, node: NodeProcess) -> MiniCodexClient:
        """Comes in for the first time, or comes back to what it holds."""
        try:
            endpoints = node.endpoints
        except (OSError, json.JSONDecodeError) as problem:
            raise EOFError from problem
        known = self.view.session_state.get("session_id")
        place = {"cwd": self.cluster.workspace} if known is None else {"session_id": known}
        async with asyncio.timeout(self._short):
            self._client = client = await MiniCodexClient.open(endpoints["http"], endpoints["token"], ledger=self.view, **place)
            client.timeout = self._short
            if known is None:
                await self._send_hello(client)
            else:
                welcome = await client.resume()
                if welcome["type"] == "error" and welcome["code"] in PASSING:
                    raise EOFError(welcome)
                assert welcome["type"] == "welcome", welcome
        return client

    async def _send_hello(self, client: MiniCodexClient) -> Frame:
        try:
            return await client.send_hello()
        except AssertionError as problem:
            if any(code in str(problem) for code in PASSING):
                raise EOFError from problem
            raise
