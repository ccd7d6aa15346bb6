"""Structured data and events: every string that may hold words is redacted, and nothing else is touched."""

from typing import Any, get_args

import msgspec
import pytest

from switchtower.core import codec, events, redact
from switchtower.core.redact.redactor import DECIDED, FREE_TEXT

SECRET = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
REDACTOR = redact.Redactor()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (SECRET, "[redacted]"),
        ({"a": [1, {"b": f"x {SECRET}"}]}, {"a": [1, {"b": "x [redacted]"}]}),
        (("ok", SECRET), ("ok", "[redacted]")),
        ({"password": "x"}, {"password": "[redacted]"}),
        ({"clientSecret": "plain"}, {"clientSecret": "[redacted]"}),
        ({"api_key": "/looks/like/a/path"}, {"api_key": "[redacted]"}),
        ({"key": "a1b2c3d4e5!"}, {"key": "[redacted]"}),
        ({"env": {"DB_PASS": "x", "HOME": "/root"}}, {"env": {"DB_PASS": "[redacted]", "HOME": "/root"}}),
        (
            {"passwords": ["hunter2", "x"], "tokens": ["a", "b"]},
            {"passwords": ["[redacted]", "[redacted]"], "tokens": ["a", "b"]},
        ),
        ({SECRET: 1}, {"[redacted]": 1}),
        ({"command": "PGPASSWORD=swordfish psql"}, {"command": "PGPASSWORD=[redacted] psql"}),
    ],
)
def test_secrets_in_data_are_hidden(value: Any, expected: Any) -> None:
    assert REDACTOR.redact_value(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        1.5,
        True,
        "words",
        {},
        {"key": "Enter", "path": "README.md", "token_count": "12", "password": "", "secret": None, "max_tokens": 4096},
        {"password": "[redacted]"},
        [{"id": "550e8400-e29b-41d4-a716-446655440000"}, ("a", ["b"])],
    ],
)
def test_data_without_secrets_comes_back_as_the_same_object(value: Any) -> None:
    assert REDACTOR.redact_value(value) is value


def test_data_is_not_changed_in_place() -> None:
    value = {"args": [SECRET]}
    REDACTOR.redact_value(value)
    assert value == {"args": [SECRET]}


def test_data_too_deep_to_look_into_is_hidden_whole() -> None:
    deep: Any = SECRET
    for _ in range(500):
        deep = [deep]
    redacted = repr(REDACTOR.redact_value(deep))
    assert "[redacted]" in redacted
    assert SECRET not in redacted


ACTOR = events.Actor(name="ada", via="cli")


def make_approval(words: str) -> events.Approval:
    rule = events.Rule("allow", words, words, words)
    return events.Approval("appr_1", "call_1", "shell", words, words, {"command": words}, 1, "f00d", rule=rule)


