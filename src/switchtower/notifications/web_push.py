"""Sends notifications to subscribed browsers, through their vendors' push services (Web Push). A service sees the time and the
length of a message, but not its content.

Keys and subscriptions are kept in one of the owner's folders, readable only by the owner, or in a store that several nodes share.

Encrypts a message for one browser, and proves its sender: RFC 8291 and RFC 8292 with the `cryptography` library. Pure but for
that import; the randomness is passed in."""

import asyncio
import contextlib
import hashlib
import hmac
import importlib.util
import logging
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from switchtower.notifications import delivery, notifier
from switchtower.settings.sources import ConfigError
from switchtower.tools import atomic_write

RECORD = 4_096
MAX_PLAINTEXT_BYTES = RECORD - 16 - 1 - 86
"""Bytes of a message that fit into one record, with its header."""
_TOKEN_SECONDS = 12 * 3_600


def encode_base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    """Raises ValueError."""
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))


def generate_private_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def encode_pem(key: Any) -> str:
    from cryptography.hazmat.primitives import serialization as forms

    pem: bytes = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    return pem.decode()


def decode_pem(pem: str) -> Any:
    from cryptography.hazmat.primitives import serialization as forms

    return forms.load_pem_private_key(pem.encode(), None)


def encode_public_key(key: Any) -> bytes:
    """Returns the public half of a private key, as an uncompressed point."""
    from cryptography.hazmat.primitives import serialization as forms

    point: bytes = key.public_key().public_bytes(forms.Encoding.X962, forms.PublicFormat.UncompressedPoint)
    return point


def check_keys(p256dh: str, auth: str) -> None:
    """Raises ValueError for keys that no browser can have made."""
    _decode_point(decode_base64url(p256dh))
    if len(decode_base64url(auth)) != 16:
        raise ValueError("`auth` is not of 16 bytes")


def _decode_point(data: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), data)


