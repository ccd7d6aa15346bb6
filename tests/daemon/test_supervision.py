"""Whoever came in with an access token stays only as long as that is good; the owner stays."""

import asyncio
import logging
import uuid
from collections.abc import Callable

import pytest
from tests.conformance.daemons import ManagedDaemon

from switchtower.accounts.authenticators import POLICY_VIOLATION, TokenBoundReceiver
from switchtower.core.ports import registry
from switchtower.testing.memory.stream import MemoryStream, RecordingReceiver, join_receivers
from switchtower.testing.relay_client import RelayHttp, open_websocket
from switchtower.testing.wire import WebSocketWire

TIMEOUT = 60.0
SHORT = 0.002
PASSWORD = "correct horse battery staple"
DOORS = ("/ws/app", "/ws/push", "/ws/minicodex", "/ws/pi")


class ScriptedTokenJudge:
    """Says what it is told to of a token, and counts how often it was asked."""

    def __init__(self) -> None:
        self.verdict: bool | Exception = True
        self.asked = 0
        self._was_asked = asyncio.Event()

    async def __call__(self) -> bool:
        self.asked += 1
        self._was_asked.set()
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict

    async def wait_until_asked(self, times: int = 3) -> None:
        wanted = self.asked + times
        async with asyncio.timeout(TIMEOUT):
            while self.asked < wanted:
                self._was_asked.clear()
                await self._was_asked.wait()


def start_supervised(judge: ScriptedTokenJudge) -> tuple[RecordingReceiver, RecordingReceiver, MemoryStream]:
    """Who is watched, the client at the other end, and the stream between them as the daemon holds it."""
    inner, client = RecordingReceiver(), RecordingReceiver()
    stream, _ = join_receivers(TokenBoundReceiver(inner, judge, every_s=SHORT), client)
    return inner, client, stream


async def wait_closed(inbox: RecordingReceiver) -> None:
    async with asyncio.timeout(TIMEOUT):
        await inbox.wait_until(lambda: inbox.closed)


async def test_who_has_a_good_token_stays_and_is_looked_at_again_and_again() -> None:
    judge = ScriptedTokenJudge()
    inner, client, stream = start_supervised(judge)
    await judge.wait_until_asked(5)
    assert stream.closed_with is None
    client.send(b"hello")
    assert await inner.next_frame() == b"hello"
    inner.send(b"and back")
    assert await client.next_frame() == b"and back"
    client.stream.close()
    await wait_closed(inner)


async def test_who_has_no_good_token_any_more_is_closed_and_told_why() -> None:
    judge = ScriptedTokenJudge()
    inner, client, stream = start_supervised(judge)
    await judge.wait_until_asked(2)
    judge.verdict = False
    await wait_closed(client)
    await wait_closed(inner)
    assert stream.closed_with == (POLICY_VIOLATION, "the access token is no longer good, or your role has changed")
    assert POLICY_VIOLATION == 1008


@pytest.mark.parametrize(
    "problem", [registry.RegistryUnavailable("disk full"), RuntimeError("a bug")], ids=lambda p: type(p).__name__
)
async def test_while_it_cannot_be_told_they_stay_and_are_looked_at_again(
    problem: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    judge = ScriptedTokenJudge()
    _, client, stream = start_supervised(judge)
    with caplog.at_level(logging.WARNING):
        judge.verdict = problem
        await judge.wait_until_asked()
    assert stream.closed_with is None
    assert str(problem) in caplog.text
    judge.verdict = False
    await wait_closed(client)
    assert stream.closed_with is not None


async def test_who_has_gone_is_not_looked_at_any_more() -> None:
    before = asyncio.all_tasks()
    judge, other = ScriptedTokenJudge(), ScriptedTokenJudge()
    inner, client, _ = start_supervised(judge)
    await judge.wait_until_asked(1)
    client.stream.abort()
    await wait_closed(inner)
    asked = judge.asked
    others_inner, others_client, _ = start_supervised(other)
    await other.wait_until_asked(5)
    assert judge.asked == asked
    others_client.stream.abort()
    await wait_closed(others_inner)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_all_that_a_receiver_is_told_it_is_told_still() -> None:
    inner = RecordingReceiver()
    watched = TokenBoundReceiver(inner, ScriptedTokenJudge(), every_s=TIMEOUT)
    stream, _ = join_receivers(watched, RecordingReceiver())
    assert inner.stream is stream
    watched.on_frames([b"one", b"two"])
    watched.on_oversized_frame("too long")
    watched.on_writable()
    assert (list(inner.frames), inner.refusals) == ([b"one", b"two"], ["too long"])
    watched.on_disconnected()
    assert inner.closed


# The whole daemon


async def connect_with(daemon: ManagedDaemon, token: str) -> dict[str, WebSocketWire]:
    return {path: await open_websocket(daemon.http, path, {"token": token}) for path in DOORS}


async def read_close_code(wire: WebSocketWire) -> int | None:
    """Reads until it is closed; with which code."""
    try:
        while True:
            await wire.receive()
    except EOFError:
        return wire.close_code


async def test_every_door_closes_behind_who_has_lost_their_token_and_stays_open_for_the_others(
    start_daemon: Callable[..., ManagedDaemon],
) -> None:
    daemon = start_daemon()
    http = RelayHttp(daemon.http, daemon.token)
    unique = uuid.uuid4().hex[:8]
    tokens: dict[str, str] = {}
    for name in ("revoked", "changed", "removed", "leaving", "staying"):
        assert (await http.request("POST", "/users", {"name": name + unique, "password": PASSWORD})).status < 300
        tokens[name] = (await http.login(name + unique, PASSWORD)).json["access_token"]
    inside = {name: await connect_with(daemon, token) for name, token in {**tokens, "owner": daemon.token}.items()}
    reading = {
        (name, path): asyncio.ensure_future(read_close_code(wire))
        for name, doors in inside.items()
        for path, wire in doors.items()
    }

    token_id = (await RelayHttp(daemon.http, tokens["revoked"]).get("/auth/me"))["token_id"]
    for answer in (
        await http.request("DELETE", f"/tokens/{token_id}"),
        await http.request("PUT", f"/users/changed{unique}/password", {"password": PASSWORD + "!"}),
        await http.request("DELETE", f"/users/removed{unique}"),
        await RelayHttp(daemon.http, tokens["leaving"]).request("POST", "/auth/logout"),
    ):
        assert answer.status == 204, answer

    lost = [place for place in reading if place[0] not in ("staying", "owner")]
    async with asyncio.timeout(TIMEOUT):
        codes = dict(zip(lost, await asyncio.gather(*(reading[place] for place in lost)), strict=True))
    assert codes == dict.fromkeys(lost, POLICY_VIOLATION)
    stay = [place for place in reading if place not in lost]
    assert len(stay) == 2 * len(DOORS)
    assert [place for place in stay if reading[place].done()] == []
    for doors in inside.values():
        for wire in doors.values():
            wire.abort()
    await asyncio.gather(*reading.values(), return_exceptions=True)
    for token in tokens.values():
        assert token not in daemon.log
