"""The load: people who start sessions, send messages, decide and watch, each on whichever node answers.

A person holds one view of a session at a time, and goes from node to node with its cursor. What has an identity is asked again,
elsewhere, until it is answered; what has none is left at that.
"""

import asyncio
import random
import time
from typing import Any

from tests.crash.tower_process import AnyPushFrame, PushConnectionLost, PushRequestRefused, RawPushClient
from tests.nodes.fleet import TIMEOUT, NodeProcess, ProcessCluster
from tests.nodes.ledger import ClusterCommand, ClusterOracle

OUR_OWN_BUG = "The daemon failed at this"
PAUSE = 0.02
PLANS = (
    *[("stream", "count 60"), ("cancel", "count 400"), ("list", "list .")],
    *[("approve", "write {file}: {number}"), ("approve", "list .\nrun: echo {number} >> {file}")] * 2,
    *[("leave", "write {file}: {number}"), ("leave", "run: echo {number} >> {file}"), ("deny", "write {file}: {number}")],
)


def is_passing(refusal: PushRequestRefused) -> bool:
    """Whether to ask again, here or elsewhere: the tower could not say, rather than say no."""
    assert not str(refusal.args[0]["message"]).startswith(OUR_OWN_BUG), f"a bug, which a node's log tells of: {refusal}"
    return refusal.retryable or refusal.code == "INTERNAL_ERROR"


class RetryBudget:
    def __init__(self, what: str) -> None:
        self._what = what
        self._deadline = time.monotonic() + TIMEOUT
        self.heard: object = None
        """The last that was said against it."""

    async def wait(self) -> None:
        assert time.monotonic() < self._deadline, f"no node lets it happen: {self._what}; {self.heard}"
        await asyncio.sleep(PAUSE)


