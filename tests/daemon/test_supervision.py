"""Whoever came in with an access token stays only as long as that is good; the owner stays."""

import asyncio
import logging
import uuid
from collections.abc import Callable

import pytest
from tests.conformance.daemons import Daemon

from switchtower.core import registry
from switchtower.daemon.supervision import POLICY_VIOLATION, Supervised
from switchtower.testing.relay_client import RelayHttp, upgraded
from switchtower.testing.wires import WebSocketWire
from switchtower.transports.pair import Inbox, MemoryStream, pair

PATIENCE = 60.0
SHORT = 0.002
PASSWORD = "correct horse battery staple"
DOORS = ("/ws/app", "/ws/push", "/ws/minicodex", "/ws/pi")


class Judge:
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

    async def asked_again(self, times: int = 3) -> None:
        wanted = self.asked + times
        async with asyncio.timeout(PATIENCE):
            while self.asked < wanted:
                self._was_asked.clear()
                await self._was_asked.wait()


def supervised(judge: Judge) -> tuple[Inbox, Inbox, MemoryStream]:
    """Who is watched, the client at the other end, and the stream between them as the daemon holds it."""
    inner, client = Inbox(), Inbox()
    stream, _ = pair(Supervised(inner, judge, every_s=SHORT), client)
    return inner, client, stream


async def closed(inbox: Inbox) -> None:
    async with asyncio.timeout(PATIENCE):
        await inbox.until(lambda: inbox.closed)


async def test_who_has_a_good_token_stays_and_is_looked_at_again_and_again() -> None:
    judge = Judge()
    inner, client, stream = supervised(judge)
    await judge.asked_again(5)
    assert stream.closed_with is None
    client.send(b"hello")
    assert await inner.next() == b"hello"
    inner.send(b"and back")
    assert await client.next() == b"and back"
    client.stream.close()
    await closed(inner)


async def test_who_has_no_good_token_any_more_is_closed_and_told_why() -> None:
    judge = Judge()
    inner, client, stream = supervised(judge)
    await judge.asked_again(2)
    judge.verdict = False
    await closed(client)
    await closed(inner)
    assert stream.closed_with == (POLICY_VIOLATION, "the access token is no longer good, or your role has changed")
    assert POLICY_VIOLATION == 1008


@pytest.mark.parametrize(
    "problem", [registry.RegistryUnavailable("disk full"), RuntimeError("a bug")], ids=lambda p: type(p).__name__
)
async def test_while_it_cannot_be_told_they_stay_and_are_looked_at_again(
    problem: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    judge = Judge()
    _, client, stream = supervised(judge)
    with caplog.at_level(logging.WARNING):
        judge.verdict = problem
        await judge.asked_again()
    assert stream.closed_with is None
    assert str(problem) in caplog.text
    judge.verdict = False
    await closed(client)
    assert stream.closed_with is not None


async def test_who_has_gone_is_not_looked_at_any_more() -> None:
    before = asyncio.all_tasks()
    judge, other = Judge(), Judge()
    inner, client, _ = supervised(judge)
    await judge.asked_again(1)
    client.stream.abort()
    await closed(inner)
    asked = judge.asked
    others_inner, others_client, _ = supervised(other)
    await other.asked_again(5)
    assert judge.asked == asked
    others_client.stream.abort()
    await closed(others_inner)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_all_that_a_receiver_is_told_it_is_told_still() -> None:
    inner = Inbox()
    watched = Supervised(inner, Judge(), every_s=PATIENCE)
    stream, _ = pair(watched, Inbox())
    assert inner.stream is stream
    watched.received([b"one", b"two"])
    watched.refused("too long")
    watched.writable_again()
    assert (list(inner.frames), inner.refusals) == ([b"one", b"two"], ["too long"])
    watched.disconnected()
    assert inner.closed


# The whole daemon


async def enters(daemon: Daemon, token: str) -> dict[str, WebSocketWire]:
    return {path: await upgraded(daemon.http, path, {"token": token}) for path in DOORS}


async def ended(wire: WebSocketWire) -> int | None:
    """Reads until it is closed; with which code."""
    try:
        while True:
            await wire.receive()
    except EOFError:
        return wire.close_code


async def test_every_door_closes_behind_who_has_lost_their_token_and_stays_open_for_the_others(
    start_daemon: Callable[..., Daemon],
) -> None:
    daemon = start_daemon()
    http = RelayHttp(daemon.http, daemon.token)
    unique = uuid.uuid4().hex[:8]
    tokens: dict[str, str] = {}
    for name in ("revoked", "changed", "removed", "leaving", "staying"):
        assert (await http.request("POST", "/users", {"name": name + unique, "password": PASSWORD})).status < 300
        tokens[name] = (await http.login(name + unique, PASSWORD)).json["access_token"]
    inside = {name: await enters(daemon, token) for name, token in {**tokens, "owner": daemon.token}.items()}
    reading = {(name, path): asyncio.ensure_future(ended(wire)) for name, doors in inside.items() for path, wire in doors.items()}

    token_id = (await RelayHttp(daemon.http, tokens["revoked"]).get("/auth/me"))["token_id"]
    for answer in (
        await http.request("DELETE", f"/tokens/{token_id}"),
        await http.request("PUT", f"/users/changed{unique}/password", {"password": PASSWORD + "!"}),
        await http.request("DELETE", f"/users/removed{unique}"),
        await RelayHttp(daemon.http, tokens["leaving"]).request("POST", "/auth/logout"),
    ):
        assert answer.status == 204, answer

    lost = [place for place in reading if place[0] not in ("staying", "owner")]
    async with asyncio.timeout(PATIENCE):
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