def make_every_event(words: str) -> list[events.AnyEvent]:
    """One event of each kind with these words wherever a person, a model or a program may put its own."""
    call = events.ToolRequest("call_1", "shell", {"command": words, "more": [words]}, words)
    workspace = events.Workspace("/work", remote_url=words)
    preset = events.Preset("review", "user", "/home/review.toml", words, {"it": {"env": {"PASSWORD": "${PASSWORD}"}}})
    program = events.Program(("bash", "-lc", words), words, "codex")
    flow = events.Flow("build", {"graph": {"nodes": [{"with": {"url": words}}]}}, {"note": words}, argv=("run", words))
    relayed = events.Relayed(7, 1, {"note": words, "more": [words]})
    return [
        events.SessionStarted("agent", "chat", "demo", "none", workspace, ACTOR, "00ff", metadata={"note": words}, preset=preset),
        events.SessionStarted("pty", "chat", "demo", "none", workspace, ACTOR, "00ff", program=program, host="host_1"),
        events.SessionStarted("flow", "chat", "flow", "none", workspace, ACTOR, "00ff", flow=flow),
        events.TerminalTyped("input_1", words, "00ff", ACTOR),
        events.TerminalKeysTyped(3, ACTOR),
        events.TerminalResized(80, 24, ACTOR),
        events.TerminalEchoChanged(on=False),
        events.PromptShown("permission", words, "appr_1"),
        events.PromptCleared(),
        events.ScreenCaptured(words, 80, 24),
        events.RemoteCallStarted("req_1", "rpc.bash", {"cmd": words}, ACTOR),
        events.RemoteCallFinished("req_1", "rpc.bash", ACTOR, ok=True, duration_ms=1, result={"stdout": words}),
        events.RemoteCallFinished("req_1", "rpc.bash", ACTOR, ok=False, duration_ms=1, error=words),
        events.HostLost("host_1"),
        events.HostReturned("host_1"),
        events.HostEventReceived("run.mood", {"words": words}),
        events.HostEventReceived("run.mood", {"words": words}, relayed=relayed),
        events.PromptCleared(relayed=relayed),
        events.SessionResumed(ACTOR, events.SessionState.IDLE, "demo", "none", None, words, make_approval(words)),
        events.SessionConfigured(ACTOR, title=words),
        events.MessageQueued("msg_1", words, events.Delivery.STEER, ACTOR),
        events.MessageDelivered("msg_1", words),
        events.MessageWithdrawn("msg_1", words),
        events.PromptExpanded(words, (words,)),
        events.UsageReported("openai", "gpt"),
        events.RetryScheduled(2, 5, 100, words),
        events.RetryEnded(2, success=False, reason=words),
        events.CompactionStarted("threshold"),
        events.ContextCompacted("threshold", words, 2, 1_000, 100),
        events.CompactionFailed(words),
        events.CheckpointTaken("before", "f00d"),
        events.SessionLoaded(ACTOR),
        events.SessionUnloaded(ACTOR),
        events.SessionDeleted(ACTOR),
        events.VersionAdvanced(ACTOR, "set_model"),
        events.ConversationCleared(ACTOR, words),
        events.MessageImported("assistant", words, 0, words, (call,)),
        events.ShellStarted("sh_1", words, ACTOR),
        events.ShellCancelRequested("sh_1", ACTOR),
        events.ShellFinished("sh_1", 0, words),
        events.StepStopped("retry", ACTOR),
        events.DialogOpened(events.Dialog("dlg_1", "interview", words, 0, words, (words,), words, words, ({"question": words},))),
        events.DialogAnswered("dlg_1", {"value": words}, ACTOR),
        events.DialogClosed("dlg_1", words),
        events.WorkspaceRestored("undo", "run_1", "f00d", (words,), (words,), (words,)),
        events.RunStarted(words, ACTOR, acceptance=(events.Criterion("c1", words, description=words),)),
        events.PhaseChanged(words, words),
        events.MessageCompleted("msg_1", words, words, (call,)),
        events.ToolCalled("call_1", "shell", {"command": words}),
        events.ToolFinished("call_1", "shell", 3, words, is_error=True, error=events.ToolError("X", words, detail=words)),
        events.ToolFinished("call_1", "x", 3, words, result={"content": [{"type": "text", "text": words}]}),
        events.ApprovalRequested(make_approval(words)),
        events.ApprovalDecided("appr_1", events.Verdict.APPROVE, ACTOR, words, events.Rule("allow", "run", None, words)),
        events.ApprovalExpired("appr_1"),
        events.ApprovalWithdrawn("appr_1", words),
        events.WarningRaised("W", words, words),
        events.ErrorRaised("E", words, detail=words),
        events.RunCancelRequested(ACTOR, words),
        events.RunCompleted(events.Outcome.SUCCESS, words, 0, (events.CriterionResult("c1", True, 0, words),)),
    ]


DELTAS = (events.TextDelta, events.ThinkingDelta, events.ToolProgressed)


def test_the_examples_are_of_every_kind_but_the_deltas() -> None:
    assert {type(event) for event in make_every_event("")} | set(DELTAS) == set(events.BY_KIND.values())


@pytest.mark.parametrize("event", make_every_event(f"see {SECRET}."), ids=lambda event: event.kind)
def test_an_event_is_redacted_in_all_its_words_and_in_nothing_else(event: events.AnyEvent) -> None:
    redacted = REDACTOR.redact_event(event)
    assert type(redacted) is type(event)
    # What is decided, and what ran, says how long each secret was.
    seen = codec.encode(redacted).replace(f"[redacted, {len(SECRET)} characters]".encode(), b"[redacted]")
    assert seen == codec.encode(event).replace(SECRET.encode(), b"[redacted]")


@pytest.mark.parametrize("event", make_every_event("see there"), ids=lambda event: event.kind)
def test_an_event_without_secrets_comes_back_as_the_same_object(event: events.AnyEvent) -> None:
    assert REDACTOR.redact_event(event) is event


def test_what_another_host_said_besides_a_delta_is_redacted() -> None:
    event = events.ToolProgressed("call_1", SECRET, relayed=events.Relayed(1, 1, {"note": SECRET}))
    assert REDACTOR.redact_event(event) == events.ToolProgressed(
        "call_1", SECRET, relayed=events.Relayed(1, 1, {"note": "[redacted]"})
    )


@pytest.mark.parametrize(
    "event", [events.TextDelta(SECRET), events.ThinkingDelta(SECRET), events.ToolProgressed("call_1", SECRET)]
)
def test_a_delta_passes_untouched_because_its_stream_has_redacted_it(event: events.AnyEvent) -> None:
    assert REDACTOR.redact_event(event) is event


