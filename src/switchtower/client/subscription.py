"""One session, watched: its events in order, each once, across lost connections and daemon restarts.

It remembers the last seen seq and attaches with it again. It asks nothing else and starts no daemon: whoever stopped the
daemon meant it.
"""

from collections.abc import AsyncGenerator, Callable

from switchtower import config
from switchtower.client import dialogs, discovery, errors, frames
from switchtower.client.connection import DaemonConnection
from switchtower.client.discovery import RECONNECT_TIMEOUT, retry_while_away
from switchtower.protocols.push import messages

KEEP_EVENTS = 1024
_SNAPSHOT_EVENTS = 500
"""Events that are read at first to find what is open."""


class SessionSubscription:
    def __init__(
        self,
        settings: config.Settings,
        session_id: str,
        *,
        last_seen_seq: int = 0,
        attach_token: str | None = None,
        reconnect_timeout: float = RECONNECT_TIMEOUT,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """`patience`: how many seconds a lost daemon may take to come back. `on_lost` is told of each lost connection."""
        self.session_id = session_id
        self.last_seen_seq = last_seen_seq
        self.attached: messages.AttachAnswer | None = None
        """The daemon's answer to the latest attach."""
        self._settings = settings
        self._attach_token = attach_token
        self._reconnect_timeout = reconnect_timeout
        self._on_lost = on_lost

    async def stream_events(self) -> AsyncGenerator[frames.PushEvent, None]:
        """Every event after `last_seen_seq`. Where the daemon no longer has some, an `EVENT_GAP` warning and a
        `session_snapshot` come in their place."""
        while True:
            connection = await self._attach()
            try:
                while True:
                    event = await connection.receive_event()
                    if self._is_new(event):
                        yield event
            except errors.ConnectionLost:
                if self._on_lost is not None:
                    self._on_lost()
            finally:
                connection.close()

    async def attach(self) -> messages.AttachAnswer:
        """Asks where the session stands, without watching it."""
        (await self._attach()).close()
        assert self.attached is not None, "an attach sets it"
        return self.attached

    async def fetch_snapshot(self) -> messages.SessionSnapshot:
        """Where the session stands now, in the daemon's summary."""
        head = (await self.attach()).replay.toSeq
        connection = await self._attach(resume=True, after_seq=head)
        try:
            while True:
                event = await connection.receive_event()
                if isinstance(event.payload, messages.SessionSnapshot):
                    return event.payload
        finally:
            connection.close()

    async def find_open_dialogs(self) -> dict[str, tuple[int, dialogs.PushDialog]]:
        """What is asked now, with the seq at which each was. The daemon's summary does not say, so the events are read: the
        latest first, and ever more of them until they reach back to before the run."""
        head, most = (await self.attach()).replay.toSeq, _SNAPSHOT_EVENTS
        while True:
            reader = SessionSubscription(
                self._settings,
                self.session_id,
                last_seen_seq=max(0, head - most),
                attach_token=self._attach_token,
                reconnect_timeout=self._reconnect_timeout,
            )
            open_now, runs = dialogs.DialogTracker(), set()
            connection = await reader._attach()
            try:
                while reader.last_seen_seq < head:
                    event = await connection.receive_event()
                    if reader._is_new(event):
                        open_now.on_event(event)
                        runs.add(event.run_id)
            finally:
                connection.close()
            if most >= head or len(runs - {None}) > 1:
                return open_now.dialogs
            most *= 8

    def _is_new(self, event: frames.PushEvent) -> bool:
        if event.session_id != self.session_id:
            return False
        if self.attached is not None and self.attached.replay.gap:
            # push, Replay and Reconnect Semantics: a snapshot in place of lost events is a fresh baseline, also a lower one.
            if isinstance(event.payload, messages.Warn) and event.payload.code == "EVENT_GAP":
                return True
            if isinstance(event.payload, messages.SessionSnapshot):
                self.last_seen_seq = event.seq
                return True
        if event.seq <= self.last_seen_seq:
            return False
        self.last_seen_seq = event.seq
        return event.payload is not None

    async def _attach(self, *, resume: bool = False, after_seq: int | None = None) -> DaemonConnection:
        cursor = self.last_seen_seq if after_seq is None else after_seq
        request = (messages.ResumeSession if resume else messages.AttachSession)(cursor, self.session_id, self._attach_token)

        async def attempt() -> DaemonConnection:
            connection = await discovery.connect(self._settings, keep_events=KEEP_EVENTS)
            try:
                self.attached = await connection.request(request, messages.AttachAnswer, session_id=self.session_id)
            except BaseException:
                connection.close()
                raise
            return connection

        return await retry_while_away(attempt, timeout=self._reconnect_timeout, retry_refusals=True)
