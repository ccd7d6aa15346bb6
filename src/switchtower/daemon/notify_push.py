"""Notifications to browsers that subscribed, through their makers' push services (Web Push). A service sees when something is
sent and how long it is, and nothing of what it says. Keys and subscriptions are kept for the owner's eyes only."""

import asyncio
import importlib.util
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from switchtower import config
from switchtower.daemon import notify, notify_http, notify_seal
from switchtower.daemon.notify_shelf import Shelf

log = logging.getLogger(__name__)

KEY_FILE, SUBSCRIPTIONS_FILE = "webpush.key", "webpush.json"
MOST_OF_ONE = 20
MOST = 200
AT_ONCE = 8
TIME_TO_LIVE = 86_400
_GONE = (404, 410)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NOBODY = "mailto:nobody@localhost.invalid"


class Unusable(Exception):
    """A subscription that cannot be taken: why, and what to do."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(f"{message}; hint: {hint}")
        self.message = message
        self.hint = hint


class Subscription(Struct, frozen=True):
    user: str
    endpoint: str
    p256dh: str
    auth: str
    added_at_ms: int

    def __repr__(self) -> str:
        """Without the endpoint: whoever has it can send."""
        return f"Subscription(user={self.user!r}, service={urlsplit(self.endpoint).hostname!r})"


def check_installed() -> None:
    """Raises `ConfigError`."""
    if importlib.util.find_spec("cryptography") is None:
        raise config.ConfigError(
            "web_push", "your settings", "needs a library that is not installed", hint="pip install 'switchtower[webpush]'"
        )


async def _everybody(name: str) -> bool:
    return True


class WebPush:
    """Implements `notify.Channel`, and `ports.Pushes` of relay's HTTP."""

    name = "a browser's push service"

    def __init__(self, shelf: Shelf, *, contact: str | None, now: Callable[[], float] = time.time) -> None:
        self._shelf = shelf
        self._contact = contact or _NOBODY
        self._now = now
        self._key: Any = None
        self.knows: Callable[[str], Awaitable[bool]] = _everybody
        """Whether there is still such a user: who was removed is told nothing more."""

    # Browsers

    async def public_key(self) -> str:
        return notify_seal.unpadded(notify_seal.public_bytes(await self._own_key()))

    async def subscribe(self, user: str, endpoint: str, p256dh: str, auth: str) -> None:
        """Raises `Unusable`."""
        _check_endpoint(endpoint)
        try:
            await asyncio.to_thread(notify_seal.check_keys, p256dh, auth)
        except ValueError:
            raise Unusable("these are no keys of a browser", hint="pass what `PushSubscription.toJSON()` gives") from None
        fresh = Subscription(user, endpoint, p256dh, auth, int(self._now() * 1_000))

        def added(kept: bytes | None) -> bytes:
            known = _read(kept)
            known.pop(endpoint, None)
            own = [each for each in known.values() if each.user == user]
            for oldest in own[: max(0, len(own) - MOST_OF_ONE + 1)]:
                del known[oldest.endpoint]
            if len(known) >= MOST:
                raise Unusable(f"{MOST} browsers have subscribed already", hint="unsubscribe some of them")
            return _spelled({**known, endpoint: fresh})

        await self._shelf.change(SUBSCRIPTIONS_FILE, added)

    async def unsubscribe(self, user: str, endpoint: str) -> bool:
        known = await self._known()
        if endpoint not in known or known[endpoint].user != user:
            return False
        await self._forget(endpoint)
        return True

    # News

    async def send(self, news: notify.News) -> None:
        """To all of them. What one service does not take is that one's loss: others are not told twice for it."""
        subscriptions = list((await self._known()).values())
        if not subscriptions:
            return
        message = _message(news)
        crowd = asyncio.Semaphore(AT_ONCE)

        async def tell(subscription: Subscription) -> None:
            async with crowd:
                await self._tell(subscription, message, urgent=news.event == notify.DECISION)

        await asyncio.gather(*(tell(subscription) for subscription in subscriptions))

    async def _tell(self, subscription: Subscription, message: bytes, *, urgent: bool) -> None:
        if not await self.knows(subscription.user):
            await self._forget(subscription.endpoint)
            return
        body, authorization = await asyncio.to_thread(self._prepared, subscription, message, await self._own_key())
        headers = {
            "Authorization": authorization,
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(TIME_TO_LIVE),
            "Urgency": "high" if urgent else "normal",
        }
        for last in (False, True):
            try:
                await notify_http.post(subscription.endpoint, body, headers)
                return
            except notify_http.Rejected as refusal:
                if refusal.status in _GONE:  # RFC 8030, section 7.3: the browser has unsubscribed
                    await self._forget(subscription.endpoint)
                    return
                problem: notify.Undelivered = refusal
            except notify.Undelivered as trouble:
                problem = trouble
            if last or not problem.again:
                log.warning("%s did not take a message: %s", urlsplit(subscription.endpoint).hostname, problem)
                return
            await asyncio.sleep(min(problem.after or 1.0, notify.LONGEST_PAUSE))

    def _prepared(self, subscription: Subscription, message: bytes, key: Any) -> tuple[bytes, str]:
        body = notify_seal.sealed(
            message,
            notify_seal.padded(subscription.p256dh),
            notify_seal.padded(subscription.auth),
            key=notify_seal.new_private_key(),
            salt=secrets.token_bytes(16),
        )
        return body, notify_seal.authorization(subscription.endpoint, key, contact=self._contact, now=self._now())

    # What is kept

    async def _own_key(self) -> Any:
        if self._key is None:
            kept = await self._shelf.made_once(KEY_FILE, lambda: notify_seal.to_pem(notify_seal.new_private_key()).encode())
            self._key = notify_seal.from_pem(kept.decode())
        return self._key

    async def _known(self) -> dict[str, Subscription]:
        try:
            return _read(await self._shelf.read(SUBSCRIPTIONS_FILE))
        except OSError as problem:
            log.warning("the subscriptions of browsers cannot be read: %s", type(problem).__name__)
            return {}

    async def _forget(self, endpoint: str) -> None:
        def without(kept: bytes | None) -> bytes:
            known = _read(kept)
            known.pop(endpoint, None)
            return _spelled(known)

        await self._shelf.change(SUBSCRIPTIONS_FILE, without)


