"""The link: it connects to the hub, and reconnects for as long as it lives. The spool sends the events, the request handler
executes the hub's requests.

One connection to the hub, from its handshake to its end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from switchtower.core import errors as core_errors
from switchtower.core.ports import registry, session_service
from switchtower.protocols.relay import encoder, messages
from switchtower.protocols.relay.host.rpc import HostRpcHandler
from switchtower.protocols.relay.link.delivery_state import AcknowledgementLog
from switchtower.protocols.relay.link.hub_requests import HubRequestHandler
from switchtower.protocols.relay.link.spool import Spool
from switchtower.protocols.relay.settings import LinkSettings, LinkStatus, Phase
from switchtower.transports import ws_client
from switchtower.transports.stream import Outbox, Packet, Receiver, Stream

log = logging.getLogger(__name__)

_MAX_ERROR_LENGTH = 500
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Ack(msgspec.Struct, frozen=True):
    run_id: messages.Id
    last_seq: int


_decode = msgspec.json.Decoder(messages.Envelope).decode
_decode_ack = msgspec.json.Decoder(_Ack).decode


class HubConnectionOwner(Protocol):
    """The receiver of a connection's events."""

    def now_ms(self) -> int: ...

    def on_hub_connected(self, line: "HubConnection") -> None: ...

    def on_hub_writable(self, line: "HubConnection") -> None:
        """The hub takes more again."""
        ...

    def on_hub_disconnected(self, line: "HubConnection") -> None: ...

    def on_acknowledged(self, run_id: str, last_seq: int) -> None: ...

    def on_request(self, envelope: messages.Envelope, line: "HubConnection") -> None: ...


class HubConnection:
    """Implements `stream.Receiver` and `spool.SpoolChannel`. Messages after its end are dropped."""

    def __init__(self, owner: HubConnectionOwner, host_id: str) -> None:
        self.ended = asyncio.Event()
        self.was_useful = False
        """The hub has acknowledged a message on it."""
        self._owner = owner
        self._host_id = host_id
        self._stream: Stream | None = None
        self._outbox: Outbox | None = None
        self._has_logged_error = False

    # The receiver's side

    def on_connected(self, stream: Stream) -> None:
        self._stream = stream
        self._outbox = Outbox(stream)
        self._owner.on_hub_connected(self)

    def on_frames(self, frames: list[bytes]) -> None:
        for frame in frames:
            try:
                self._handle_frame(frame)
            except _DECODE_ERRORS as problem:
                self.send_message("error", {"error": str(problem)[:_MAX_ERROR_LENGTH]})
            except Exception:
                log.exception("a message of the hub could not be taken")
                self.send_message("error", {"error": "internal error"})

    def on_oversized_frame(self, problem: str) -> None:
        self.send_message("error", {"error": problem[:_MAX_ERROR_LENGTH]})

    def on_writable(self) -> None:
        if self._outbox is not None and self._outbox.flush():
            self._owner.on_hub_writable(self)

    def on_disconnected(self) -> None:
        self._stream = self._outbox = None
        self.ended.set()
        self._owner.on_hub_disconnected(self)

    # The spool's side

    @property
    def is_ready(self) -> bool:
        return self._outbox is not None and self._outbox.is_ready

    def send(self, frames: list[bytes]) -> None:
        """Sends events. They do not wait behind answers: a page that was being read when the hub stopped reading is sent with
        it."""
        if self._stream is not None:
            self._stream.send(Packet(frames))

    def send_message(self, type_: str, data: Any, *, run_id: str | None = None) -> None:
        """Sends a message that is not in a journal."""
        if self._outbox is not None:
            frame = encoder.encode_unnumbered(type_, self._owner.now_ms(), data, run_id=run_id, host_id=self._host_id)
            self._outbox.send(Packet([frame]))

    def send_heartbeat(self) -> None:
        if self.is_ready:  # a hub that does not read now learns from later frames that we live
            self.send_message("host.heartbeat", {})

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close(1001, "the host is stopping")

    def abort(self) -> None:
        if self._stream is not None:
            self._stream.abort()

    def _handle_frame(self, frame: bytes) -> None:
        envelope = _decode(frame)
        if envelope.type == "run.ack":
            ack = _decode_ack(envelope.data)
            if ack.last_seq < 0:
                raise msgspec.ValidationError("Expected `last_seq` >= 0")
            self.was_useful = True
            self._owner.on_acknowledged(ack.run_id, ack.last_seq)
        elif envelope.type == "error":
            if not self._has_logged_error:
                self._has_logged_error = True
                log.warning("the hub does not understand something that it was told")
        else:
            self._owner.on_request(envelope, self)


