"""Typing into a program and giving its window a size, over push: what may be asked, by whom, and the command that it becomes."""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.protocols.push.test_peer import FailingSessionService

from switchtower.core import commands, errors, events
from switchtower.core.ports import journal, session_service
from switchtower.core.roles import Access
from switchtower.core.session import Session, Terminal, TerminalPrompt
from switchtower.protocols.push import encoder, extension_messages, inbound, messages
from switchtower.protocols.push.connection import CAPABILITIES, PushConnection
from switchtower.testing.memory.stream import RecordingReceiver, join_receivers
from switchtower.testing.push_client import check_closed

OWNER = events.Actor(name="owner", via="cli")


def make_frame(type_: str, payload: dict[str, Any]) -> bytes:
    envelope = {"v": "push.runtime.v1", "kind": "request", "requestId": "req_1", "type": type_, "payload": payload}
    return msgspec.json.encode(envelope)


class RecordingSessionService(FailingSessionService):
    """Takes every command, and has the cards that it is given."""

    def __init__(self, *cards: journal.Card, refusal: errors.CoreError | None = None) -> None:
        super().__init__(AssertionError("not asked for here"))
        self.taken: list[commands.AnyCommand] = []
        self._cards = list(cards)
        self._refusal = refusal

    def submit(self, command: commands.AnyCommand, done: session_service.OutcomeCallback) -> None:
        self.taken.append(command)
        done(self._refusal or {"after_seq": 1})

    async def list_cards(
        self, limit: int, *, loaded: bool = False, states: Sequence[events.SessionState] = ()
    ) -> list[journal.Card]:
        return [card for card in self._cards if not states or card.state in states][:limit]


async def send_request(tower_: RecordingSessionService, type_: str, payload: dict[str, Any], **access: Any) -> dict[str, Any]:
    client = RecordingReceiver()
    join_receivers(PushConnection(tower_, Access(**{"name": "owner", "via": "cli", "trusted": True, **access}), "0"), client)
    client.send(make_frame(type_, payload))
    async with asyncio.timeout(60):
        response: dict[str, Any] = json.loads(await client.next_frame())
    check_closed(response)
    return response


def test_it_is_announced_as_a_capability() -> None:
    assert "terminals" in CAPABILITIES


async def test_keys_are_typed_and_not_kept() -> None:
    taking = RecordingSessionService()

    response = await send_request(taking, "terminal_input", {"sessionId": "sess_1", "text": "\x03é\x1b[A"})

    assert response["payload"] == {"accepted": True}
    assert taking.taken == [commands.TypeKeys(session_id="sess_1", actor=OWNER, text="\x03é\x1b[A")]


async def test_a_text_with_an_id_is_typed_once_whoever_else_uses_that_id_for_a_message() -> None:
    taking = RecordingSessionService()

    await send_request(taking, "terminal_input", {"sessionId": "sess_1", "text": "y\r", "inputId": "in 1"})

    sha256 = hashlib.sha256(b"y\r").hexdigest()
    expected = commands.TypeInput(
        session_id="sess_1", actor=OWNER, idempotency_key="input:in 1", input_id="in 1", text="y\r", sha256=sha256
    )
    assert taking.taken == [expected]


async def test_a_window_gets_its_size() -> None:
    taking = RecordingSessionService()

    response = await send_request(taking, "terminal_resize", {"sessionId": "sess_1", "cols": 80, "rows": 24})

    assert response["payload"] == {"accepted": True}
    assert taking.taken == [commands.ResizeTerminal(session_id="sess_1", actor=OWNER, cols=80, rows=24)]


@pytest.mark.parametrize("force", [True, False])
async def test_a_run_is_cancelled_with_force_only_on_request(force: bool) -> None:
    taking = RecordingSessionService()

    await send_request(taking, "cancel_run", {"sessionId": "sess_1", **({"force": True} if force else {})})

    assert taking.taken == [commands.CancelRun(session_id="sess_1", actor=OWNER, force=force)]


TYPING = [
    ("terminal_input", {"text": "x"}),
    ("terminal_input", {"text": "x", "inputId": "1"}),
    ("terminal_resize", {"cols": 1, "rows": 1}),
]


@pytest.mark.parametrize(("type_", "payload"), TYPING)
@pytest.mark.parametrize("access", [{"trusted": False}, {"run_id": "run_1"}, {"trusted": False, "run_id": "run_1"}])
async def test_who_may_not_command_and_what_a_run_has_started_type_nothing(
    type_: str, payload: dict[str, Any], access: dict[str, bool]
) -> None:
    taking = RecordingSessionService()

    response = await send_request(taking, type_, {"sessionId": "sess_1", **payload}, **access)

    assert response["error"]["code"] == "ATTACH_FORBIDDEN"
    assert taking.taken == []


