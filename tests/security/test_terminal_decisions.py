"""What can be decided about a program's prompt, in the words of each protocol: a denial refuses one thing and ends nothing, and
what is not shown in full cannot be approved."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engines.pty.stages import SESSION, PtyHarness
from tests.protocols.pi.reels import APPROVAL, START_MS
from tests.protocols.relay import samples

from switchtower.core import commands, events
from switchtower.presentation import approval_text
from switchtower.protocols.pi import responses
from switchtower.protocols.push import encoder as push
from switchtower.protocols.push import inbound, messages
from switchtower.protocols.relay import encoder as relay
from switchtower.protocols.relay import inbound as relay_inbound
from switchtower.protocols.relay import messages as relay_messages
from switchtower.testing.session_driver import OWNER

WHY = "The beginning of what is asked about is not on the screen"
DENY_ONLY = msgspec.structs.replace(
    APPROVAL,
    details={"cannot_approve": WHY, "screen": "line 2\nline 3", "approve_text": "", "deny_text": "\x1b"},
    options=("deny",),
)
ASKS_TWICE = "read -p 'Delete a? [y/N] ' x; echo got $x; read -p 'Delete b? [y/N] ' y; echo and $y"


@pytest.fixture
async def pty_harness(tmp_path: Path) -> AsyncIterator[PtyHarness]:
    opened = PtyHarness(tmp_path)
    await opened.open()
    yield opened
    await opened.runtime.stop()
    await opened.journal.close()


def make_denial(*, comment: str | None = None, stop: bool | None = None) -> messages.SubmitApproval:
    return messages.SubmitApproval(
        runId="run_1", approvalId="appr_1", decision="deny", sessionId=SESSION, comment=comment, stop=stop
    )


@pytest.mark.parametrize(("comment", "stop"), [(None, None), ("not now", None), (None, False)])
async def test_a_denial_lets_a_program_continue(pty_harness: PtyHarness, comment: str | None, stop: bool | None) -> None:
    program = await pty_harness.run(ASKS_TWICE)
    first = await program.wait_for_question()
    command = inbound.build_decide_approval(make_denial(comment=comment, stop=stop), SESSION, OWNER)
    await pty_harness.ask(msgspec.structs.replace(command, approval_id=first.id, run_id=None))
    second = await program.wait_for_question(2)
    assert second.title == "Delete b? [y/N]"
    await program.decide(second.id)
    completed = await program.end()
    assert "got n" in program.output
    assert "and y" in program.output
    assert completed.outcome is events.Outcome.SUCCESS
    assert program.list_events(events.ApprovalDecided)[0].comment == comment


@pytest.mark.parametrize("comment", [None, "not now"])
async def test_a_denial_that_says_so_ends_the_program(pty_harness: PtyHarness, comment: str | None) -> None:
    program = await pty_harness.run(ASKS_TWICE)
    command = inbound.build_decide_approval(make_denial(comment=comment, stop=True), SESSION, OWNER)
    await pty_harness.ask(msgspec.structs.replace(command, approval_id=(await program.wait_for_question()).id, run_id=None))
    assert (await program.end()).outcome is events.Outcome.DENIED


@pytest.mark.parametrize(
    ("comment", "stop", "verdict"),
    [
        (None, None, events.Verdict.DENY_STOP),
        ("why", None, events.Verdict.DENY_CONTINUE),
        (None, False, events.Verdict.DENY_CONTINUE),
        ("why", True, events.Verdict.DENY_STOP),
    ],
)
def test_a_denial_of_an_agent_s_action_means_what_it_meant(
    comment: str | None, stop: bool | None, verdict: events.Verdict
) -> None:
    assert inbound.build_decide_approval(make_denial(comment=comment, stop=stop), SESSION, OWNER).verdict is verdict


async def test_deny_and_stop_ends_a_program_whose_prompt_has_gone(pty_harness: PtyHarness) -> None:
    code = (
        "import os, select, sys\n"
        "sys.stdout.write('Proceed? (y/n) '); sys.stdout.flush()\n"
        "os.read(0, 1)\n"
        "while True: os.write(1, b'\\r\\x1b[Kworking'); select.select([], [], [], 0.01)\n"
    )
    program = await pty_harness.run([sys.executable, "-c", code])
    approval = await program.wait_for_question()
    stops = commands.DecideApproval(
        session_id=SESSION, actor=OWNER, approval_id=approval.id, verdict=events.Verdict.DENY_STOP, comment="enough"
    )
    await pty_harness.ask(stops)
    assert (await program.end()).outcome is events.Outcome.DENIED


# What can only be denied says so


def test_push_offers_only_what_can_be_decided() -> None:
    told = push.make_approval_required(DENY_ONLY)
    assert told.options == ["deny"]
    assert told.details["cannot_approve"] == WHY
    assert push.make_approval_required(APPROVAL).options == ["approve", "deny"]


def test_the_command_line_says_why_and_marks_every_line() -> None:
    lines = [text for text, _ in approval_text.format_approval(push.make_approval_required(DENY_ONLY))]
    assert any("CANNOT BE APPROVED FROM HERE" in line for line in lines)
    assert f"  cannot_approve: {WHY}" in lines
    assert "  | line 2" in lines


def test_relay_has_no_text_that_would_approve_it_and_a_hub_knows_why() -> None:
    frame = relay.encode_event(samples.TERMINAL, samples.make_entry(samples.RUN, events.ApprovalRequested(approval=DENY_ONLY)))
    assert frame is not None
    data: dict[str, Any] = json.loads(frame)["data"]
    assert (data["approve_text"], data["deny_text"], data["cannot_approve"]) == ("", "\x1b", WHY)
    report = relay_inbound.parse_report(samples.HOST, msgspec.json.decode(frame, type=relay_messages.Envelope), START_MS)
    (mirrored,) = [event for event in report.events if isinstance(event, events.ApprovalRequested)]
    assert mirrored.approval.options == ("deny",)
    assert mirrored.approval.details["cannot_approve"] == WHY


def test_pi_shows_why_and_the_whole_text() -> None:
    long = "\n".join(f"line {number}" for number in range(1_500))
    asked = msgspec.structs.replace(DENY_ONLY, details={**DENY_ONLY.details, "screen": long})
    message = responses.make_ui_request(asked, START_MS).message
    assert isinstance(message, str)
    assert WHY in message
    assert "line 1499" in message