class LoadSessionView:
    """One client's view of one session. What it is told comes in order, whole and once, over however many connections."""

    def __init__(self, process_cluster: ProcessCluster, ledger: ClusterOracle, dice: random.Random, short: float) -> None:
        self.cluster, self.ledger, self.dice = process_cluster, ledger, dice
        self.session_id = ""
        self.frames: list[AnyPushFrame] = []
        self.last_seq = 0
        self._short = short
        """How long a node is waited for that says nothing."""
        self._client: RawPushClient | None = None
        self._node: NodeProcess | None = None

    async def begin(self) -> None:
        """A new session. Nobody can tell what became of one that was asked for in vain."""
        patience = RetryBudget("a session starts")
        while True:
            client = await self._connect()
            try:
                async with asyncio.timeout(self._short):
                    session_id = await client.start_session(self.ledger.workspace)
            except (PushConnectionLost, TimeoutError):
                pass
            except PushRequestRefused as refusal:
                if not is_passing(refusal):
                    raise
            else:
                assert self.session_id in ("", session_id)
                self.session_id = session_id
                self.ledger.record_started(session_id)
                return
            self.leave()
            self.session_id, self.last_seq = "", 0
            self.frames.clear()
            await patience.wait()

    def resume(self, session_id: str, last_seq: int) -> None:
        self.session_id, self.last_seq = session_id, last_seq

    async def ask(self, type_: str, **payload: object) -> dict[str, Any]:
        """Asked again until there is an answer. Raises `Refused` for a no."""
        patience = RetryBudget(f"{type_} {payload} in {self.session_id}")
        while True:
            client = await self._attach()
            try:
                return await self._answer(client, type_, payload)
            except (PushConnectionLost, TimeoutError):
                self.leave()
            except PushRequestRefused as refusal:
                if not is_passing(refusal):
                    raise
                if self.dice.random() < 0.5:
                    self.leave()
            await patience.wait()

    async def _answer(self, client: RawPushClient, type_: str, payload: dict[str, object]) -> dict[str, Any]:
        async with asyncio.timeout(self._short):
            answer = await client.start_request(type_, dict(payload), self.session_id)
        if not answer.ok:
            assert answer.error is not None
            raise PushRequestRefused(answer.error)
        return answer.content

    async def wait_for_event(self, *types: str, run_id: str) -> AnyPushFrame:
        """The first of these types in the run, wherever it has to be heard."""
        patience = RetryBudget(f"{types} of {run_id} in {self.session_id} is told")
        looked_at = 0

        def found() -> bool:
            nonlocal looked_at
            while looked_at < len(self.frames):
                looked_at += 1
                frame = self.frames[looked_at - 1]
                if frame.type in types and frame.runId == run_id:
                    return True
            return False

        while True:
            if found():
                return self.frames[looked_at - 1]
            client = await self._attach()
            try:
                async with asyncio.timeout(self._short):
                    await client.wait_until(lambda: looked_at < len(self.frames))
            except (PushConnectionLost, TimeoutError):
                self.leave()
                await patience.wait()

    def leave(self) -> None:
        if self._client is not None:
            client, self._client, self._node = self._client, None, None
            client.close()

    async def _connect(self) -> RawPushClient:
        patience = RetryBudget("somebody connects")
        while True:
            self._node = self.dice.choice(self.cluster.nodes)
            try:
                self._client = await RawPushClient.connect(self._node.socket, self._record_frame)
                return self._client
            except PushConnectionLost:
                await patience.wait()

    async def _attach(self) -> RawPushClient:
        patience = RetryBudget(f"somebody attaches to {self.session_id}")
        while self._client is None or self._client.closed.is_set():
            self.leave()
            client = await self._connect()
            try:
                answer = await self._answer(client, "attach_session", {"lastSeenSeq": self.last_seq})
                assert answer["replay"]["gap"] is False
                self.ledger.seen["attached"] += 1
            except (PushConnectionLost, TimeoutError):
                self.leave()
                await patience.wait()
            except PushRequestRefused as refusal:
                self.leave()
                if not is_passing(refusal):
                    raise
                await patience.wait()
        return self._client

    def _record_frame(self, line: bytes, frame: AnyPushFrame) -> None:
        self.session_id = self.session_id or frame.sessionId
        assert frame.sessionId == self.session_id
        assert frame.seq == self.last_seq + 1, (
            f"{self.session_id} on {self._node and self._node.name}: seq {frame.seq} came after {self.last_seq}"
        )
        self.last_seq = frame.seq
        self.frames.append(frame)
        self.ledger.record_event(line, frame)


