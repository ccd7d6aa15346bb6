"""Forwards the commands of one session to the node that owns it: finds the owner, sends the commands in order and takes the
responses. When this node turns out to be the owner, the commands return to the lane.

A command that was sent to an owner which died before it responded is sent to the next owner only if that cannot make it happen
twice.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from switchtower.core import commands, errors
from switchtower.core.ports import cluster, session_service
from switchtower.runtime.lane_items import QueuedCommand

REPEATABLE = (
    commands.LoadSession,
    commands.UnloadSession,
    commands.ConfigureSession,
    commands.DecideApproval,
    commands.AnswerDialog,
    commands.CancelRun,
    commands.CancelShell,
    commands.StopStep,
    commands.ResizeTerminal,
    commands.WithdrawApproval,
    commands.MirrorRun,
    commands.MarkHost,
)
"""These commands are idempotent: the first to arrive takes effect, and the second finds it done."""
FIRST_COMMANDS = (commands.StartSession, commands.MirrorRun)
"""The commands that may start a session."""
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
RETRY_HINT = "look at the session, and ask again with the same identity"


class CommandForwarder:
    def __init__(
        self,
        session_id: str,
        ownership: cluster.SessionOwnership,
        timeout: float,
        become_owner: Callable[[int, list[QueuedCommand]], None],
        session_exists: Callable[[], Awaitable[bool]],
        respond: Callable[[session_service.OutcomeCallback, session_service.SubmitOutcome | errors.CoreError], object],
    ) -> None:
        """`timeout`: how long to wait for an owner that cannot be reached. `become_owner` gets the commands that wait for this
        node. `session_exists` returns whether the session exists at all. `respond` sends one response, and handles the errors
        of its callback.
        """
        self._respond = respond
        self._session_exists = session_exists
        self._session_id = session_id
        self._ownership = ownership
        self._timeout = timeout
        self._become_owner = become_owner
        self._waiting: list[QueuedCommand] = []
        self._node_id: str | None = None
        self._finding: asyncio.Task[None] | None = None
        self._pause = FIRST_PAUSE
        self._to_be_repeated = 0
        self.in_flight = 0
        """Commands that were sent and have no response yet."""
        self.on_settled: Callable[[], None] = lambda: None
        """The forwarder calls it when no command is in flight any more, and no owner is being searched for."""

    @property
    def is_busy(self) -> bool:
        """While it is busy, its lane is kept: there must not be two lanes of one session."""
        return len(self) > 0 or self._finding is not None

    def __len__(self) -> int:
        return len(self._waiting) + self.in_flight + self._to_be_repeated

    @property
    def has_known_owner(self) -> bool:
        """The owner is known from an earlier command, and nothing has to wait."""
        return self._node_id is not None and self._finding is None

    def send(self, ask: QueuedCommand) -> None:
        if self._node_id is not None and self._finding is None and not ask.is_forwarded:
            self._forward(self._node_id, ask)
        else:
            self._waiting.append(ask)
            self._find_owner()

    def forget_owner(self) -> None:
        """The owner must be found again."""
        self._node_id = None

    def _find_owner(self) -> None:
        if self._finding is None:
            self._finding = asyncio.get_running_loop().create_task(self._forward_all())

    async def _forward_all(self) -> None:
        try:
            while self._waiting:
                try:
                    home = await self._claim_or_find()
                except errors.CoreError as refusal:
                    self._refuse_all(refusal)
                    return
                except Exception:
                    self._refuse_all(errors.OwnerUnreachable())
                    raise
                asks, self._waiting = self._waiting, []
                if isinstance(home, cluster.OwnedHere):
                    self._node_id = None
                    self._become_owner(home.epoch, asks)
                    continue
                self._node_id = home.node_id
                for ask in asks:
                    if ask.is_forwarded:
                        self._respond(ask.done, errors.Fenced())  # the node that forwarded it finds the owner itself
                    else:
                        self._forward(home.node_id, ask)
        finally:
            self._finding = None
            if self.in_flight == 0:
                self.on_settled()

    async def _claim_or_find(self) -> cluster.OwnedHere | cluster.OwnedBy:
        """Waits for an owner that can be reached: after a node has died that takes as long as its lease."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        pause = self._pause
        while True:
            all_hop = all(ask.is_forwarded for ask in self._waiting)  # these are not forwarded again, whichever node is the owner
            begins = any(isinstance(ask.command, FIRST_COMMANDS) for ask in self._waiting)
            try:
                home = await self._ownership.claim(self._session_id, begins=begins)
            except errors.OwnerUnreachable as problem:
                refusal = problem
            else:
                if isinstance(home, cluster.Unowned):
                    if not begins and not await self._session_exists():
                        raise errors.SessionNotFound(self._session_id)
                    refusal = errors.OwnerUnreachable(self._session_id, hint="ask again in a moment")
                elif isinstance(home, cluster.OwnedHere) or all_hop or self._ownership.can_reach(home.node_id):
                    return home
                else:
                    refusal = errors.OwnerUnreachable(home.node_id, hint="ask again in a moment")
            if all_hop or loop.time() + pause > deadline:
                raise refusal
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _refuse_all(self, refusal: errors.CoreError) -> None:
        asks, self._waiting = self._waiting, []
        for ask in asks:
            self._respond(ask.done, refusal)

    def _forward(self, node_id: str, ask: QueuedCommand) -> None:
        self.in_flight += 1
        self._ownership.forward(node_id, ask.command, partial(self._on_response, node_id, ask))

    def _on_response(self, node_id: str, ask: QueuedCommand, outcome: session_service.SubmitOutcome | errors.CoreError) -> None:
        self.in_flight -= 1
        try:
            if isinstance(outcome, errors.Fenced | errors.OwnerUnreachable) or _is_repeatable(ask.command, outcome):
                if self._node_id == node_id:
                    self._node_id = None
                # Each time that a node turns out not to be the owner, the next attempt waits a little longer.
                self._pause = min(self._pause * 2, LONGEST_PAUSE)
                self._to_be_repeated += 1
                asyncio.get_running_loop().call_later(self._pause, self._retry, ask)
                return
            self._pause = FIRST_PAUSE
            if isinstance(outcome, errors.OutcomeUnknown):
                outcome = errors.OutcomeUnknown(hint=RETRY_HINT)
            self._respond(ask.done, outcome)
        finally:
            if self.in_flight == 0 and self._finding is None:
                self.on_settled()

    def _retry(self, ask: QueuedCommand) -> None:
        self._to_be_repeated -= 1
        self._waiting.append(ask)
        self._find_owner()


def _is_repeatable(command: commands.AnyCommand, outcome: session_service.SubmitOutcome | errors.CoreError) -> bool:
    if not isinstance(outcome, errors.OutcomeUnknown):
        return False
    return command.idempotency_key is not None or isinstance(command, REPEATABLE)
