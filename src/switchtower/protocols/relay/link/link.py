"""The link: dials the hub, and dials again for as long as it lives. What is told over it is the spool's, what is asked the
orders'."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from switchtower.core import errors as core_errors
from switchtower.core import registry, tower
from switchtower.protocols.relay import messages
from switchtower.protocols.relay.host.rpc import HostRpc
from switchtower.protocols.relay.link.ledger import Ledger
from switchtower.protocols.relay.link.line import HubLine
from switchtower.protocols.relay.link.orders import Orders
from switchtower.protocols.relay.link.settings import LinkSettings, Phase, State
from switchtower.protocols.relay.link.spool import Spool
from switchtower.transports import ws_client
from switchtower.transports.stream import Receiver, Stream

log = logging.getLogger(__name__)


class Connect(Protocol):
    """`ws_client.connect` with its limits, or what behaves like it."""

    def __call__(self, url: str, receiver: Receiver, *, token: str | None = None) -> Awaitable[Stream]: ...


ROUND_S = 1.0
"""How often it is looked whether acknowledgements are to be written, and sessions are settled."""
LIVED_S = 5.0
"""A connection that held so long was one: the next dial need not be slow."""
GOODBYE_S = 2.0
_REFUSALS = frozenset({401, 403})
_TOKEN_MISSED = frozenset({400, 401, 422})
"""What a hub answers that looks for the token in the address alone, as the document has it."""


class Link:
    def __init__(
        self,
        tower_: tower.Tower,
        registry_: registry.Registry,
        rpc: HostRpc,
        settings: LinkSettings,
        connect: Connect,
        random: Callable[[], float],
    ) -> None:
        """`random` gives numbers from 0 to 1. Raises `settings.BadHubUrl`."""
        self._tower = tower_
        self._settings = settings
        self._hub = settings.hub
        self._connect = connect
        self._random = random
        self._ledger = Ledger(registry_, self._hub)
        self._spool = Spool(
            tower_,
            self._ledger,
            settings.host_id,
            window=settings.window_events,
            lanes=settings.lanes,
            max_frame_bytes=settings.max_frame_bytes,
        )
        self._orders = Orders(tower_, rpc, settings)
        self._line: HubLine | None = None
        self._token_in_address = False
        self._phase: Phase = "connecting"
        self._since_ms = tower_.now_ms()
        self._problem = ""
        self._logged_problem = ""
        self._attempts = 0
        self._round_is_due = asyncio.Event()
        self._ledger.is_due = self._round_is_due.set
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closed = False

    def start(self) -> None:
        assert not self._tasks, "a link is started once"
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._live()), loop.create_task(self._beat())]

    async def close(self) -> None:
        """Says goodbye, writes down what was acknowledged, and leaves nothing running."""
        if self._is_closed:
            return
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._orders.close()
        if (line := self._line) is not None:
            line.close()
            try:
                async with asyncio.timeout(GOODBYE_S):
                    await line.ended.wait()
            except TimeoutError:
                line.abort()
                await line.ended.wait()
        await self._spool.close()
        await self._ledger.write()

    @property
    def state(self) -> State:
        return State(self._phase, self._since_ms, self._problem, self._spool.backlog, self._spool.unacknowledged)

    def unsettled(self) -> dict[str, int] | None:
        """The first seq of each session that the hub has not acknowledged; None while that is not known."""
        return self._spool.unsettled()

    # Dialling

    async def _live(self) -> None:
        await self._load()
        rounds = asyncio.get_running_loop().create_task(self._rounds())
        try:
            while True:
                pause = await self._dial()
                await asyncio.sleep(pause)
        finally:
            rounds.cancel()
            await asyncio.gather(rounds, return_exceptions=True)

    async def _load(self) -> None:
        while True:
            try:
                await self._spool.load(self._settings.started_at_ms)
            except (registry.RegistryUnavailable, core_errors.CoreError) as problem:
                self._note("waiting", str(problem))
                await asyncio.sleep(self._pause())
            else:
                self._attempts = 0
                return

    async def _dial(self) -> float:
        """One connection, if there is one, to its end. How long to wait until the next."""
        self._enter("connecting")
        line = HubLine(self, self._settings.host_id)
        began = asyncio.get_running_loop().time()
        try:
            await self._reach(line)
            await line.ended.wait()
        except ws_client.Rejected as refusal:
            if refusal.status in _REFUSALS:
                # Trying again soon helps nobody: a person has to let us in first.
                self._note("refused", f"the hub refuses this host: {refusal}")
                return self._settings.refused_s * (1 + self._random())
            self._note("waiting", f"the hub answers {refusal}")
        except ws_client.CannotConnect as problem:
            self._note("waiting", f"the hub cannot be reached: {problem}")
        except Exception:
            log.exception("dialling the hub at %s failed", self._hub)
            self._note("waiting", "dialling the hub failed; the log says why")
        else:
            if line.was_useful or asyncio.get_running_loop().time() - began >= LIVED_S:
                self._attempts = 0
                self._logged_problem = ""
            self._note("waiting", "the connection to the hub was lost")
        return self._pause()

    async def _reach(self, line: HubLine) -> None:
        """The token travels in a header. Only a hub that misses it there, and does not say that it reads headers, gets it in the
        address, and from then on at once."""
        settings = self._settings
        if not self._token_in_address and not settings.has_password:
            try:
                await self._connect(settings.dial_url, line, token=settings.host_token)
            except ws_client.Rejected as refusal:
                if refusal.status not in _TOKEN_MISSED or refusal.takes_bearer:
                    raise
            else:
                return
        await self._connect(settings.dial_url_with_token, line)
        if not self._token_in_address:
            self._token_in_address = True
            log.warning("the hub at %s reads this host's token in the address alone; its proxies may log it", self._hub)

    def _pause(self) -> float:
        """Between nothing and twice as much as the last time: hosts that lost one hub together do not come back together."""
        longest = min(self._settings.backoff_max_s, self._settings.backoff_min_s * 2.0 ** min(self._attempts, 30))
        self._attempts += 1
        return longest * self._random()

    def _note(self, phase: Phase, problem: str) -> None:
        self._problem = problem
        self._enter(phase)
        if problem != self._logged_problem:
            self._logged_problem = problem  # and not again each time that we try
            log.warning("%s (%s)", problem, self._hub)

    def _enter(self, phase: Phase) -> None:
        if phase != self._phase:
            self._phase, self._since_ms = phase, self._tower.now_ms()

    # What the line tells: implements `line.Owner`

    def now_ms(self) -> int:
        return self._tower.now_ms()

    def line_is_up(self, line: HubLine) -> None:
        log.info("linked to the hub at %s", self._hub)
        self._line = line
        self._enter("connected")
        line.beat()
        self._spool.connected(line)

    def line_is_free(self, line: HubLine) -> None:
        self._spool.pump()

    def line_is_down(self, line: HubLine) -> None:
        self._line = None
        self._spool.disconnected()

    def acknowledged(self, run_id: str, last_seq: int) -> None:
        self._spool.acknowledged(run_id, last_seq)

    def ordered(self, envelope: messages.Envelope, line: HubLine) -> None:
        self._orders.take(envelope, line.say)

    # Now and then

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat_s)
            if self._line is not None:
                self._line.beat()

    async def _rounds(self) -> None:
        while True:
            try:
                async with asyncio.timeout(ROUND_S):
                    await self._round_is_due.wait()
            except TimeoutError:
                pass
            self._round_is_due.clear()
            try:
                self._spool.tick()
                await self._ledger.write()
            except Exception:
                log.exception("a round of the link failed; it goes on with the next")
