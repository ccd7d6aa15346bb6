"""Events in any order, for properties that hold whatever an engine does."""

from hypothesis import strategies as st
from tests.protocols.pi.reels import APPROVAL, OWNER, READ, STARTED, SUCCESS, THINKING, USAGE

from switchtower.core import events

DIALOG = events.Dialog(id="dlg_1", method="input", title="Name?", expires_at_ms=1, placeholder="a name")

ONE_OF_EACH: tuple[events.AnyEvent, ...] = (
    events.SessionStarted(
        engine="agent",
        mode="interactive",
        provider="demo",
        sandbox="local",
        workspace=events.Workspace(root="/work"),
        by=OWNER,
        attach_token_sha256="0" * 64,
    ),
    events.SessionLoaded(OWNER),
    events.SessionUnloaded(OWNER),
    events.SessionDeleted(OWNER),
    events.VersionAdvanced(OWNER, "set_model"),
    events.SessionConfigured(OWNER, model="m"),
    events.SessionResumed(OWNER, events.SessionState.IDLE, "demo", "local"),
    STARTED,
    events.MessageQueued("msg_1", "more", events.Delivery.STEER, OWNER),
    events.MessageDelivered("msg_1", "more"),
    events.MessageWithdrawn("msg_1", "the run failed"),
    events.PromptExpanded("hello, with files"),
    events.ConversationCleared(OWNER),
    events.MessageImported("user", "once", 1),
    events.ShellStarted("shell_1", "ls", OWNER),
    events.ShellCancelRequested("shell_1", OWNER),
    events.ShellFinished("shell_1", None, "", cancelled=True),
    THINKING,
    events.ThinkingDelta("Hm"),
    events.TextDelta("Hi"),
    events.MessageCompleted("asst_1", "Hi", calls=(READ,)),
    events.ToolCalled("call_1", "read_file", {"path": "a.txt"}),
    events.ToolProgressed("call_1", "con"),
    events.ToolFinished("call_1", "read_file", 1, "contents"),
    USAGE,
    events.RetryScheduled(2, 4, 500, "overloaded"),
    events.RetryEnded(2, success=True),
    events.CompactionStarted("threshold"),
    events.ContextCompacted("threshold", "So far", 1, 9, 1),
    events.CompactionFailed("no room"),
    events.CheckpointTaken("before", "tree"),
    events.WorkspaceRestored("undo", "run_0", "tree"),
    events.TerminalTyped("input_1", "ls\r", "0" * 64, OWNER),
    events.TerminalKeysTyped(3, OWNER),
    events.TerminalResized(80, 24, OWNER),
    events.TerminalEchoChanged(on=False),
    events.PromptShown("permission", "Proceed? (y/n)", "appr_1"),
    events.PromptCleared(),
    events.ScreenCaptured("$ ", 80, 24),
    events.RemoteCallStarted("req_1", "rpc.fs.read", {"path": "a.txt"}, OWNER),
    events.RemoteCallFinished("req_1", "rpc.fs.read", OWNER, ok=True, duration_ms=1, result={"content": "contents"}),
    events.HostLost("host_1"),
    events.HostReturned("host_1"),
    events.HostEventReceived("run.mood", {"mood": "fine"}),
    events.StepStopped("retry", OWNER),
    events.DialogOpened(DIALOG),
    events.DialogAnswered("dlg_1", {"value": "x"}, OWNER),
    events.DialogClosed("dlg_1", "expired"),
    events.ApprovalRequested(APPROVAL),
    events.ApprovalDecided("appr_1", events.Verdict.APPROVE, OWNER),
    events.ApprovalExpired("appr_1"),
    events.ApprovalWithdrawn("appr_1", "the run has ended"),
    events.WarningRaised("W", "careful"),
    events.ErrorRaised("E", "broken"),
    events.RunCancelRequested(OWNER),
    SUCCESS,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
LONG_TEXTS = st.builds(lambda text, times: text * times, TEXTS, st.integers(1, 60))

PIECES = st.builds(events.TextDelta, LONG_TEXTS) | st.builds(events.ThinkingDelta, LONG_TEXTS)

ANY_EVENT = st.one_of(
    PIECES,
    st.sampled_from(ONE_OF_EACH),
    st.builds(events.MessageCompleted, st.just("asst_1"), TEXTS, TEXTS, st.sampled_from([(), (READ,), (READ, READ)])),
    st.builds(events.ToolProgressed, st.just("call_1"), LONG_TEXTS),
    st.sampled_from(events.Outcome).map(lambda outcome: events.RunCompleted(outcome, "ended", 0)),
    st.sampled_from(events.Purpose).map(lambda purpose: events.RunStarted("hello", OWNER, purpose=purpose)),
)


ASIDE = st.sampled_from(
    (
        events.SessionConfigured(OWNER, title="Mine"),
        events.MessageQueued("msg_1", "more", events.Delivery.STEER, OWNER),
        events.ShellStarted("shell_1", "ls", OWNER),
        events.ShellFinished("shell_1", 0, ""),
        events.WarningRaised("W", "careful"),
        events.CheckpointTaken("before", "tree"),
    )
)
"""What may come in between at any time."""


@st.composite
def turns(draw: st.DrawFn) -> list[events.AnyEvent]:
    """One turn of a run, as the engine tells it; a run may be cut off anywhere in it."""
    happened: list[events.AnyEvent] = [THINKING] if draw(st.booleans()) else []
    happened += draw(st.lists(PIECES, max_size=4))
    if draw(st.booleans()):
        happened += [events.RetryScheduled(2, 4, 500, "overloaded"), *draw(st.lists(PIECES, max_size=3))]
    names = [f"call_{number}" for number in range(draw(st.integers(0, 3)))]
    requests = tuple(events.ToolRequest(call_id=name, tool="run", args={}) for name in names)
    happened.append(events.MessageCompleted("asst_1", "Hi", calls=requests))
    happened += [USAGE] if draw(st.booleans()) else []
    happened += [events.ToolCalled(name, "run", {}) for name in names]
    happened += [events.ToolFinished(name, "run", 1, "ok") for name in names]
    happened += [events.MessageDelivered("msg_1", "more")] if draw(st.booleans()) else []
    return happened


@st.composite
def runs(draw: st.DrawFn) -> list[events.AnyEvent]:
    worked = [event for turn in draw(st.lists(turns(), max_size=4)) for event in turn]
    worked = worked[: draw(st.integers(0, len(worked)))]
    for aside in draw(st.lists(ASIDE, max_size=3)):
        worked.insert(draw(st.integers(0, len(worked))), aside)
    return [STARTED, *worked, events.RunCompleted(draw(st.sampled_from(events.Outcome)), "ended", 0)]
