"""What is asked of one session while its home is not known to be here: finds the home, asks there in order, and hears the
answers. When the home turns out to be this node, what was asked comes back to the lane.

What was sent to a home that died before it answered is sent to the next one only if that cannot make it happen twice.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from msgspec import Struct

from switchtower.core import commands, errors, homes, tower

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
BEGINNING = (commands.StartSession, commands.MirrorRun)
"""What a session may begin with."""
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
ASK_AGAIN = "look at the session, and ask again with the same identity"


class Ask(Struct):
    command: commands.AnyCommand
    done: tower.Done
    ours: bool = False
    """Of this node's own engines, timers and recovery, which speak only for sessions whose home is here."""
    hop: bool = False
    """Another node asks, in the belief that the home is here: it is not sent on."""


class Away:
    def __init__(
        self,
        session_id: str,
        homes_: homes.Homes,
        patience: float,
        come_home: Callable[[int, list[Ask]], None],
        is_there: Callable[[], Awaitable[bool]],
        tell: Callable[[tower.Done, tower.Outcome | errors.CoreError], object],
    ) -> None:
        """`patience`: how long a home that cannot be reached is waited for. `come_home` is handed what waits for this node.
        `is_there`: whether there is such a session at all. `tell` answers one asker, whose trouble is its own."""
        self._tell = tell
        self._is_there = is_there
        self._session_id = session_id
        self._homes = homes_
        self._patience = patience
        self._come_home = come_home
        self._waiting: list[Ask] = []
        self._node_id: str | None = None
        self._finding: asyncio.Task[None] | None = None
        self._pause = FIRST_PAUSE
        self._to_be_repeated = 0
        self.in_flight = 0
        """Asked, and not answered yet."""
        self.settled: Callable[[], None] = lambda: None
        """Called when nothing is in flight any more, and nothing is looked for."""

    @property
    def busy(self) -> bool:
        """While it is, its lane stays: there must not be two of one session."""
        return len(self) > 0 or self._finding is not None

    def __len__(self) -> int:
        return len(self._waiting) + self.in_flight + self._to_be_repeated

    @property
    def knows_the_home(self) -> bool:
        """It was asked before, and nothing has to wait."""
        return self._node_id is not None and self._finding is None

    def send(self, ask: Ask) -> None:
        if self._node_id is not None and self._finding is None and not ask.hop:
            self._forward(self._node_id, ask)
        else:
            self._waiting.append(ask)
            self._find()

    def forget(self) -> None:
        """Where the home is has to be found out anew."""
        self._node_id = None

    def _find(self) -> None:
        if self._finding is None:
            self._finding = asyncio.get_running_loop().create_task(self._to_the_home())

    async def _to_the_home(self) -> None:
        try:
            while self._waiting:
                try:
                    home = await self._found()
                except errors.CoreError as refusal:
                    self._refuse_all(refusal)
                    return
                except Exception:
                    self._refuse_all(errors.HomeUnreachable())
                    raise
                asks, self._waiting = self._waiting, []
                if isinstance(home, homes.Here):
                    self._node_id = None
                    self._come_home(home.epoch, asks)
                    continue
                self._node_id = home.node_id
                for ask in asks:
                    if ask.hop:
                        self._tell(ask.done, errors.Fenced())  # whoever asked finds the home for themselves
                    else:
                        self._forward(home.node_id, ask)
        finally:
            self._finding = None
            if self.in_flight == 0:
                self.settled()

    async def _found(self) -> homes.Here | homes.There:
        """Waits for a home that can be asked: after a node has died that takes as long as its lease."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        pause = self._pause
        while True:
            all_hop = all(ask.hop for ask in self._waiting)  # these go no further, wherever the home is
            begins = any(isinstance(ask.command, BEGINNING) for ask in self._waiting)
            try:
                home = await self._homes.claim(self._session_id, begins=begins)
            except errors.HomeUnreachable as problem:
                refusal = problem
            else:
                if isinstance(home, homes.Nobody):
                    if not begins and not await self._is_there():
                        raise errors.SessionNotFound(self._session_id)
                    refusal = errors.HomeUnreachable(self._session_id, hint="ask again in a moment")
                elif isinstance(home, homes.Here) or all_hop or self._homes.reaches(home.node_id):
                    return home
                else:
                    refusal = errors.HomeUnreachable(home.node_id, hint="ask again in a moment")
            if all_hop or loop.time() + pause > deadline:
                raise refusal
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _refuse_all(self, refusal: errors.CoreError) -> None:
        asks, self._waiting = self._waiting, []
        for ask in asks:
            self._tell(ask.done, refusal)

    def _forward(self, node_id: str, ask: Ask) -> None:
        self.in_flight += 1
        self._homes.forward(node_id, ask.command, partial(self._answered, node_id, ask))

    def _answered(self, node_id: str, ask: Ask, outcome: tower.Outcome | errors.CoreError) -> None:
        self.in_flight -= 1
        try:
            if isinstance(outcome, errors.Fenced | errors.HomeUnreachable) or _can_be_repeated(ask.command, outcome):
                if self._node_id == node_id:
                    self._node_id = None
                # The next look is a little later each time that a home turns out to be none.
                self._pause = min(self._pause * 2, LONGEST_PAUSE)
                self._to_be_repeated += 1
                asyncio.get_running_loop().call_later(self._pause, self._again, ask)
                return
            self._pause = FIRST_PAUSE
            if isinstance(outcome, errors.OutcomeUnknown):
                outcome = errors.OutcomeUnknown(hint=ASK_AGAIN)
            self._tell(ask.done, outcome)
        finally:
            if self.in_flight == 0 and self._finding is None:
                self.settled()

    def _again(self, ask: Ask) -> None:
        self._to_be_repeated -= 1
        self._waiting.append(ask)
        self._find()


def _can_be_repeated(command: commands.AnyCommand, outcome: tower.Outcome | errors.CoreError) -> bool:
    if not isinstance(outcome, errors.OutcomeUnknown):
        return False
    return command.idempotency_key is not None or isinstance(command, REPEATABLE)
