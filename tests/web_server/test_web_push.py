"""Web Push: what a browser's push service gets can be read by that browser and by nobody else, and says who sent it."""

import asyncio
import json
import stat
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="Web Push needs the extra `webpush`")

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from tests.daemon.conftest import Connect, StartDaemon
from tests.web_server.receiver import WebhookReceiver
from tests.web_server.site import HttpPortClient
from tests.web_server.test_notify import make_news

from switchtower.notifications import web_push
from switchtower.notifications.web_push import FolderSubscriptionStore, WebPushChannel

VECTOR = {
    "plaintext": b"When I grow up, I want to be a watermelon",
    "as_private": "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw",
    "ua_public": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
    "auth": "BTBZMqHH6r4Tts7J_aSIgg",
    "salt": "DGv6ra1nlYgDCS1FRnbzlw",
    "sealed": "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl"
    "7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN",
}
"""RFC 8291, appendix A."""


class FakePushBrowser:
    """Subscribes, and reads what only it can read."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.auth = b"0123456789abcdef"

    @property
    def subscription(self) -> dict[str, Any]:
        keys = {
            "p256dh": web_push.encode_base64url(web_push.encode_public_key(self.key)),
            "auth": web_push.encode_base64url(self.auth),
        }
        return {"endpoint": self.endpoint, "expirationTime": None, "keys": keys}

    def read(self, body: bytes) -> Any:
        salt, size, rest = body[:16], body[20], body[21:]
        assert int.from_bytes(body[16:20], "big") >= len(body) - 86
        theirs, sealed = rest[:size], rest[size:]
        shared = self.key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), theirs))
        ours = web_push.encode_public_key(self.key)
        material = web_push._expand_key(web_push._compute_hmac(self.auth, shared), b"WebPush: info\0" + ours + theirs, 32)
        secret = web_push._compute_hmac(salt, material)
        key = web_push._expand_key(secret, b"Content-Encoding: aes128gcm\0", 16)
        nonce = web_push._expand_key(secret, b"Content-Encoding: nonce\0", 12)
        return json.loads(AESGCM(key).decrypt(nonce, sealed, None).rstrip(b"\0")[:-1])


def test_a_message_is_sealed_as_the_rfc_s_own_example() -> None:
    number = int.from_bytes(web_push.decode_base64url(str(VECTOR["as_private"])), "big")
    sealed = web_push.encrypt_message(
        bytes(VECTOR["plaintext"]),  # type: ignore[arg-type]
        web_push.decode_base64url(str(VECTOR["ua_public"])),
        web_push.decode_base64url(str(VECTOR["auth"])),
        key=ec.derive_private_key(number, ec.SECP256R1()),
        salt=web_push.decode_base64url(str(VECTOR["salt"])),
    )
    assert web_push.encode_base64url(sealed) == VECTOR["sealed"]


async def test_a_subscribed_browser_is_told_of_a_decision_and_nobody_else_can_read_it(
    start_daemon_process: StartDaemon, connect: Connect, home: Path, workspace: Path, receiver: WebhookReceiver
) -> None:
    site = HttpPortClient(
        home, await start_daemon_process(http="127.0.0.1:0", web_push="true", web_push_contact="mailto:ada@example.org")
    )
    assert "webpush" in (await site.get("/health")).json["features"]
    public_key = (await site.request_as_owner("GET", "/push/key")).json["public_key"]
    browser = FakePushBrowser(f"{receiver.url}/push/abc")
    assert (await site.request_as_owner("POST", "/push/subscriptions", browser.subscription)).status == 204
    for name in (web_push.KEY_FILE, web_push.SUBSCRIPTIONS_FILE):
        assert stat.S_IMODE((home / "data" / name).stat().st_mode) == 0o600

    client = await connect(site.daemon)
    session_id = await client.start_session(workspace)
    await client.send(session_id, "run: echo hello")
    asked = await client.wait_for_event("approval_required", session_id=session_id)
    (got,) = await receiver.wait_for_requests()
    assert (got.method, got.path, got.headers["content-encoding"], got.headers["urgency"]) == (
        "POST",
        "/push/abc",
        "aes128gcm",
        "high",
    )
    assert int(got.headers["ttl"]) > 0
    told = browser.read(got.body)
    assert set(told) == {"title", "body", "tag", "url", "event"}
    assert (told["event"], told["url"], told["tag"]) == ("decision", f"/#/s/{session_id}", asked.content["approvalId"])
    assert b"hello" not in got.body

    scheme, _, rest = got.headers["authorization"].partition(" ")
    parts = dict(part.strip().split("=", 1) for part in rest.split(","))
    assert (scheme, parts["k"]) == ("vapid", public_key)
    key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), web_push.decode_base64url(public_key))
    claims = jwt.decode(parts["t"], key, algorithms=["ES256"], audience=receiver.url)
    assert claims["sub"] == "mailto:ada@example.org"

    ended = {"endpoint": browser.endpoint}
    assert (await site.request_as_owner("DELETE", "/push/subscriptions", ended)).status == 204
    assert (await site.request_as_owner("DELETE", "/push/subscriptions", ended)).status == 404


async def test_off_by_default(http_port: HttpPortClient) -> None:
    assert "webpush" not in (await http_port.get("/health")).json["features"]
    assert (await http_port.request_as_owner("POST", "/push/subscriptions", {})).status == 404


NO_SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"endpoint": "http://10.0.0.1/x"},
    {"endpoint": "ftp://example.org/x"},
    {"endpoint": "https://"},
    {"endpoint": "https://user@example.org/"},
    {"endpoint": "https://example.org:99999/"},
    {"endpoint": "https://example.org/\r\nX: y"},
    {"endpoint": "https://example.org/" + "x" * 5_000},
    {"endpoint": 7},
    {"keys": {"p256dh": "AAAA", "auth": "AAAA"}},
    {"keys": {"p256dh": "ü", "auth": "ü"}},
    {"keys": {}},
    {"keys": None},
]


async def test_what_no_browser_says_is_refused(start_daemon_process: StartDaemon, home: Path) -> None:
    site = HttpPortClient(home, await start_daemon_process(http="127.0.0.1:0", web_push="true"))
    subscription = FakePushBrowser("https://push.example.org/x").subscription
    answers = [
        await site.request_as_owner("POST", "/push/subscriptions", {**subscription, **change}) for change in NO_SUBSCRIPTIONS
    ]
    assert [answer.status for answer in answers] == [400] * len(NO_SUBSCRIPTIONS)
    assert not (home / "data" / web_push.SUBSCRIPTIONS_FILE).exists()


async def test_only_users_subscribe(start_daemon_process: StartDaemon, home: Path) -> None:
    site = HttpPortClient(home, await start_daemon_process(http="127.0.0.1:0", web_push="true"))
    for method, path in (("GET", "/push/key"), ("POST", "/push/subscriptions"), ("DELETE", "/push/subscriptions")):
        assert (await site.ask(method, path, {} if method != "GET" else None)).status == 401


# By itself


async def subscribe_browser(push: WebPushChannel, browser: FakePushBrowser, user: str = "ada") -> None:
    keys = browser.subscription["keys"]
    await push.subscribe(user, browser.endpoint, keys["p256dh"], keys["auth"])


async def test_subscriptions_and_the_key_outlive_the_daemon(tmp_path: Path, receiver: WebhookReceiver) -> None:
    browser = FakePushBrowser(f"{receiver.url}/1")
    first = WebPushChannel(FolderSubscriptionStore(tmp_path), contact=None)
    await subscribe_browser(first, browser)
    again = WebPushChannel(FolderSubscriptionStore(tmp_path), contact=None)
    assert await again.get_public_key() == await first.get_public_key()
    await again.send(make_news("finished"))
    (got,) = receiver.got
    assert browser.read(got.body)["event"] == "finished"
    assert got.headers["urgency"] == "normal"


@pytest.mark.parametrize("status", ["404 Not Found", "410 Gone"])
async def test_a_browser_that_has_unsubscribed_is_forgotten(tmp_path: Path, receiver: WebhookReceiver, status: str) -> None:
    push = WebPushChannel(FolderSubscriptionStore(tmp_path), contact=None)
    await subscribe_browser(push, FakePushBrowser(f"{receiver.url}/1"))
    receiver.answers = [status]
    await push.send(make_news())
    await push.send(make_news())
    assert len(receiver.got) == 1


async def test_a_user_who_was_removed_is_told_nothing_more(tmp_path: Path, receiver: WebhookReceiver) -> None:
    push = WebPushChannel(FolderSubscriptionStore(tmp_path), contact=None)
    await subscribe_browser(push, FakePushBrowser(f"{receiver.url}/ada"), "ada")
    await subscribe_browser(push, FakePushBrowser(f"{receiver.url}/bob"), "bob")

    async def knows(name: str) -> bool:
        return name == "bob"

    push.knows = knows
    await push.send(make_news())
    assert [got.path for got in receiver.got] == ["/bob"]


async def test_one_user_s_browsers_are_bounded_and_the_oldest_make_room(tmp_path: Path) -> None:
    push = WebPushChannel(FolderSubscriptionStore(tmp_path), contact=None)
    keys = FakePushBrowser("x").subscription["keys"]
    for number in range(web_push.MAX_SUBSCRIPTIONS_PER_USER + 5):
        await push.subscribe("ada", f"https://push.example.org/{number}", keys["p256dh"], keys["auth"])
    kept = json.loads((tmp_path / web_push.SUBSCRIPTIONS_FILE).read_bytes())
    assert [each["endpoint"].rpartition("/")[2] for each in kept] == [
        str(n) for n in range(5, web_push.MAX_SUBSCRIPTIONS_PER_USER + 5)
    ]
    assert not await push.unsubscribe("bob", kept[0]["endpoint"]), "each has their own"


async def test_a_long_text_is_cut_to_what_one_message_holds(tmp_path: Path, receiver: WebhookReceiver) -> None:
    import msgspec

    browser = FakePushBrowser(f"{receiver.url}/1")
    push = WebPushChannel(FolderSubscriptionStore(tmp_path), contact=None)
    await subscribe_browser(push, browser)
    await push.send(msgspec.structs.replace(make_news(), text="ü" * 10_000))
    assert len(receiver.got[0].body) <= 4_096
    assert browser.read(receiver.got[0].body)["body"]


async def test_a_broken_file_costs_the_subscriptions_and_not_the_daemon(tmp_path: Path) -> None:
    (tmp_path / web_push.SUBSCRIPTIONS_FILE).write_bytes(b"\xff{")
    push = WebPushChannel(FolderSubscriptionStore(tmp_path), contact=None)
    await push.send(make_news())
    await subscribe_browser(push, FakePushBrowser("https://push.example.org/1"))
    assert len(json.loads((tmp_path / web_push.SUBSCRIPTIONS_FILE).read_bytes())) == 1


async def test_subscribing_at_once_loses_nobody(tmp_path: Path) -> None:
    push = WebPushChannel(FolderSubscriptionStore(tmp_path), contact=None)
    browsers = [FakePushBrowser(f"https://push.example.org/{number}") for number in range(8)]
    await asyncio.gather(*(subscribe_browser(push, browser) for browser in browsers))
    kept = json.loads((tmp_path / web_push.SUBSCRIPTIONS_FILE).read_bytes())
    assert {each["endpoint"] for each in kept} == {browser.endpoint for browser in browsers}


async def test_those_who_ask_first_together_get_the_one_key_that_is_kept(tmp_path: Path) -> None:
    push = WebPushChannel(FolderSubscriptionStore(tmp_path), contact=None)
    keys = set(await asyncio.gather(*(push.get_public_key() for _ in range(8))))
    assert keys == {await WebPushChannel(FolderSubscriptionStore(tmp_path), contact=None).get_public_key()}


def test_base64_is_read_with_and_without_padding() -> None:
    assert web_push.decode_base64url("AQI") == web_push.decode_base64url("AQI=") == b"\x01\x02"
    assert urlsafe_b64encode(b"\x01\x02") == b"AQI="
