"""One home through many lives of its daemon, with the memory of all that clients were told and promised in any of them.

A round is one life: everything remembered is checked, clients go to work, and the daemon is killed at a random moment.
"""

import asyncio
import contextlib
import itertools
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.crash import story
from tests.crash.tower_process import (
    AnyPushFrame,
    DaemonProcess,
    PushConnectionLost,
    PushRequestRefused,
    RawPushClient,
    decode,
    find_run_processes,
)

ACTORS = 5
LONGEST_ROUND = 0.25
RUN_FILES = {"endpoints.json", "pi.sock", "pushd.pid", "pushd.sock", "tower.lock"}


@dataclass
class CrashCommand:
    """One thing that a client has asked for, and what it may do to the world."""

    id: str
    session_id: str
    text: str
    plan: str
    file: Path | None = None
    run_id: str | None = None
    """Set once the daemon has acknowledged it."""

    def count_effects(self) -> int:
        """How often it has happened."""
        if self.file is None or not self.file.exists():
            return 0
        return self.file.read_text().count(self.id)


class CrashScenario:
    def __init__(self, folder: Path, seed: int, **settings: object) -> None:
        self.home = folder
        self.workspace = folder / "ws"
        self.workspace.mkdir()
        self.dice = random.Random(seed)
        self.settings = {"demo_delay_ms": self.dice.choice([0, 0.2]), **settings}
        self.seen: Counter[str] = Counter()
        """How often each kind of thing was met, so that a test can tell that it tested something."""

        self.logs: dict[str, dict[int, bytes]] = {}
        """Every event that any client has received, byte by byte."""
        self.sessions: set[str] = set()
        self.messages: dict[str, CrashCommand] = {}
        self.decisions: dict[str, str] = {}
        """Acknowledged ones, by approval."""
        self.asked: set[str] = set()
        """Approvals that any client has seen."""
        self.attempted: set[str] = set()
        """Approvals that any client has tried to decide, with or without an answer."""
        self.stories: dict[str, dict[str, story.LoggedRun]] = {}

        self.daemon: DaemonProcess | None = None
        self._clients: list[RawPushClient] = []
        self._kill_at: tuple[str | None, int] = (None, 0)
        self._frames: Counter[str] = Counter()
        self._free: list[str] = []
        self._used = 0

    # One life after the other

    async def run_first_life(self) -> None:
        """Leaves one of everything that the later lives are to find: something decided, a question, and work under way."""
        await self.start()
        client = await self.connect()
        for plan, request, last_seen in (
            ("approve", "write {file}: {number}", "run_complete"),
            ("approve", "run: sleep 1000 & sleep 1000", "approval_received"),
            ("leave", "run: echo {number} >> {file}", "approval_required"),
        ):
            session_id = await self._start_session(client)
            message = self._note(session_id, plan, request)
            run_id = message.run_id = await client.send(session_id, message.text, message.id)
            asked = await client.wait_for_event("approval_required", run_id=run_id)
            if plan == "approve":
                await self._decide(client, session_id, run_id, asked.content["approvalId"], "approve")
            await client.wait_for_event(last_seen, run_id=run_id)
        await self.kill()

    async def run_round(self) -> None:
        """One round."""
        await self.start()
        await self.check()
        await self._keep_promises()
        kinds = (None, None, None, "assistant_token", "tool_call", "approval_required", "approval_received", "run_complete")
        kind = self.dice.choice(kinds)
        self._kill_at = (kind, self.dice.randint(1, 400) if kind in (None, "assistant_token") else self.dice.randint(1, 4))
        self._frames.clear()
        acting = [asyncio.create_task(self._do_random_action()) for _ in range(ACTORS)]
        await asyncio.wait(acting, timeout=self.dice.uniform(0, LONGEST_ROUND))
        await self.kill()
        for actor in await asyncio.gather(*acting, return_exceptions=True):
            if isinstance(actor, BaseException) and not isinstance(actor, PushConnectionLost):
                raise actor

    async def start(self) -> None:
        while self.dice.random() < 0.1:
            # A daemon may also die while it is still busy with what the last one left.
            stillborn = DaemonProcess(self.home, **self.settings)
            await asyncio.sleep(self.dice.uniform(0, 0.4))
            stillborn.end()
            self.seen["killed at the start"] += 1
        self.daemon = await DaemonProcess(self.home, **self.settings).wait_listening()

    async def kill(self) -> None:
        """Clients still read what is on its way to them: that too has been seen."""
        assert self.daemon is not None
        self.daemon.kill()
        async with asyncio.timeout(60):
            for client in self._clients:
                await client.closed.wait()
                client.close()
        self.daemon.end()
        self._clients.clear()
        self.daemon = None

    async def connect(self) -> RawPushClient:
        assert self.daemon is not None
        client = await RawPushClient.connect(self.daemon.socket, self._record_event)
        self._clients.append(client)
        return client

    def _record_event(self, line: bytes, frame: AnyPushFrame) -> None:
        known = self.logs.setdefault(frame.sessionId, {}).setdefault(frame.seq, line)
        assert known == line, f"the same seq was told twice, and differently:\n{known!r}\n{line!r}"
        if frame.type == "approval_required":
            self.asked.add(frame.content["approvalId"])
        kind, count = self._kill_at
        self._frames[frame.type] += 1
        if self.daemon is not None and count and (self._frames[kind] if kind else self._frames.total()) >= count:
            self.seen[f"killed at {kind or 'an event'}"] += 1
            self._kill_at = (None, 0)
            self.daemon.kill()

    def clean_up(self) -> None:
        """Also when a test has failed, nothing is left of it."""
        if self.daemon is not None:
            self.daemon.end()
        run_ids = {message.run_id for message in self.messages.values() if message.run_id is not None}
        for pid in itertools.chain.from_iterable(find_run_processes(run_ids).values()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # What is always true after a start

    async def check(self) -> None:
        """Replays every session from its beginning and compares it with all that was ever seen and promised."""
        self._kill_at = (None, 0)
        found = {path.name for path in (self.home / "run").iterdir()} - {"hostd.sock"}  # opened a moment after the others
        assert found == RUN_FILES, "a crash leaves no litter"
        await self._replay_all()
        runs = {run_id: run for runs in self.stories.values() for run_id, run in runs.items()}
        left_behind = find_run_processes({run_id for run_id, run in runs.items() if run.outcome is not None})
        assert left_behind == {}, "processes of ended runs are still alive"
        for message in self.messages.values():
            self._check_message(message)
        for approval_id, decision in self.decisions.items():
            closed = [run.closed[approval_id] for run in runs.values() if approval_id in run.closed]
            assert closed == [decision], "an acknowledged decision is in the log exactly once"
        pending = {approval_id for run in runs.values() for approval_id in run.pending}
        assert self.asked - self.attempted <= pending, "what nobody has decided still waits"
        self.asked |= pending
        self._free = [session_id for session_id, runs in self.stories.items() if all(run.outcome for run in runs.values())]

    async def _replay_all(self) -> None:
        replayed: dict[str, dict[int, bytes]] = {}
        # A client of its own: what it is told now must be the log again, not only agree with it.
        assert self.daemon is not None
        client = await RawPushClient.connect(
            self.daemon.socket, lambda line, frame: replayed.setdefault(frame.sessionId, {}).update({frame.seq: line})
        )
        session_ids = sorted(self.sessions | self.logs.keys())
        answers = await asyncio.gather(*(client.attach(session_id) for session_id in session_ids))
        for session_id, answer in zip(session_ids, answers, strict=True):
            assert (answer["replay"]["fromSeq"], answer["replay"]["gap"]) == (1, False)
            head = answer["replay"]["toSeq"]
            log = replayed.setdefault(session_id, {})
            await client.wait_until(lambda log=log, head=head: head in log)
            for seq, line in self.logs.setdefault(session_id, {}).items():
                assert log.get(seq) == line, f"seq {seq} of {session_id} was seen and is gone or changed"
            assert sorted(log) == list(range(1, len(log) + 1)), f"seq of {session_id} has a hole"
            self.logs[session_id] = log
            runs = self.stories[session_id] = story.read([decode(log[seq]) for seq in sorted(log)])
            self._check_state(answer["state"], runs)
        client.close()

    def _check_state(self, state: str, runs: dict[str, story.LoggedRun]) -> None:
        last = next(reversed(runs.values()), None)
        if last is None:
            assert state == "idle"
        elif last.outcome is None:
            # Whatever was working when the daemon died has been closed before anyone could ask; what waits, waits.
            assert len(last.pending) == 1
            assert state == "awaiting_approval"
            self.seen["approval survived"] += 1
        else:
            assert state == {"success": "completed", "failed": "failed"}.get(last.outcome, "cancelled")
            self.seen[f"last run {'interrupted' if 'RUN_INTERRUPTED' in last.errors else last.outcome}"] += 1

    def _check_message(self, message: CrashCommand) -> None:
        runs = [run for run in self.stories[message.session_id].values() if run.text == message.text]
        assert len(runs) <= 1, f"{message} was run twice"
        run = runs[0] if runs else None
        if message.run_id is not None:
            assert run is not None, f"{message} was acknowledged and is gone"
            assert run.id == message.run_id
        happened = message.count_effects()
        assert happened <= 1, f"{message} took effect {happened} times"
        if happened:
            assert run is not None, f"{message} took effect without a run"
            assert run.approved, f"{message} took effect without a recorded approval"
        if message.file is not None and run is not None and run.outcome == "success" and message.plan != "deny and go on":
            assert happened == 1, f"{message} is said to have succeeded and did nothing"

    # What clients do in a round

    async def _keep_promises(self) -> None:
        """What was acknowledged before the crash is asked for again; questions that survived it are answered."""
        client = await self.connect()
        acknowledged = [message for message in self.messages.values() if message.run_id is not None]
        for message in {message.id: message for message in self._sample(acknowledged, 3) + acknowledged[-3:]}.values():
            run_id = await client.send(message.session_id, message.text, message.id)
            assert run_id == message.run_id, f"{message} was started again"
            self.seen["resent"] += 1
        for approval_id in self._sample(list(self.decisions), 3):
            session_id, run_id = self._find_approval_session(approval_id)
            with pytest.raises(PushRequestRefused) as refused:
                await client.decide(session_id, run_id, approval_id, self.dice.choice(["approve", "deny"]))
            assert refused.value.code == "APPROVAL_EXPIRED"
            self.seen["decided twice"] += 1
        for message in list(self.messages.values()):
            run = next((run for run in self.stories[message.session_id].values() if run.text == message.text), None)
            is_the_first = not self.seen["survivor approved"]
            if run is not None and run.pending and (is_the_first or self.dice.random() < 0.5):
                await self.approve_survivor(client, message, run)
        client.close()

    async def approve_survivor(self, client: RawPushClient, message: CrashCommand, run: story.LoggedRun) -> None:
        """A question that outlived a crash: a yes lets its run go on to its end, and its action happens once."""
        assert message.count_effects() == 0
        await client.attach(message.session_id, max(self.logs[message.session_id]))
        await self._decide(client, message.session_id, run.id, run.pending[0], "approve")
        if message.file is None:
            return  # it never ends by itself
        ended = await client.wait_for_event("run_complete", session_id=message.session_id, run_id=run.id)
        assert ended.content["outcome"] == "success"
        assert message.count_effects() == 1
        self.seen["survivor approved"] += 1

    async def _do_random_action(self) -> None:
        client = await self.connect()
        session_id = await self._choose_session(client)
        message = self._send_message(session_id)
        if self.dice.random() < 0.3:
            watcher = await self.connect()
            await watcher.attach(session_id, self.dice.randint(0, max(self.logs[session_id], default=0)))
        try:
            run_id = message.run_id = await client.send(session_id, message.text, message.id)
        except PushRequestRefused as refusal:
            raise AssertionError(f"{message} was refused in an idle session") from refusal
        if message.plan == "cancel":
            await client.wait_for_event("assistant_token", run_id=run_id)
            try:
                await client.ask("cancel_run", {"runId": run_id}, session_id)
            except PushRequestRefused as refusal:
                if refusal.code != "NO_ACTIVE_RUN":  # over before it could be cancelled
                    raise
        frame = await client.wait_for_event("approval_required", "run_complete", run_id=run_id)
        if frame.type == "approval_required" and message.plan != "leave":
            approval_id, decision = frame.content["approvalId"], "deny" if message.plan.startswith("deny") else "approve"
            comment = {"comment": "rather not"} if message.plan == "deny and go on" else {}
            await self._decide(client, session_id, run_id, approval_id, decision, **comment)
            await client.wait_for_event("run_complete", run_id=run_id)

    async def _decide(
        self, client: RawPushClient, session_id: str, run_id: str, approval_id: str, decision: str, **comment: str
    ) -> None:
        self.attempted.add(approval_id)
        await client.decide(session_id, run_id, approval_id, decision, **comment)
        self.decisions[approval_id] = decision

    async def _choose_session(self, client: RawPushClient) -> str:
        if self._free and self.dice.random() < 0.5:
            session_id = self._free.pop(self.dice.randrange(len(self._free)))
            await client.attach(session_id, max(self.logs[session_id]))
            return session_id
        return await self._start_session(client)

    async def _start_session(self, client: RawPushClient) -> str:
        session_id = await client.start_session(self.workspace)
        self.sessions.add(session_id)
        self.logs.setdefault(session_id, {})
        return session_id

    def _send_message(self, session_id: str) -> CrashCommand:
        plan, request = self.dice.choice(
            [
                ("stream", "count 300"),
                ("stream", "count 300"),
                ("cancel", "count 300"),
                ("list", "list ."),
                ("approve", "write {file}: {number}"),
                ("approve", "list .\nrun: echo {number} >> {file}; sleep 0.05"),
                ("approve", "run: sleep 1000 & sleep 1000"),
                ("leave", "write {file}: {number}"),
                ("leave", "run: echo {number} >> {file}"),
                ("deny", "write {file}: {number}"),
                ("deny and go on", "run: echo {number} >> {file}"),
            ]
        )
        return self._note(session_id, plan, request)

    def _note(self, session_id: str, plan: str, request: str) -> CrashCommand:
        """A message that will be sent, with a number of its own."""
        self._used += 1
        number = f"msg_{self._used}"
        file = self.workspace / f"{number}.txt"
        asked = request.format(file=file.name, number=number)
        message = CrashCommand(number, session_id, f"{asked}\n({number})", plan, file if number in asked else None)
        self.messages[number] = message
        return message

    def _find_approval_session(self, approval_id: str) -> tuple[str, str]:
        return next(
            (session_id, run.id) for session_id, runs in self.stories.items() for run in runs.values() if approval_id in run.asked
        )

    def _sample(self, things: list, count: int) -> list:  # type: ignore[type-arg]
        return self.dice.sample(things, min(count, len(things)))
