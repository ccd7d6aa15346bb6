"""Every core event as push sends it: samples, and the golden files made from them.

`python -m tests.protocols.push.samples` writes the golden files anew; what changed is then for a person to read.
"""

from pathlib import Path
from typing import Any

import msgspec

from switchtower.core import codec, events
from switchtower.core.ports import journal
from switchtower.protocols.push import encoder

GOLDEN = Path(__file__).parent / "golden"
SESSION, RUN = "sess_01JCQGOLDEN", "run_01JCQGOLDEN"
OWNER = events.Actor(name="owner", via="cli", client="push 0.1.0")
APPROVAL = events.Approval(
    id="appr_1",
    call_id="call_1",
    kind="exec",
    title="Run a command",
    summary="make test",
    details={"command": "make test", "cwd": "/work"},
    expires_at_ms=1_760_000_300_000,
    fingerprint="f" * 64,
)

SAMPLES: dict[str, list[tuple[str | None, events.AnyEvent]]] = {
    "session.started": [
        (
            None,
            events.SessionStarted(
                engine="agent",
                mode=mode,
                provider="demo",
                sandbox=sandbox,
                workspace=events.Workspace(root="/work", branch="main"),
                by=OWNER,
                attach_token_sha256="0" * 64,
                metadata={"source": "cli"},
            ),
        )
        for mode, sandbox in (("interactive", "local"), ("headless", "modal"), ("another protocol's", "another's"))
    ]
    + [
        (
            None,
            events.SessionStarted(
                engine="agent",
                mode="interactive",
                provider="demo",
                sandbox="local",
                workspace=events.Workspace(root="/work"),
                by=OWNER,
                attach_token_sha256="0" * 64,
                preset=events.Preset("review", "user", "/home/review.toml", "You are a reviewer.", {"it": {"command": "it"}}),
            ),
        ),
        (
            None,
            events.SessionStarted(
                engine="pty",
                mode="interactive",
                provider="terminal",
                sandbox="local",
                workspace=events.Workspace(root="/work"),
                by=OWNER,
                attach_token_sha256="",
                program=events.Program(("bash", "-lc", "codex"), "codex", "codex", 80, 24),
                host="host_1",
                relayed=events.Relayed(1, 1_759_000_000_000),
            ),
        ),
    ],
    "session.resumed": [
        (None, events.SessionResumed(by=OWNER, state=events.SessionState.IDLE, provider="demo", sandbox="local")),
        (
            None,
            events.SessionResumed(
                by=OWNER,
                state=events.SessionState.AWAITING_APPROVAL,
                provider="demo",
                sandbox="local",
                active_run_id=RUN,
                last_assistant_text="I will run `make test`.",
                pending_approval=APPROVAL,
            ),
        ),
    ],
    "run.started": [
        (RUN, events.RunStarted(text="hello", by=OWNER, message_id="msg_1")),
        (RUN, events.RunStarted(text="long " * 200, by=OWNER)),
        *((RUN, events.RunStarted(text="", by=OWNER, purpose=purpose)) for purpose in events.Purpose),
    ],
    "session.configured": [(None, events.SessionConfigured(by=OWNER, provider="openai", model="gpt", policy="auto"))],
    "message.queued": [(RUN, events.MessageQueued("msg_2", "use tabs", events.Delivery.STEER, OWNER))],
    "message.delivered": [(RUN, events.MessageDelivered("msg_2", "use tabs"))],
    "message.withdrawn": [(RUN, events.MessageWithdrawn("msg_2", "the run ended: cancelled"))],
    "session.loaded": [(None, events.SessionLoaded(by=OWNER))],
    "session.unloaded": [(None, events.SessionUnloaded(by=OWNER))],
    "session.deleted": [(None, events.SessionDeleted(by=OWNER))],
    "session.version": [(None, events.VersionAdvanced(by=OWNER, command="set_model"))],
    "conversation.cleared": [(None, events.ConversationCleared(by=OWNER, origin="sess_parent"))],
    "message.imported": [(None, events.MessageImported("user", "what I said elsewhere", 1_760_000_000_000))],
    "shell.started": [(None, events.ShellStarted("sh_1", "make test", OWNER))],
    "shell.cancel_requested": [(None, events.ShellCancelRequested("sh_1", OWNER))],
    "shell.finished": [
        (None, events.ShellFinished("sh_1", 0, "12 passed\n")),
        (None, events.ShellFinished("sh_1", None, "", cancelled=True)),
    ],
    "terminal.typed": [
        (RUN, events.TerminalTyped("input_1", "ls -l\r", "a" * 64, OWNER)),
        (RUN, events.TerminalTyped("input_2", "[hidden]", "b" * 64, OWNER)),
    ],
    "terminal.keys": [(RUN, events.TerminalKeysTyped(3, OWNER))],
    "terminal.resized": [(RUN, events.TerminalResized(80, 24, OWNER))],
    "terminal.echoed": [(RUN, events.TerminalEchoChanged(on=on)) for on in (False, True)],
    "terminal.prompt": [
        (RUN, events.PromptShown("permission", "Proceed? (y/n)", "appr_1")),
        (RUN, events.PromptShown("unknown")),
    ],
    "terminal.prompt_gone": [(RUN, events.PromptCleared())],
    "terminal.screen": [(RUN, events.ScreenCaptured("\x1b[2J" + "line\r\n" * 200, 80, 24))],
    "errand.started": [(RUN, events.RemoteCallStarted("req_1", "rpc.fs.read", {"path": "README.md"}, OWNER))],
    "errand.finished": [
        (RUN, events.RemoteCallFinished("req_1", "rpc.fs.read", OWNER, ok=True, duration_ms=3, result={"content": "# Tower"})),
        (None, events.RemoteCallFinished("req_1", "rpc.bash", OWNER, ok=False, duration_ms=3, error="denied")),
    ],
    "host.lost": [(RUN, events.HostLost("host_1"))],
    "host.returned": [(RUN, events.HostReturned("host_1"))],
    "host.said": [
        (RUN, events.HostEventReceived("run.mood", {"mood": "fine"}, relayed=events.Relayed(9, 1_759_000_000_000, {"a": 1})))
    ],
    "run.step_stopped": [(RUN, events.StepStopped("retry", OWNER))],
    "dialog.opened": [
        (RUN, events.DialogOpened(events.Dialog("dlg_1", "select", "What to review?", 1_760_000_060_000, options=("a", "b")))),
    ],
    "dialog.answered": [(RUN, events.DialogAnswered("dlg_1", {"value": "a"}, OWNER))],
    "dialog.closed": [(RUN, events.DialogClosed("dlg_1", "expired"))],
    "prompt.expanded": [(RUN, events.PromptExpanded("see @a.py\n\ncontent", ("a.py",)))],
    "tool.progressed": [
        (RUN, events.ToolProgressed("call_1", "12 passed\n")),
        (RUN, events.ToolProgressed("terminal", "$ ", relayed=events.Relayed(2, 1_759_000_000_000, {"note": "theirs"}))),
    ],
    "model.usage": [
        (RUN, events.UsageReported("openai", "gpt", 1_200, 80, 1_000, 0, 0.0123, 128_000)),
        (RUN, events.UsageReported("local", "qwen", 10, 2)),
    ],
    "model.retry": [(RUN, events.RetryScheduled(2, 5, 1_500, "the server answered 529"))],
    "model.retry_ended": [
        (RUN, events.RetryEnded(2, success=True)),
        (RUN, events.RetryEnded(5, success=False, reason="the server answered 529")),
    ],
    "context.compaction_started": [(RUN, events.CompactionStarted("threshold"))],
    "context.compacted": [(RUN, events.ContextCompacted("threshold", "Goal: …", 4, 100_000, 9_000))],
    "context.compaction_failed": [(RUN, events.CompactionFailed("cancelled", aborted=True))],
    "workspace.checkpoint": [(RUN, events.CheckpointTaken("before", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"))],
    "workspace.restored": [
        (RUN, events.WorkspaceRestored("undo", RUN, "4b825dc642cb6eb9a060e54bf8d69288fbee4904", ("a.py",), ("b.py",))),
        (RUN, events.WorkspaceRestored("redo", RUN, "4b825dc642cb6eb9a060e54bf8d69288fbee4904")),
    ],
    "run.phase": [
        (RUN, events.PhaseChanged(phase="Thinking")),
        (RUN, events.PhaseChanged(phase="Executing tool", detail="read_file")),
    ],
    "thinking.delta": [(RUN, events.ThinkingDelta(text="Hm, "))],
    "text.delta": [(RUN, events.TextDelta(text=text)) for text in ("Hello ", 'grüße 😀 "quoted" \\ \n\t\0', "")],
    "message.completed": [
        (
            RUN,
            events.MessageCompleted(
                message_id="asst_1",
                text="Hello",
                thinking="Hm",
                calls=(events.ToolRequest(call_id="call_1", tool="run", args={"command": "make"}),),
            ),
        )
    ],
    "tool.called": [
        (RUN, events.ToolCalled(call_id="call_1", tool=tool, args={"path": "README.md"}))
        for tool in (*encoder.TOOL_NAMES, "a_tool_of_tomorrow")
    ],
    "tool.finished": [
        (RUN, events.ToolFinished(call_id="call_1", tool="read_file", duration_ms=12, text="# Title\n")),
        (
            RUN,
            events.ToolFinished(
                call_id="call_1",
                tool="run",
                duration_ms=1_500,
                text="[exit code 2]",
                is_error=True,
                error=events.ToolError(type="EXEC_NON_ZERO_EXIT", message="exit code 2", retryable=True, detail="make: ***"),
            ),
        ),
        (
            RUN,
            events.ToolFinished(
                call_id="call_1",
                tool="run",
                duration_ms=0,
                text="",
                is_error=True,
                error=events.ToolError(type="A_TYPE_OF_TOMORROW", message="unheard of"),
            ),
        ),
    ],
    "approval.requested": [(RUN, events.ApprovalRequested(approval=APPROVAL))],
    "approval.decided": [
        (RUN, events.ApprovalDecided(approval_id="appr_1", verdict=verdict, by=events.Actor(name="owner", via=via), comment="c"))
        for verdict, via in (
            (events.Verdict.APPROVE, "cli"),
            (events.Verdict.DENY_STOP, "app"),
            (events.Verdict.DENY_CONTINUE, "app"),
        )
    ],
    "approval.expired": [(RUN, events.ApprovalExpired(approval_id="appr_1"))],
    "approval.withdrawn": [(RUN, events.ApprovalWithdrawn(approval_id="appr_1", reason="the run ended: cancelled"))],
    "warning": [
        (None, events.WarningRaised(code="LOW_DISK", message="Little space is left")),
        (RUN, events.WarningRaised(code="LOW_DISK", message="Little space is left", detail="12 MB")),
    ],
    "error": [
        (RUN, events.ErrorRaised(code="MODEL_ERROR", message="The model failed")),
        (None, events.ErrorRaised(code="RUN_INTERRUPTED", message="Stopped", retryable=True, detail="SIGTERM")),
    ],
    "run.cancel_requested": [
        (RUN, events.RunCancelRequested(by=OWNER)),
        (RUN, events.RunCancelRequested(by=OWNER, reason="user_cancelled")),
        (RUN, events.RunCancelRequested(by=OWNER, force=True)),
    ],
    "run.completed": [
        *(
            (RUN, events.RunCompleted(outcome=outcome, summary=f"It was {outcome}", exit_code_hint=hint))
            for hint, outcome in enumerate(events.Outcome)
        ),
        (RUN, events.RunCompleted(outcome=events.Outcome.FAILED, summary="It ended", exit_code_hint=1, exit_code=130)),
        (
            RUN,
            events.RunCompleted(
                outcome=events.Outcome.FAILED,
                summary="Acceptance criteria failed",
                exit_code_hint=4,
                acceptance=(
                    events.CriterionResult(id="build", passed=True, exit_code=0, output=""),
                    events.CriterionResult(id="tests", passed=False, exit_code=2, output="1 failed\n"),
                ),
            ),
        ),
    ],
}


def make_entry(run_id: str | None, event: events.AnyEvent, seq: int = 42) -> journal.Entry:
    return journal.Entry(seq, 1_760_000_000_000 + seq, run_id, event.kind, codec.encode(event))


def encode_sample(kind: str) -> list[bytes]:
    entries = [make_entry(run_id, event, seq) for seq, (run_id, event) in enumerate(SAMPLES[kind], start=1)]
    return encoder.encode_batch(SESSION, entries)


def encode_golden(kind: str) -> bytes:
    """The stored form of each sample and the frame that it becomes."""
    cases: list[dict[str, Any]] = [
        {"event": msgspec.json.decode(codec.encode(event)), "frame": msgspec.json.decode(frame)}
        for (_, event), frame in zip(SAMPLES[kind], encode_sample(kind), strict=True)
    ]
    return msgspec.json.format(msgspec.json.encode(cases), indent=2) + b"\n"


def write() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for kind in SAMPLES:
        (GOLDEN / f"{kind}.json").write_bytes(encode_golden(kind))


if __name__ == "__main__":
    write()