def encrypt_message(message: bytes, p256dh: bytes, auth: bytes, *, key: Any, salt: bytes) -> bytes:
    """Returns the body of a push message in `aes128gcm`. `key` is a fresh private key for this message alone, `salt` 16 random
    bytes."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    assert len(message) <= MAX_PLAINTEXT_BYTES, "one record holds it"
    ours = encode_public_key(key)
    shared = key.exchange(ec.ECDH(), _decode_point(p256dh))
    # RFC 8291, section 3.4: the content key is derived from the two public keys and the browser's secret.
    material = _expand_key(_compute_hmac(auth, shared), b"WebPush: info\0" + p256dh + ours, 32)
    secret = _compute_hmac(salt, material)
    content_key = _expand_key(secret, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _expand_key(secret, b"Content-Encoding: nonce\0", 12)
    head = salt + RECORD.to_bytes(4, "big") + bytes([len(ours)]) + ours
    return head + AESGCM(content_key).encrypt(nonce, message + b"\x02", None)


def make_authorization(endpoint: str, key: Any, *, contact: str, now: float) -> str:
    """RFC 8292: the sender, the audience and the expiry, signed."""
    import jwt

    parts = urlsplit(endpoint)
    claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": int(now) + _TOKEN_SECONDS, "sub": contact}
    return f"vapid t={jwt.encode(claims, key, algorithm='ES256')}, k={encode_base64url(encode_public_key(key))}"


def _compute_hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, hashlib.sha256)


def _expand_key(key: bytes, info: bytes, length: int) -> bytes:
    return _compute_hmac(key, info + b"\x01")[:length]


class SubscriptionStore(Protocol):
    async def get_or_create(self, name: str, make: Callable[[], bytes]) -> bytes: ...

    async def read(self, name: str) -> bytes | None: ...

    async def update(self, name: str, update: Callable[[bytes | None], bytes]) -> None:
        """The update is atomic: no other change happens between reading and writing the value."""
        ...


class FolderSubscriptionStore:
    """Implements `SubscriptionStore` for a single daemon."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = asyncio.Lock()

    async def get_or_create(self, name: str, make: Callable[[], bytes]) -> bytes:
        async with self._lock:  # two concurrent first callers would make two
            kept = await asyncio.to_thread(atomic_write.read_or_create_private, self._folder / name, lambda: make().decode())
            return kept.encode()

    async def read(self, name: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return await asyncio.to_thread((self._folder / name).read_bytes)
        return None

    async def update(self, name: str, update: Callable[[bytes | None], bytes]) -> None:
        async with self._lock:
            await asyncio.to_thread(atomic_write.write_private, self._folder / name, update(await self.read(name)))


log = logging.getLogger(__name__)

KEY_FILE, SUBSCRIPTIONS_FILE = "webpush.key", "webpush.json"
MAX_SUBSCRIPTIONS_PER_USER = 20
MAX_SUBSCRIPTIONS = 200
CONCURRENT_SENDS = 8
TIME_TO_LIVE = 86_400
_GONE_STATUSES = (404, 410)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DEFAULT_CONTACT = "mailto:nobody@localhost.invalid"


class InvalidSubscription(Exception):
    """A subscription was refused; the error has the cause and the remedy."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(f"{message}; hint: {hint}")
        self.message = message
        self.hint = hint


class PushSubscription(Struct, frozen=True):
    user: str
    endpoint: str
    p256dh: str
    auth: str
    added_at_ms: int

    def __repr__(self) -> str:
        """Leaves out the endpoint: any client that has it can send."""
        return f"Subscription(user={self.user!r}, service={urlsplit(self.endpoint).hostname!r})"


def check_installed() -> None:
    """Raises `ConfigError`."""
    if importlib.util.find_spec("cryptography") is None:
        raise ConfigError(
            "web_push", "your settings", "needs a library that is not installed", hint="pip install 'switchtower[webpush]'"
        )


async def _is_always_known(name: str) -> bool:
    return True


class WebPushChannel:
    """Implements `notifier.NotificationChannel`, and `ports.PushSubscriptionsPort` of the web API."""

    name = "a browser's push service"

    def __init__(self, store: SubscriptionStore, *, contact: str | None, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._contact = contact or _DEFAULT_CONTACT
        self._now = now
        self._key: Any = None
        self.knows: Callable[[str], Awaitable[bool]] = _is_always_known
        """Returns whether the user still exists: a removed user gets no more notifications."""

    # Browsers

    async def get_public_key(self) -> str:
        return encode_base64url(encode_public_key(await self._load_key()))

    async def subscribe(self, user: str, endpoint: str, p256dh: str, auth: str) -> None:
        """Raises `InvalidSubscription`."""
        _check_endpoint(endpoint)
        try:
            await asyncio.to_thread(check_keys, p256dh, auth)
        except ValueError:
            raise InvalidSubscription(
                "these are no keys of a browser", hint="pass what `PushSubscription.toJSON()` gives"
            ) from None
        fresh = PushSubscription(user, endpoint, p256dh, auth, int(self._now() * 1_000))

        def added(kept: bytes | None) -> bytes:
            known = _decode_subscriptions(kept)
            known.pop(endpoint, None)
            own = [each for each in known.values() if each.user == user]
            for oldest in own[: max(0, len(own) - MAX_SUBSCRIPTIONS_PER_USER + 1)]:
                del known[oldest.endpoint]
            if len(known) >= MAX_SUBSCRIPTIONS:
                raise InvalidSubscription(
                    f"{MAX_SUBSCRIPTIONS} browsers have subscribed already", hint="unsubscribe some of them"
                )
            return _encode_subscriptions({**known, endpoint: fresh})

        await self._store.update(SUBSCRIPTIONS_FILE, added)

    async def unsubscribe(self, user: str, endpoint: str) -> bool:
        known = await self._load_subscriptions()
        if endpoint not in known or known[endpoint].user != user:
            return False
        await self._forget(endpoint)
        return True

    # Sending

    async def send(self, notification: notifier.Notification) -> None:
        """Sends to all subscriptions. If one service fails, the notification is not sent to the others again."""
        subscriptions = list((await self._load_subscriptions()).values())
        if not subscriptions:
            return
        message = _encode_message(notification)
        crowd = asyncio.Semaphore(CONCURRENT_SENDS)

        async def tell(subscription: PushSubscription) -> None:
            async with crowd:
                await self._send_to(subscription, message, urgent=notification.event == notifier.DECISION)

        await asyncio.gather(*(tell(subscription) for subscription in subscriptions))

    async def _send_to(self, subscription: PushSubscription, message: bytes, *, urgent: bool) -> None:
        if not await self.knows(subscription.user):
            await self._forget(subscription.endpoint)
            return
        body, authorization = await asyncio.to_thread(self._make_request, subscription, message, await self._load_key())
        headers = {
            "Authorization": authorization,
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(TIME_TO_LIVE),
            "Urgency": "high" if urgent else "normal",
        }
        for last in (False, True):
            try:
                await delivery.post_notification(subscription.endpoint, body, headers)
                return
            except delivery.DeliveryRejected as refusal:
                if refusal.status in _GONE_STATUSES:  # RFC 8030, section 7.3: the browser has unsubscribed
                    await self._forget(subscription.endpoint)
                    return
                problem: notifier.DeliveryFailed = refusal
            except notifier.DeliveryFailed as trouble:
                problem = trouble
            if last or not problem.again:
                log.warning("%s did not take a message: %s", urlsplit(subscription.endpoint).hostname, problem)
                return
            await asyncio.sleep(min(problem.after or 1.0, notifier.MAX_RETRY_DELAY))

    def _make_request(self, subscription: PushSubscription, message: bytes, key: Any) -> tuple[bytes, str]:
        body = encrypt_message(
            message,
            decode_base64url(subscription.p256dh),
            decode_base64url(subscription.auth),
            key=generate_private_key(),
            salt=secrets.token_bytes(16),
        )
        return body, make_authorization(subscription.endpoint, key, contact=self._contact, now=self._now())

    # Storage

    async def _load_key(self) -> Any:
        if self._key is None:
            kept = await self._store.get_or_create(KEY_FILE, lambda: encode_pem(generate_private_key()).encode())
            self._key = decode_pem(kept.decode())
        return self._key

    async def _load_subscriptions(self) -> dict[str, PushSubscription]:
        try:
            return _decode_subscriptions(await self._store.read(SUBSCRIPTIONS_FILE))
        except OSError as problem:
            log.warning("the subscriptions of browsers cannot be read: %s", type(problem).__name__)
            return {}

    async def _forget(self, endpoint: str) -> None:
        def without(kept: bytes | None) -> bytes:
            known = _decode_subscriptions(kept)
            known.pop(endpoint, None)
            return _encode_subscriptions(known)

        await self._store.update(SUBSCRIPTIONS_FILE, without)


def _decode_subscriptions(kept: bytes | None) -> dict[str, PushSubscription]:
    if kept is None:
        return {}
    try:
        subscriptions = msgspec.json.decode(kept, type=list[PushSubscription])
    except msgspec.MsgspecError as problem:
        log.warning("`%s` cannot be read (%s); browsers must subscribe anew", SUBSCRIPTIONS_FILE, type(problem).__name__)
        return {}
    return {subscription.endpoint: subscription for subscription in subscriptions}


def _encode_subscriptions(known: dict[str, PushSubscription]) -> bytes:
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
        raise InvalidSubscription("this is not the address of a push service", hint="pass what `PushSubscription.toJSON()` gives")


def _encode_message(notification: notifier.Notification) -> bytes:
    """Encodes the message in the form that our service worker reads."""
    told = {
        "title": notification.title,
        "body": "\n".join(part for part in (notification.run_title, notification.text) if part),
        "tag": notification.tag,
        "url": notification.place,
        "event": notification.event,
    }
    content = msgspec.json.encode(told)
    while len(content) > MAX_PLAINTEXT_BYTES and told["body"]:
        told["body"] = told["body"][: len(told["body"]) // 2]
        content = msgspec.json.encode(told)
    return content