class ConnectToHub(Protocol):
    """`ws_client.connect` with its limits, or a replacement."""

    def __call__(self, url: str, receiver: Receiver, *, token: str | None = None) -> Awaitable[Stream]: ...


TASK_INTERVAL_S = 1.0
"""Seconds between two checks for acknowledgements to write and sessions that are settled."""
STABLE_AFTER_S = 5.0
"""A connection that lasted this many seconds was stable: the next attempt need not be delayed."""
CLOSE_TIMEOUT_S = 2.0
_REFUSALS = frozenset({401, 403})
_TOKEN_MISSING = frozenset({400, 401, 422})
"""The statuses of a hub that expects the token in the address alone, as in the document."""


class HubLink:
    def __init__(
        self,
        tower_: session_service.SessionService,
        registry_: registry.Registry,
        rpc: HostRpcHandler,
        settings: LinkSettings,
        connect: ConnectToHub,
        random: Callable[[], float],
    ) -> None:
        """`random` returns numbers from 0 to 1. Raises `settings.InvalidHubUrl`."""
        self._tower = tower_
        self._settings = settings
        self._hub = settings.hub
        self._connect = connect
        self._random = random
        self._acknowledgements = AcknowledgementLog(registry_, self._hub)
        self._spool = Spool(
            tower_,
            self._acknowledgements,
            settings.host_id,
            window=settings.window_events,
            lanes=settings.lanes,
            max_frame_bytes=settings.max_frame_bytes,
        )
        self._requests = HubRequestHandler(tower_, rpc, settings)
        self._connection: HubConnection | None = None
        self._token_in_address = False
        self._phase: Phase = "connecting"
        self._since_ms = tower_.now_ms()
        self._problem = ""
        self._logged_problem = ""
        self._attempts = 0
        self._tasks_due = asyncio.Event()
        self._acknowledgements.is_due = self._tasks_due.set
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closed = False

    def start(self) -> None:
        assert not self._tasks, "a link is started once"
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run()), loop.create_task(self._send_heartbeats())]

    async def close(self) -> None:
        """Closes the connection, writes the acknowledgements, and leaves no task running."""
        if self._is_closed:
            return
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._requests.close()
        if (line := self._connection) is not None:
            line.close()
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await line.ended.wait()
            except TimeoutError:
                line.abort()
                await line.ended.wait()
        await self._spool.close()
        await self._acknowledgements.write()

    @property
    def status(self) -> LinkStatus:
        return LinkStatus(self._phase, self._since_ms, self._problem, self._spool.backlog, self._spool.unacknowledged_count)

    def list_unsettled(self) -> dict[str, int] | None:
        """Returns the first seq of each session that the hub has not acknowledged; None while that is not known."""
        return self._spool.list_unsettled()

    # Connecting

    async def _run(self) -> None:
        await self._load()
        rounds = asyncio.get_running_loop().create_task(self._run_periodic_tasks())
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
                self._set_problem("waiting", str(problem))
                await asyncio.sleep(self._compute_backoff())
            else:
                self._attempts = 0
                return

    async def _dial(self) -> float:
        """Makes one connection, if possible, and waits for its end. Returns the seconds until the next attempt."""
        self._set_phase("connecting")
        line = HubConnection(self, self._settings.host_id)
        began = asyncio.get_running_loop().time()
        try:
            await self._connect_to_hub(line)
            await line.ended.wait()
        except ws_client.UpgradeRejected as refusal:
            if refusal.status in _REFUSALS:
                # An early retry is useless: the hub's operator has to admit this host first.
                self._set_problem("refused", f"the hub refuses this host: {refusal}")
                return self._settings.refused_s * (1 + self._random())
            self._set_problem("waiting", f"the hub answers {refusal}")
        except ws_client.ConnectError as problem:
            self._set_problem("waiting", f"the hub cannot be reached: {problem}")
        except Exception:
            log.exception("dialling the hub at %s failed", self._hub)
            self._set_problem("waiting", "dialling the hub failed; the log says why")
        else:
            if line.was_useful or asyncio.get_running_loop().time() - began >= STABLE_AFTER_S:
                self._attempts = 0
                self._logged_problem = ""
            self._set_problem("waiting", "the connection to the hub was lost")
        return self._compute_backoff()

    async def _connect_to_hub(self, line: HubConnection) -> None:
        """The token is sent in a header. Only a hub that misses it there, and does not declare that it reads headers, gets it in
        the address, and from then on at once."""
        settings = self._settings
        if not self._token_in_address and not settings.has_password:
            try:
                await self._connect(settings.dial_url, line, token=settings.host_token)
            except ws_client.UpgradeRejected as refusal:
                if refusal.status not in _TOKEN_MISSING or refusal.takes_bearer:
                    raise
            else:
                return
        await self._connect(settings.dial_url_with_token, line)
        if not self._token_in_address:
            self._token_in_address = True
            log.warning("the hub at %s reads this host's token in the address alone; its proxies may log it", self._hub)

    def _compute_backoff(self) -> float:
        """A random delay of up to twice the last maximum: hosts that lost one hub together do not reconnect together."""
        longest = min(self._settings.backoff_max_s, self._settings.backoff_min_s * 2.0 ** min(self._attempts, 30))
        self._attempts += 1
        return longest * self._random()

    def _set_problem(self, phase: Phase, problem: str) -> None:
        self._problem = problem
        self._set_phase(phase)
        if problem != self._logged_problem:
            self._logged_problem = problem  # not logged again at each attempt
            log.warning("%s (%s)", problem, self._hub)

    def _set_phase(self, phase: Phase) -> None:
        if phase != self._phase:
            self._phase, self._since_ms = phase, self._tower.now_ms()

    # Implements `hub_connection.HubConnectionOwner`

    def now_ms(self) -> int:
        return self._tower.now_ms()

    def on_hub_connected(self, line: HubConnection) -> None:
        log.info("linked to the hub at %s", self._hub)
        self._connection = line
        self._set_phase("connected")
        line.send_heartbeat()
        self._spool.on_connected(line)

    def on_hub_writable(self, line: HubConnection) -> None:
        self._spool.pump()

    def on_hub_disconnected(self, line: HubConnection) -> None:
        self._connection = None
        self._spool.on_disconnected()

    def on_acknowledged(self, run_id: str, last_seq: int) -> None:
        self._spool.on_acknowledged(run_id, last_seq)

    def on_request(self, envelope: messages.Envelope, line: HubConnection) -> None:
        self._requests.handle(envelope, line.send_message)

    # Periodic tasks

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat_s)
            if self._connection is not None:
                self._connection.send_heartbeat()

    async def _run_periodic_tasks(self) -> None:
        while True:
            try:
                async with asyncio.timeout(TASK_INTERVAL_S):
                    await self._tasks_due.wait()
            except TimeoutError:
                pass
            self._tasks_due.clear()
            try:
                self._spool.run_periodic_tasks()
                await self._acknowledgements.write()
            except Exception:
                log.exception("a round of the link failed; it goes on with the next")