@pytest.mark.parametrize(("type_", "payload"), TYPING)
@pytest.mark.parametrize(
    ("refusal", "code"), [(errors.NotATerminal("sess_1"), "INVALID_REQUEST"), (errors.ProgramEnded("sess_1"), "NO_ACTIVE_RUN")]
)
async def test_a_refusal_says_why(type_: str, payload: dict[str, Any], refusal: errors.CoreError, code: str) -> None:
    response = await send_request(RecordingSessionService(refusal=refusal), type_, {"sessionId": "sess_1", **payload})

    assert (response["error"]["code"], response["error"]["message"]) == (code, refusal.message)


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("terminal_input", {}),
        ("terminal_input", {"text": ""}),
        ("terminal_input", {"text": 7}),
        ("terminal_input", {"text": ["x"]}),
        ("terminal_input", {"text": "x", "inputId": ""}),
        ("terminal_input", {"text": "x", "inputId": "x" * 257}),
        ("terminal_input", {"text": "x", "inputId": 1}),
        ("terminal_resize", {"cols": 0, "rows": 1}),
        ("terminal_resize", {"cols": 1, "rows": 1001}),
        ("terminal_resize", {"cols": 80.5, "rows": 24}),
        ("terminal_resize", {"cols": True, "rows": 24}),
        ("terminal_resize", {"cols": 10**30, "rows": 24}),
        ("terminal_resize", {"rows": 24}),
        ("cancel_run", {"force": "yes"}),
    ],
)
def test_what_has_another_form_is_refused(type_: str, payload: dict[str, Any]) -> None:
    with pytest.raises(inbound.PushRequestError) as refused:
        inbound.parse(make_frame(type_, {"sessionId": "sess_1", **payload}))

    assert refused.value.error.code == "INVALID_REQUEST"


@pytest.mark.parametrize(("type_", "payload"), TYPING)
def test_without_a_session_it_is_refused(type_: str, payload: dict[str, Any]) -> None:
    with pytest.raises(inbound.PushRequestError, match="`sessionId` is required"):
        inbound.parse(make_frame(type_, payload))


def test_half_a_character_pair_is_no_text() -> None:
    with pytest.raises(inbound.PushRequestError):
        inbound.parse(make_frame("terminal_input", {"sessionId": "sess_1", "text": "X"}).replace(b'"X"', b'"\\ud83d"'))


def make_card(session_id: str, **more: Any) -> journal.Card:
    return journal.Card(
        session_id=session_id,
        state=events.SessionState.RUNNING,
        created_at_ms=1,
        updated_at_ms=2,
        workspace=events.Workspace(root="/w"),
        provider="demo",
        engine="agent",
        **more,
    )


async def test_programs_are_listed_and_other_sessions_are_not() -> None:
    waiting = make_card(
        "sess_2", tool="codex", title="codex fix", waits=journal.WaitingPrompt("permission", "run it?"), host="host_1"
    )
    over = make_card("sess_3", tool="make", title="nightly", exit_code=2)

    response = await send_request(
        RecordingSessionService(make_card("sess_1", title="a talk"), waiting, over), "list_terminals", {}
    )

    assert response["payload"] == {
        "terminals": [
            {
                "sessionId": "sess_2",
                "tool": "codex",
                "title": "codex fix",
                "waitsFor": "permission",
                "exitCode": None,
                "host": "host_1",
            },
            {"sessionId": "sess_3", "tool": "make", "title": "nightly", "waitsFor": None, "exitCode": 2, "host": None},
        ]
    }


def test_a_session_that_is_a_program_is_described_with_where_its_screen_is() -> None:
    program = events.Program(argv=("less", "x"), command="less x", tool="less")
    session = Session(
        "sess_1", host="host_1", terminal=Terminal(program, 80, 24, waiting=TerminalPrompt("prompt", ":"), screen_seq=7)
    )

    assert encoder.make_session_info(session).terminal == extension_messages.Terminal(
        tool="less", command="less x", cols=80, rows=24, screenSeq=7, waitsFor="prompt", exitCode=None, host="host_1"
    )
    assert encoder.make_session_info(Session("sess_2")).terminal is None


def test_an_older_client_s_cancel_is_unchanged() -> None:
    request = inbound.parse(make_frame("cancel_run", {"sessionId": "sess_1", "runId": "run_1", "reason": "enough"}))

    assert request.payload == messages.CancelRun("sess_1", "run_1", "enough")