def _read(kept: bytes | None) -> dict[str, Subscription]:
    if kept is None:
        return {}
    try:
        subscriptions = msgspec.json.decode(kept, type=list[Subscription])
    except msgspec.MsgspecError as problem:
        log.warning("`%s` cannot be read (%s); browsers must subscribe anew", SUBSCRIPTIONS_FILE, type(problem).__name__)
        return {}
    return {subscription.endpoint: subscription for subscription in subscriptions}


def _spelled(known: dict[str, Subscription]) -> bytes:
    return msgspec.json.encode(list(known.values()))


def _check_endpoint(endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        port_is_fine = parts.port is None or 0 < parts.port < 65_536
    except ValueError:
        parts, port_is_fine = urlsplit(""), False
    is_web = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    is_plain = endpoint.isascii() and endpoint.isprintable() and " " not in endpoint and "@" not in parts.netloc
    if not (is_web and parts.hostname and port_is_fine and is_plain):
        raise Unusable("this is not the address of a push service", hint="pass what `PushSubscription.toJSON()` gives")


def _message(news: notify.News) -> bytes:
    """As our service worker reads it."""
    told = {
        "title": news.title,
        "body": "\n".join(part for part in (news.run_title, news.text) if part),
        "tag": news.tag,
        "url": news.place,
        "event": news.event,
    }
    content = msgspec.json.encode(told)
    while len(content) > notify_seal.LONGEST and told["body"]:
        told["body"] = told["body"][: len(told["body"]) // 2]
        content = msgspec.json.encode(told)
    return content
