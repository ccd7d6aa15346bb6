"""A subscription to one session: its events in order, each once, across lost connections and daemon restarts.

It remembers the last seen seq and attaches with it again. It sends no other request and starts no daemon, because a user who
stopped the daemon did so on purpose.
"""

from collections.abc import AsyncGenerator, Callable

from switchtower import config
from switchtower.client import discovery, errors, frames
from switchtower.client.connection import DaemonConnection
from switchtower.client.discovery import RECONNECT_TIMEOUT, retry_while_away
from switchtower.protocols.push import messages

KEEP_EVENTS = 1024
_SNAPSHOT_EVENTS = 500
"""The number of events read in the first attempt to find open dialogs."""


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
        """Waits up to `reconnect_timeout` seconds for a lost daemon to return, and calls `on_lost` for each lost connection."""
        self.session_id = session_id
        self.last_seen_seq = last_seen_seq
        self.attached: messages.AttachAnswer | None = None
        """The daemon's answer to the latest attach."""
        self._settings = settings
        self._attach_token = attach_token
        self._reconnect_timeout = reconnect_timeout
        self._on_lost = on_lost

    async def stream_events(self) -> AsyncGenerator[frames.PushEvent, None]:
        """Yields every event after `last_seen_seq`. If the daemon no longer has some of them, an `EVENT_GAP` warning and a
        `session_snapshot` take their place."""
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
        """Returns the session's current state without subscribing to it."""
        (await self._attach()).close()
        assert self.attached is not None, "an attach sets it"
        return self.attached

    async def fetch_snapshot(self) -> messages.SessionSnapshot:
        """Returns the daemon's current snapshot of the session."""
        head = (await self.attach()).replay.toSeq
        connection = await self._attach(resume=True, after_seq=head)
        try:
            while True:
                event = await connection.receive_event()
                if isinstance(event.payload, messages.SessionSnapshot):
                    return event.payload
        finally:
            connection.close()

    async def find_open_dialogs(self) -> dict[str, tuple[int, frames.PushDialog]]:
        """Returns the open dialogs, each with the seq at which it was opened. The daemon's snapshot does not include dialogs, so
        this reads the events: the latest first, and more of them until they reach back before the run."""
        head, most = (await self.attach()).replay.toSeq, _SNAPSHOT_EVENTS
        while True:
            reader = SessionSubscription(
                self._settings,
                self.session_id,
                last_seen_seq=max(0, head - most),
                attach_token=self._attach_token,
                reconnect_timeout=self._reconnect_timeout,
            )
            open_now, runs = frames.DialogTracker(), set()
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
            # push, Replay and Reconnect Semantics: a snapshot in place of lost events is a fresh baseline, even with a lower seq.
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
