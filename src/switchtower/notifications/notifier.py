"""Notifies users of pending decisions and ended runs, even when no page is open. It watches the runtime and never blocks it:
notifications that cannot be sent in time are dropped, and the log has their number.

The daemon makes it from the settings, and loads it only if notifications are configured.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from msgspec import Struct

from switchtower import config
from switchtower.core import events, redact
from switchtower.core.fold import summarize_approval
from switchtower.core.session import Session
from switchtower.protocols.relay import wire_values
from switchtower.runtime.runtime import Runtime

if TYPE_CHECKING:
    from switchtower.notifications.web_push import SubscriptionStore, WebPushChannel


log = logging.getLogger(__name__)

MAX_WAITING = 100
"""Notifications that wait for one address; the oldest are dropped."""
ATTEMPTS = 5
MAX_RETRY_DELAY = 60.0
MAX_TEXT_LENGTH = 500

DECISION, FINISHED, FAILED = "decision", "finished", "failed"


class Notification(Struct, frozen=True, kw_only=True):
    event: str
    title: str
    text: str
    session_id: str
    run_title: str
    host: str | None
    tool: str
    request: str | None
    """The id of the pending approval or dialog."""
    place: str
    """The path of the session in the page."""
    site: str | None
    """The public address of the page, if it is configured."""
    at_ms: int

    @property
    def url(self) -> str | None:
        return None if self.site is None else self.site + self.place

    @property
    def tag(self) -> str:
        """A later notification with the same tag replaces the earlier one."""
        return self.request or self.session_id


def make_session_path(session_id: str) -> str:
    return f"/#/s/{quote(wire_values.format_run_id(session_id), safe='')}"


class DeliveryFailed(Exception):
    """A notification was not accepted. The error never contains the whole address, which may hold a secret."""

    def __init__(self, problem: str, *, again: bool, after: float | None = None) -> None:
        super().__init__(problem)
        self.again = again
        self.after = after


class NotificationChannel(Protocol):
    @property
    def name(self) -> str:
        """The channel's name in the log."""
        ...

    async def send(self, notification: Notification) -> None:
        """Raises `DeliveryFailed`."""
        ...


class Notifier:
    def __init__(
        self,
        channels: Sequence[NotificationChannel],
        enabled_kinds: Sequence[str],
        *,
        public_url: str | None,
        clean: Callable[[str], str],
        now_ms: Callable[[], int],
        first_pause: float = 1.0,
    ) -> None:
        """`clean` hides secrets in a text."""
        self._enabled_kinds = frozenset(enabled_kinds)
        self._public_url = public_url
        self._clean = clean
        self._now_ms = now_ms
        self._lines = [_ChannelQueue(channel, first_pause) for channel in channels]

    def on_event(self, session: Session, event: events.AnyEvent) -> None:
        """The runtime's watcher."""
        match event:
            case events.ApprovalRequested():
                asked = summarize_approval(event.approval)
                self._notify(DECISION, session, f"Decide: {asked.title}", asked.summary, asked.tool, event.approval.id)
            case events.DialogOpened():
                dialog = event.dialog
                self._notify(DECISION, session, f"Answer: {dialog.title}", dialog.message, request=dialog.id)
            case events.RunCompleted(outcome=events.Outcome.SUCCESS):
                self._notify(FINISHED, session, "Finished", event.summary)
            case events.RunCompleted(outcome=events.Outcome.FAILED):
                self._notify(FAILED, session, "Failed", event.summary)
            case _:
                pass  # the user that cancelled or denied it knows already

    def _notify(self, kind: str, session: Session, title: str, text: str, tool: str = "", request: str | None = None) -> None:
        if kind not in self._enabled_kinds:
            return
        news = Notification(
            event=kind,
            title=self._shorten(title),
            text=self._shorten(text),
            session_id=session.id,
            run_title=self._shorten(session.title),
            host=session.host,
            tool=tool,
            request=request,
            place=make_session_path(session.id),
            site=self._public_url,
            at_ms=self._now_ms(),
        )
        for line in self._lines:
            line.put(news)

    def _shorten(self, text: str) -> str:
        clean = " ".join(self._clean(text[: 4 * MAX_TEXT_LENGTH]).split())
        return clean if len(clean) <= MAX_TEXT_LENGTH else clean[: MAX_TEXT_LENGTH - 1] + "…"

    async def close(self) -> None:
        await asyncio.gather(*(line.close() for line in self._lines))


class _ChannelQueue:
    """One channel and its waiting notifications. Its task exists only while there are any."""

    def __init__(self, channel: NotificationChannel, first_pause: float) -> None:
        self._channel = channel
        self._first_pause = first_pause
        self._waiting: deque[Notification] = deque()
        self._dropped = 0
        self._sending: asyncio.Task[None] | None = None

    def put(self, notification: Notification) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append(notification)
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait((self._sending,))

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                await self._send(self._waiting.popleft())
                if self._dropped:
                    log.warning("%s is slow: %d notifications were dropped", self._channel.name, self._dropped)
                    self._dropped = 0
        finally:
            self._sending = None

    async def _send(self, notification: Notification) -> None:
        for attempt in range(ATTEMPTS):
            try:
                await self._channel.send(notification)
                return
            except DeliveryFailed as problem:
                if not problem.again or attempt == ATTEMPTS - 1:
                    log.warning("a notification could not be sent to %s: %s", self._channel.name, problem)
                    return
                pause = self._first_pause * 2**attempt * (0.5 + random.random())  # noqa: S311
                await asyncio.sleep(min(max(pause, problem.after or 0.0), MAX_RETRY_DELAY))
            except Exception:
                log.exception("sending a notification to %s failed", self._channel.name)
                return


def make_web_push(settings: config.Settings, shared: "SubscriptionStore | None" = None) -> "WebPushChannel | None":
    """Returns None when Web Push is off. `shared` is the store that several nodes share. Raises `ConfigError`."""
    if not settings.web_push:
        return None
    from switchtower.notifications import web_push

    web_push.check_installed()
    shelf = shared or web_push.FolderSubscriptionStore(settings.data_dir)
    return web_push.WebPushChannel(shelf, contact=settings.web_push_contact or settings.public_url)


def make_notifier(
    settings: config.Settings, runtime: Runtime, redactor: redact.Redactor, push: "WebPushChannel | None"
) -> "Notifier | None":
    """Makes a notifier, which watches from now on. Returns None when there is no channel."""
    if not settings.notify_webhook and push is None:
        return None
    from switchtower.notifications import delivery

    for url in settings.notify_webhook:
        redactor.add_secret(url)
    channels: list[NotificationChannel] = [
        delivery.WebhookChannel(url, settings.notify_format) for url in settings.notify_webhook
    ]
    if push is not None:
        channels.append(push)
    made = Notifier(
        channels, settings.notify_events, public_url=settings.public_url, clean=redactor.redact_text, now_ms=runtime.now_ms
    )
    runtime.watch(made.on_event, owned_only=True)
    return made
