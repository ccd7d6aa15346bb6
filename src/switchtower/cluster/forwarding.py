"""What is asked of one session while its home is not known to be here: finds the home, asks there in order, and hears the
answers. When the home turns out to be this node, what was asked comes back to the lane.

What was sent to a home that died before it answered is sent to the next one only if that cannot make it happen twice."""

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
"""To ask these twice is to ask once: the first to arrive has happened, and the second finds it so."""
FIRST_COMMANDS = (commands.StartSession, commands.MirrorRun)
"""What a session may begin with."""
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
        """`patience`: how long a home that cannot be reached is waited for. `come_home` is handed what waits for this node.
        `is_there`: whether there is such a session at all. `tell` answers one asker, whose trouble is its own."""
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
        """Asked, and not answered yet."""
        self.on_settled: Callable[[], None] = lambda: None
        """Called when nothing is in flight any more, and nothing is looked for."""

    @property
    def is_busy(self) -> bool:
        """While it is, its lane stays: there must not be two of one session."""
        return len(self) > 0 or self._finding is not None

    def __len__(self) -> int:
        return len(self._waiting) + self.in_flight + self._to_be_repeated

    @property
    def has_known_owner(self) -> bool:
        """It was asked before, and nothing has to wait."""
        return self._node_id is not None and self._finding is None

    def send(self, ask: QueuedCommand) -> None:
        if self._node_id is not None and self._finding is None and not ask.is_forwarded:
            self._forward(self._node_id, ask)
        else:
            self._waiting.append(ask)
            self._find_owner()

    def forget_owner(self) -> None:
        """Where the home is has to be found out anew."""
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
                        self._respond(ask.done, errors.Fenced())  # whoever asked finds the home for themselves
                    else:
                        self._forward(home.node_id, ask)
        finally:
            self._finding = None
            if self.in_flight == 0:
                self.on_settled()

    async def _claim_or_find(self) -> cluster.OwnedHere | cluster.OwnedBy:
        """Waits for a home that can be asked: after a node has died that takes as long as its lease."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        pause = self._pause
        while True:
            all_hop = all(ask.is_forwarded for ask in self._waiting)  # these go no further, wherever the home is
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
                # The next look is a little later each time that a home turns out to be none.
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
