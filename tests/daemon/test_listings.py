"""All sessions at once, over push on a real daemon: listed with what they wait for, searched, forked, deleted."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conformance.schema_check import check

from switchtower.testing.push_client import PushClient


@pytest.fixture(scope="module")
def daemon() -> Iterator[ManagedDaemon]:
    running = ManagedDaemon().start()
    yield running
    running.discard()


@pytest.fixture
async def client(daemon: ManagedDaemon) -> AsyncIterator[PushClient]:
    async with await PushClient.connect_socket(daemon.socket, check=check) as client:
        yield client


async def run_message(client: PushClient, workspace: Path, text: str) -> str:
    started = await client.start_session(workspace)
    await client.run(started.session_id, text)
    return started.session_id


async def test_a_card_tells_what_lists_show(client: PushClient, tmp_path: Path) -> None:
    session_id = await run_message(client, tmp_path, "say: a card please")
    cards = (await client.request_payload("list_cards", {"limit": 500}))["cards"]
    [card] = [card for card in cards if card["sessionId"] == session_id]
    assert (card["title"], card["state"], card["engine"], card["provider"]) == (
        "say: a card please",
        "completed",
        "agent",
        "demo",
    )
    assert (card["rootPath"], card["waiting"], card["activeRunId"]) == (str(tmp_path), None, None)


async def test_the_inbox_has_what_waits_and_lets_go_of_what_was_decided(client: PushClient, tmp_path: Path) -> None:
    started = await client.start_session(tmp_path, policy="ask")
    await client.send(started.session_id, "run: echo hi")
    asked = (await client.read_until("approval_required"))[-1]

    waiting = (await client.request_payload("list_approvals"))["approvals"]
    [mine] = [one for one in waiting if one["sessionId"] == started.session_id]
    assert mine["approval"] == asked.payload
    assert (mine["runId"], mine["rootPath"]) == (asked.run_id, str(tmp_path))
    [card] = [
        card
        for card in (await client.request_payload("list_cards", {"waiting": True}))["cards"]
        if card["sessionId"] == started.session_id
    ]
    assert card["waiting"]["approvalId"] == asked.payload["approvalId"]

    await client.decide(asked)
    await client.read_until("run_complete")
    assert [
        one for one in (await client.request_payload("list_approvals"))["approvals"] if one["sessionId"] == started.session_id
    ] == []


async def test_words_are_found_with_their_session(client: PushClient, tmp_path: Path) -> None:
    session_id = await run_message(client, tmp_path, "say: the okapi grazes")
    hits = (await client.request_payload("search_sessions", {"text": "okapi graz"}))["hits"]
    assert {(hit["sessionId"], hit["kind"]) for hit in hits} == {
        (session_id, "run.started"),
        (session_id, "message.completed"),
    }
    assert {hit["title"] for hit in hits} == {"say: the okapi grazes"}
    elsewhere = await run_message(client, tmp_path, "say: another okapi")
    only = (await client.request_payload("search_sessions", {"text": "okapi", "sessionId": elsewhere}))["hits"]
    assert {hit["sessionId"] for hit in only} == {elsewhere}


async def test_a_fork_goes_on_from_what_was_said(client: PushClient, tmp_path: Path) -> None:
    parent = (await client.start_session(tmp_path, policy="read-only")).session_id
    await client.run(parent, "say: one")
    events = await client.run(parent, "say: two")
    second = next(event.seq for event in events if event.payload.get("phase") == "Run started")

    forked = await client.request_payload("fork_session", {"beforeSeq": second}, session_id=parent)
    assert forked["text"] == "say: two"
    info = await client.request_payload("get_session", {}, session_id=forked["sessionId"])
    assert (info["title"], info["policy"], info["rootPath"]) == ("say: one (fork)", "read-only", str(tmp_path))
    attached = await client.attach(forked["sessionId"])
    assert attached["state"] == "idle"
    told = await client.run(forked["sessionId"], "say: other words")
    assert told[-1].payload["outcome"] == "success"


async def test_a_fork_before_what_nobody_said_is_refused(client: PushClient, tmp_path: Path) -> None:
    session_id = await run_message(client, tmp_path, "say: one")
    refused = await client.request("fork_session", {"beforeSeq": 1}, session_id=session_id)
    assert refused.code == "INVALID_REQUEST"


async def test_a_deleted_session_is_told_of_and_not_found_again(client: PushClient, tmp_path: Path) -> None:
    session_id = await run_message(client, tmp_path, "say: the dodo was here")
    assert (await client.request_payload("search_sessions", {"text": "dodo"}))["hits"]
    assert await client.request_payload("delete_session", {}, session_id=session_id) == {"accepted": True}
    told = (await client.read_until("warning"))[-1]
    assert (told.session_id, told.payload["code"]) == (session_id, "SESSION_DELETED")
    assert (await client.request("get_session", {}, session_id=session_id)).code == "SESSION_NOT_FOUND"
    assert (await client.request_payload("search_sessions", {"text": "dodo"}))["hits"] == []
    listed = (await client.request_payload("list_sessions", {"limit": 200}))["sessions"]
    assert session_id not in {one["sessionId"] for one in listed}


async def test_what_runs_is_not_deleted(client: PushClient, tmp_path: Path) -> None:
    started = await client.start_session(tmp_path, policy="ask")
    await client.send(started.session_id, "run: echo hi")
    asked = (await client.read_until("approval_required"))[-1]
    assert (await client.request("delete_session", {}, session_id=started.session_id)).code == "RUN_IN_PROGRESS"
    await client.decide(asked, "deny")
    await client.read_until("run_complete")


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("list_cards", {"limit": 501}),
        ("list_approvals", {"limit": 0}),
        ("search_sessions", {}),
        ("search_sessions", {"text": ""}),
        ("search_sessions", {"text": "x" * 1_001}),
        ("fork_session", {"beforeSeq": 0}),
        ("fork_session", {}),
        ("delete_session", {}),
    ],
)
async def test_what_makes_no_sense_is_refused(client: PushClient, type_: str, payload: dict[str, object]) -> None:
    assert (await client.request(type_, payload)).code == "INVALID_REQUEST"


async def test_who_was_let_in_to_one_session_does_not_see_the_others(tmp_path: Path) -> None:
    strict = ManagedDaemon(attach_token_required="true").start()
    try:
        async with await PushClient.connect_socket(strict.socket, check=check) as client:
            session_id = await run_message(client, tmp_path, "say: a secret okapi")
            asked: list[tuple[str, dict[str, object], str | None]] = [
                ("list_approvals", {}, None),
                ("search_sessions", {"text": "okapi"}, None),
                ("fork_session", {}, session_id),
                ("delete_session", {}, session_id),
            ]
            for type_, payload, named in asked:
                assert (await client.request(type_, payload, session_id=named)).code == "ATTACH_FORBIDDEN"
    finally:
        strict.discard()
