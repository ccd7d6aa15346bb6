"""The requests beyond the push document as methods: what goes over the wire, what comes back, and what is never asked twice."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.client.conftest import ScriptedConnection, ScriptedPushServer

from switchtower.client import errors, frames
from switchtower.client.client import DaemonClient
from switchtower.protocols.push import extension_messages, messages

SESSION = "sess_A"
USAGE = {
    "calls": 2,
    "inputTokens": 10,
    "outputTokens": 3,
    "cacheReadTokens": 0,
    "cacheWriteTokens": 0,
    "cost": 0.5,
    "unpricedCalls": 0,
}
INFO = {
    "sessionId": SESSION,
    "state": "idle",
    "title": "",
    "mode": "headless",
    "engine": "agent",
    "provider": "demo",
    "model": None,
    "thinking": None,
    "policy": "ask",
    "rules": [{"effect": "allow", "tool": "run", "path": None, "command": "make test"}],
    "limits": {"maxTurns": 5},
    "sandbox": "local",
    "rootPath": "/w",
    "branch": None,
    "worktreeOf": None,
    "activeRunId": None,
    "queue": [{"messageId": "msg_1", "text": "later", "delivery": "follow_up"}],
    "usage": USAGE,
    "runUsage": None,
    "contextTokens": 13,
    "contextWindow": 100,
    "undoable": 1,
    "redoable": 0,
    "version": 4,
    "lastSeq": 9,
    "createdAt": 1,
    "updatedAt": 2,
    "preset": "review",
    "terminal": None,
    "childOf": None,
    "home": None,
}
PRESET = {
    "name": "review",
    "origin": "user",
    "path": "/home/review.toml",
    "description": "Looks it over",
    "provider": None,
    "model": None,
    "policy": "read-only",
    "thinking": None,
    "servers": ["github"],
    "usable": True,
    "reason": "",
}
LISTING = {
    "name": "demo",
    "provider": "demo",
    "model": "demo",
    "usable": True,
    "reason": "built in",
    "isDefault": True,
    "contextWindow": None,
    "priceIn": None,
    "priceOut": None,
}
TEMPLATE = {"name": "review", "kind": "prompt", "description": "Looks", "path": "/w/.tower/x.md", "origin": "workspace"}


class ClientCallCase:
    """One method: how it is called, the payload that it must send, the answer, and what it must return."""

    def __init__(
        self,
        type: str,
        ask: Callable[[DaemonClient], Awaitable[Any]],
        sent: dict[str, Any],
        answer: dict[str, Any],
        returned: Any,
    ) -> None:
        self.type = type
        self.ask = ask
        self.sent = sent
        self.answer = answer
        self.returned = returned


CASES = [
    ClientCallCase(
        "configure_session",
        lambda client: client.configure_session(SESSION, policy="auto", title="Tidy"),
        {"sessionId": SESSION, "policy": "auto", "title": "Tidy"},
        {"accepted": True},
        None,
    ),
    ClientCallCase(
        "compact_session",
        lambda client: client.compact_session(SESSION, "keep names"),
        {"sessionId": SESSION, "instructions": "keep names"},
        {"runId": "run_1", "accepted": True},
        "run_1",
    ),
    ClientCallCase(
        "compact_session",
        lambda client: client.compact_session(SESSION),
        {"sessionId": SESSION},
        {"runId": "run_1", "accepted": True},
        "run_1",
    ),
    ClientCallCase(
        "undo_run", lambda client: client.undo_run(SESSION), {"sessionId": SESSION}, {"runId": "run_1", "accepted": True}, "run_1"
    ),
    ClientCallCase(
        "undo_run",
        lambda client: client.undo_run(SESSION, redo=True, force=True),
        {"sessionId": SESSION, "redo": True, "force": True},
        {"runId": "run_1", "accepted": True},
        "run_1",
    ),
    ClientCallCase(
        "diff_session", lambda client: client.get_diff(SESSION), {"sessionId": SESSION}, {"diff": "--- a\n"}, "--- a\n"
    ),
    ClientCallCase(
        "diff_session",
        lambda client: client.get_diff(SESSION, run_id="run_7"),
        {"sessionId": SESSION, "runId": "run_7"},
        {"diff": ""},
        "",
    ),
    ClientCallCase(
        "list_models",
        lambda client: client.list_models(),
        {},
        {"models": [LISTING]},
        [extension_messages.ModelListing(**LISTING)],
    ),
    ClientCallCase(
        "list_templates",
        lambda client: client.list_templates("/w"),
        {"rootPath": "/w"},
        {"templates": [TEMPLATE]},
        [extension_messages.Template(**TEMPLATE)],  # type: ignore[arg-type]
    ),
    ClientCallCase(
        "list_presets",
        lambda client: client.list_presets("/w"),
        {"rootPath": "/w"},
        {"presets": [PRESET]},
        [extension_messages.Preset(**PRESET)],  # type: ignore[arg-type]
    ),
    ClientCallCase(
        "submit_approval",
        lambda client: client.decide_approval(SESSION, "run_1", "appr_1", "approve"),
        {"sessionId": SESSION, "runId": "run_1", "approvalId": "appr_1", "decision": "approve"},
        {"accepted": True},
        None,
    ),
    ClientCallCase(
        "submit_approval",
        lambda client: client.decide_approval(SESSION, "run_1", "appr_1", "approve", scope="session"),
        {"sessionId": SESSION, "runId": "run_1", "approvalId": "appr_1", "decision": "approve", "scope": "session"},
        {"accepted": True},
        None,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.type)
async def test_a_method_sends_its_request_and_returns_what_is_in_the_answer(
    daemon: ScriptedPushServer, case: ClientCallCase
) -> None:
    seen: list[dict[str, Any]] = []

    async def answer(wire: ScriptedConnection) -> None:
        await wire.send_greeting(*extension_messages.CAPABILITIES)
        seen.append(request := await wire.request())
        await wire.answer(request, case.answer)
        await wire.wait_closed()

    await daemon.serve(answer)
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        returned = await case.ask(client)

    assert (seen[0]["type"], seen[0]["payload"]) == (case.type, case.sent)
    assert seen[0].get("sessionId") == case.sent.get("sessionId")
    assert _to_builtins(returned) == _to_builtins(case.returned)


def _to_builtins(value: Any) -> Any:
    """The client's own types are the wire's, opened: the same fields in another class."""
    return msgspec.to_builtins(value)


async def test_a_session_is_described_in_whole_also_by_a_daemon_that_knows_more(daemon: ScriptedPushServer) -> None:
    newer = {
        **INFO,
        "mood": "fine",
        "usage": {**USAGE, "joules": 3},
        "runUsage": {**USAGE, "joules": 1},
        "rules": [{**INFO["rules"][0], "since": 1}],  # type: ignore[index]
        "queue": [{**INFO["queue"][0], "priority": 1}],  # type: ignore[index]
    }

    async def answer(wire: ScriptedConnection) -> None:
        await wire.send_greeting(*extension_messages.CAPABILITIES)
        await wire.answer(await wire.request(), newer)
        await wire.wait_closed()

    await daemon.serve(answer)
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        about = await client.get_session(SESSION)

    assert isinstance(about, extension_messages.SessionInfo)
    assert isinstance(about.rules[0], extension_messages.Rule)
    assert _to_builtins(about) == {
        **INFO,
        "runUsage": USAGE,
        "limits": {"maxTurns": 5, "maxTokens": None, "maxCost": None, "maxMinutes": None},
    }


async def test_a_queued_message_is_handed_over_once_however_often_the_connection_is_lost(daemon: ScriptedPushServer) -> None:
    seen: list[dict[str, Any]] = []

    async def lose(wire: ScriptedConnection) -> None:
        await wire.send_greeting(*extension_messages.CAPABILITIES)
        seen.append((await wire.request())["payload"])

    async def answer(wire: ScriptedConnection) -> None:
        await wire.send_greeting(*extension_messages.CAPABILITIES)
        seen.append((request := await wire.request())["payload"])
        await wire.answer(request, {"accepted": True, "messageId": request["payload"]["clientMessageId"], "runId": None})
        await wire.wait_closed()

    await daemon.serve(lose, answer)
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        queued = await client.queue_message(SESSION, "leave the tests alone", "steer")

    first, second = seen
    assert first == second
    assert first["clientMessageId"] == queued.messageId
    assert (first["text"], first["delivery"]) == ("leave the tests alone", "steer")
    assert queued.runId is None


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.undo_run(SESSION),
        lambda client: client.undo_run(SESSION, redo=True),
        lambda client: client.compact_session(SESSION),
    ],
    ids=["undo", "redo", "compact"],
)
async def test_a_chore_is_not_asked_for_again_when_the_connection_is_lost(daemon: ScriptedPushServer, ask: Any) -> None:
    connections = 0

    async def lose(wire: ScriptedConnection) -> None:
        nonlocal connections
        connections += 1
        await wire.send_greeting(*extension_messages.CAPABILITIES)
        await wire.request()

    await daemon.serve(lose, lose)
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        with pytest.raises(errors.ConnectionLost):
            await ask(client)

    assert connections == 1


async def test_an_older_daemon_s_refusal_says_how_to_get_a_newer_one(daemon: ScriptedPushServer) -> None:
    async def older(wire: ScriptedConnection) -> None:
        await wire.send_greeting()
        await wire.refuse(await wire.request(), "UNSUPPORTED_REQUEST_TYPE")
        await wire.wait_closed()

    await daemon.serve(older)
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        with pytest.raises(errors.RequestFailed) as refused:
            await client.list_models()

    assert refused.value.code == "UNSUPPORTED_REQUEST_TYPE"
    assert "the running daemon is older" in str(refused.value)
    assert "`list_models`" in str(refused.value)
    assert "hint: stop it with `tower stop`" in str(refused.value)


REPO = messages.Repo("/w", "main", "main")
WISHES = {
    "policy": messages.StartSession("headless", "demo", REPO, "local", policy="read-only"),
    "thinking": messages.StartSession("headless", "demo", REPO, "local", thinking="high"),
    "limits": messages.StartSession("headless", "demo", REPO, "local", limits=messages.Limits(maxTurns=1)),
    "worktree": messages.StartSession("headless", "demo", REPO, "local", worktree=True),
    "sandbox": messages.StartSession("headless", "demo", REPO, "bubblewrap"),
    "preset": messages.StartSession("headless", "demo", REPO, "local", preset="review"),
    "auto": messages.StartSession("headless", "auto", REPO, "local"),
}


@pytest.mark.parametrize("wish", WISHES)
async def test_what_an_older_daemon_would_pass_over_in_silence_is_not_even_asked(daemon: ScriptedPushServer, wish: str) -> None:
    async def older(wire: ScriptedConnection) -> None:
        await wire.send_greeting("approvals", "replay_attach")
        assert await wire.reader.read() == b"", "nothing was asked"

    await daemon.serve(older)
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        with pytest.raises(errors.DaemonTooOld, match="hint: stop it with `tower stop`"):
            await client.start_session(WISHES[wish])


async def test_a_preset_is_not_asked_of_a_daemon_that_knows_none(daemon: ScriptedPushServer) -> None:
    async def older(wire: ScriptedConnection) -> None:
        await wire.send_greeting("configure")
        assert await wire.reader.read() == b"", "nothing was asked"

    await daemon.serve(older)
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        with pytest.raises(errors.DaemonTooOld, match="presets"):
            await client.start_session(WISHES["preset"])


async def test_a_session_of_a_daemon_that_knows_no_presets_is_described_all_the_same(daemon: ScriptedPushServer) -> None:
    async def answer(wire: ScriptedConnection) -> None:
        await wire.send_greeting("session_info")
        await wire.answer(await wire.request(), {key: value for key, value in INFO.items() if key != "preset"})
        await wire.wait_closed()

    await daemon.serve(answer)
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        assert (await client.get_session(SESSION)).preset is None


async def test_a_decision_for_the_session_is_not_made_where_it_would_count_once(daemon: ScriptedPushServer) -> None:
    async def older(wire: ScriptedConnection) -> None:
        await wire.send_greeting("approvals")
        assert await wire.reader.read() == b"", "nothing was asked"

    await daemon.serve(older)
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        with pytest.raises(errors.DaemonTooOld):
            await client.decide_approval(SESSION, "run_1", "appr_1", "approve", scope="session")


async def test_a_plain_session_starts_with_any_daemon(daemon: ScriptedPushServer) -> None:
    async def older(wire: ScriptedConnection) -> None:
        await wire.send_greeting()
        request = await wire.request()
        assert request["payload"].keys() == {"mode", "provider", "sandboxProvider", "repo"}
        await wire.answer(request, {"sessionId": SESSION, "state": "idle", "attachToken": "att_A"})
        await wire.wait_closed()

    await daemon.serve(older)
    async with asyncio.timeout(60), await DaemonClient.connect(daemon.settings) as client:
        started = await client.start_session(messages.StartSession("headless", "demo", REPO, "local"))

    assert started.sessionId == SESSION


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("A run is already active", "RUN_IN_PROGRESS: A run is already active; hint: wait"),
        ("Nothing here; hint: look there", "RUN_IN_PROGRESS: Nothing here; hint: look there"),
    ],
)
def test_a_refusal_has_one_remedy_and_the_daemon_s_comes_first(message: str, shown: str) -> None:
    assert str(errors.RequestFailed("RUN_IN_PROGRESS", message, retryable=True, hint="wait")) == shown


@pytest.mark.parametrize("name", [*messages.ANSWERS, *extension_messages.ANSWERS])
def test_the_answer_to_every_request_type_can_be_read(name: str) -> None:
    with pytest.raises(errors.ProtocolViolation, match="Expected `object`, got `null`"):
        frames.decode_answer(frames.IncomingFrame(kind="response", type=name, ok=True))