class LoadGenerator:
    def __init__(self, process_cluster: ProcessCluster, ledger: ClusterOracle, seed: int, short: float) -> None:
        self.cluster, self.ledger = process_cluster, ledger
        self.dice = random.Random(seed)
        self._short = short
        self._working: list[asyncio.Task[None]] = []
        self._stopping = False
        self._free: list[tuple[str, int]] = []
        """Sessions in which nothing is under way, with the last seq that somebody saw."""
        self._left: list[tuple[ClusterCommand, str]] = []
        """Messages whose question nobody has decided, with it."""

    def start(self, count: int) -> None:
        self._working = [asyncio.create_task(self._run_user()) for _ in range(count)]

    def check(self) -> None:
        """Raises what went wrong for any of them."""
        for worker in self._working:
            if worker.done():
                worker.result()

    async def finish(self) -> None:
        """Returns when each has finished what they were at, and every question is answered."""
        self._stopping = True
        await asyncio.gather(*self._working)
        while self._left:
            await self._take_up(*self._left.pop())

    async def stop(self) -> None:
        for worker in self._working:
            worker.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    async def _run_user(self) -> None:
        while not self._stopping:
            if len(self._left) > 6 or (self._left and self.dice.random() < 0.15):
                await self._take_up(*self._left.pop(self.dice.randrange(len(self._left))))
            else:
                await self._run_turn()

    def _open_view(self) -> LoadSessionView:
        return LoadSessionView(self.cluster, self.ledger, self.dice, self._short)

    async def _run_turn(self) -> None:
        view = self._open_view()
        try:
            if self._free and self.dice.random() < 0.6:
                view.resume(*self._free.pop(self.dice.randrange(len(self._free))))
            else:
                await view.begin()
            message = self.ledger.note(view.session_id, *self.dice.choice(PLANS))
            run_id = await self._send(view, message)
            if self.dice.random() < 0.3:
                view.leave()
            if self.dice.random() < 0.2:
                await self._send(view, message)
                self.ledger.seen["sent twice"] += 1
            if message.plan == "cancel":
                await self._cancel(view, run_id)
            frame = await view.wait_for_event("approval_required", "run_complete", run_id=run_id)
            if frame.type == "approval_required":
                if message.plan == "leave":
                    self._left.append((message, frame.content["approvalId"]))
                    return
                await self._decide_concurrently(message, run_id, frame.content["approvalId"])
                await view.wait_for_event("run_complete", run_id=run_id)
            self._free.append((view.session_id, view.last_seq))
        finally:
            view.leave()

    async def _take_up(self, message: ClusterCommand, approval_id: str) -> None:
        """A question that was left, perhaps by a node that is no more: somebody decides, and somebody else hears the end."""
        view = self._open_view()
        view.resume(message.session_id, 0)
        assert message.run_id is not None
        try:
            await self._decide_concurrently(message, message.run_id, approval_id)
            await view.wait_for_event("run_complete", run_id=message.run_id)
            self.ledger.seen["taken up"] += 1
            self._free.append((view.session_id, view.last_seq))
        finally:
            view.leave()

    async def _send(self, view: LoadSessionView, message: ClusterCommand) -> str:
        answer = await view.ask("send_user_message", clientMessageId=message.id, text=message.text)
        self.ledger.record_sent(message, answer["runId"])
        return str(answer["runId"])

    async def _cancel(self, view: LoadSessionView, run_id: str) -> None:
        await view.wait_for_event("assistant_token", "run_complete", run_id=run_id)
        try:
            await view.ask("cancel_run", runId=run_id)
        except PushRequestRefused as refusal:
            if refusal.code != "NO_ACTIVE_RUN":  # over before it could be cancelled
                raise

    async def _decide_concurrently(self, message: ClusterCommand, run_id: str, approval_id: str) -> None:
        """Several decide at once, on nodes of their own: at most one is told that it did."""
        self.ledger.attempted.add(approval_id)
        usual = "deny" if message.plan == "deny" else "approve"
        verdicts = [usual, *self.dice.choices(["approve", "deny"], k=self.dice.randrange(3))]
        won = await asyncio.gather(*(self._decide(message.session_id, run_id, approval_id, verdict) for verdict in verdicts))
        assert sum(won) <= 1, "one decision wins"
        self.ledger.seen["raced"] += len(won) > 1
        self.ledger.seen["won"] += sum(won)

    async def _decide(self, session_id: str, run_id: str, approval_id: str, verdict: str) -> bool:
        """Whether it was told that it decided. Who hears nothing asks again, and is told no if it was heard."""
        patience = RetryBudget(f"{approval_id} in {session_id} is decided")
        while True:
            node: NodeProcess = self.dice.choice(self.cluster.nodes)
            client: RawPushClient | None = None
            try:
                client = await RawPushClient.connect(node.socket)
                async with asyncio.timeout(self._short):
                    await client.decide(session_id, run_id, approval_id, verdict)
                self.ledger.record_decision(approval_id, verdict)
                return True
            except (PushConnectionLost, TimeoutError):
                pass
            except PushRequestRefused as refusal:
                if refusal.code == "APPROVAL_EXPIRED":
                    return False
                if not is_passing(refusal):
                    raise
            finally:
                if client is not None:
                    client.close()
            await patience.wait()