NOT_FREE_TEXT = {
    events.RetryScheduled: {"cause"},
    events.SessionStarted: {
        "engine",
        "mode",
        "provider",
        "sandbox",
        "by",
        "attach_token_sha256",
        "model",
        "policy",
        "thinking",
        "budget",
        "parent",
        "parent_run",
        "host",
        "alias",
    },
    events.TerminalTyped: {"input_id", "sha256", "by"},
    events.TerminalKeysTyped: {"by"},
    events.TerminalResized: {"by"},
    events.PromptShown: {"reason", "approval_id"},
    events.RemoteCallStarted: {"errand_id", "tool", "by"},
    events.RemoteCallFinished: {"errand_id", "tool", "by"},
    events.HostLost: {"host"},
    events.HostReturned: {"host"},
    events.HostEventReceived: {"type"},
    events.Program: {"tool"},
    events.Flow: {"name", "runtime", "timeout_s"},
    events.SessionDeleted: {"by"},
    events.SessionLoaded: {"by"},
    events.SessionUnloaded: {"by"},
    events.VersionAdvanced: {"by", "command"},
    events.ConversationCleared: {"by"},
    events.MessageImported: {"role", "call_id", "tool", "images", "usage"},
    events.ShellStarted: {"shell_id", "by"},
    events.ShellCancelRequested: {"shell_id", "by"},
    events.ShellFinished: {"shell_id"},
    events.StepStopped: {"step", "by"},
    events.DialogAnswered: {"dialog_id", "by"},
    events.DialogClosed: {"dialog_id"},
    events.Dialog: {"id", "method"},
    events.SessionConfigured: {"by", "provider", "model", "policy", "thinking"},
    events.MessageQueued: {"message_id", "delivery", "by", "images"},
    events.MessageDelivered: {"message_id", "images"},
    events.MessageWithdrawn: {"message_id"},
    events.ToolProgressed: {"call_id", "text"},
    events.UsageReported: {"provider", "model", "cost"},
    events.CompactionStarted: {"reason"},
    events.ContextCompacted: {"reason"},
    events.CheckpointTaken: {"when", "tree", "of"},
    events.WorkspaceRestored: {"direction", "run_id", "after"},
    events.Rule: {"effect"},
    events.SessionResumed: {"by", "state", "provider", "sandbox", "active_run_id"},
    events.RunStarted: {"by", "message_id", "purpose", "images"},
    events.ThinkingDelta: {"text"},
    events.TextDelta: {"text"},
    events.MessageCompleted: {"message_id", "carry", "stop_reason"},
    events.ToolCalled: {"call_id", "tool"},
    events.ToolFinished: {"call_id", "tool"},
    events.ApprovalDecided: {"approval_id", "verdict", "by"},
    events.ApprovalExpired: {"approval_id"},
    events.ApprovalWithdrawn: {"approval_id"},
    events.WarningRaised: {"code"},
    events.ErrorRaised: {"code"},
    events.RunCancelRequested: {"by"},
    events.RunCompleted: {"outcome"},
    events.Workspace: {"root", "branch", "default_branch", "origin"},
    events.Preset: {"name", "origin", "file", "servers"},
    events.Criterion: {"id"},
    events.CriterionResult: {"id"},
    events.ToolError: {"type"},
    events.Approval: {"id", "call_id", "kind", "fingerprint", "options"},
    events.ToolRequest: {"call_id", "tool"},
}


@pytest.mark.parametrize("struct", FREE_TEXT, ids=lambda struct: struct.__name__)
def test_every_field_that_can_hold_text_is_known_as_free_or_not(struct: type[msgspec.Struct]) -> None:
    can_hold_text = {
        field.name for field in msgspec.structs.fields(struct) if not _list_leaves(field.type) <= {int, bool, type(None)}
    }
    if issubclass(struct, events.Event):
        can_hold_text.remove("relayed")  # looked at in every event
    known = {*FREE_TEXT[struct], *DECIDED.get(struct, ())}
    assert can_hold_text == known | NOT_FREE_TEXT.get(struct, set())
    assert not set(FREE_TEXT[struct]) & set(DECIDED.get(struct, ()))


def test_every_struct_within_free_text_has_its_row() -> None:
    held = {
        leaf
        for struct, names in (*FREE_TEXT.items(), *DECIDED.items())
        for field in msgspec.structs.fields(struct)
        if field.name in names
        for leaf in _list_leaves(field.type)
    }
    assert {leaf for leaf in held if isinstance(leaf, type) and issubclass(leaf, msgspec.Struct)} <= set(FREE_TEXT)


def _list_leaves(annotation: Any) -> set[Any]:
    arguments = [argument for argument in get_args(annotation) if argument is not ...]
    return set().union(*map(_list_leaves, arguments)) if arguments else {annotation}
