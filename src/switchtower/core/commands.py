"""Everything that can be asked of a session, in the imperative: first what clients ask, then engines, timers and recovery.

A command says who asks and may carry an identity: the same identity has the same outcome, also after a restart.
"""

from typing import ClassVar

from msgspec import Struct

from switchtower.core import events as core_events
from switchtower.core.ports import journal


class Command(Struct, frozen=True, kw_only=True):
    session_id: str
    actor: core_events.Actor = core_events.SYSTEM
    idempotency_key: str | None = None
    expected_version: int | None = None
    """Refused unless the session is at this version."""
    receipts: tuple[journal.Receipt, ...] = ()
    """Stored with what comes of it, for a protocol that keeps its own identities."""
    identity_fields: ClassVar[tuple[str, ...]] = ()
    """The fields that make two commands the same request; their hash is the fingerprint."""
    wire_name: ClassVar[str]
    """The command's name in stored fingerprints and between nodes. It never changes. By default it is the class name."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "wire_name" not in vars(cls):
            cls.wire_name = cls.__name__


class StartSession(Command, frozen=True, kw_only=True):
    engine: str
    mode: str
    provider: str
    workspace: core_events.Workspace
    attach_token_sha256: str
    sandbox: str | None = None
    """None is the daemon's own choice. Less than that is refused unless `sandbox_is_settled`."""
    sandbox_is_settled: bool = False
    """The owner's own socket names this sandbox, or the session continues one that has it."""
    model: str | None = None
    allows_demo: bool = False
    """A person at a terminal starts it: the demo model may answer when no model is named and none is configured."""
    metadata: dict[str, object] = {}
    policy: str | None = None
    """None is the daemon's own choice; so with the budget."""
    thinking: str | None = None
    budget: core_events.Budget | None = None
    id_is_fresh: bool = False
    """The session's id was minted for this very command, so nobody need look whether it is taken."""
    loaded: bool = False
    parent: str | None = None
    parent_run: str | None = None
    """The run whose process starts it. Only the runtime sets it."""
    conversation: tuple[core_events.MessageImported, ...] = ()
    """What was said elsewhere and goes on here."""
    title: str | None = None
    trusts_folder: bool = False
    """The owner says with the request that the folder is trusted."""
    preset: str | None = None
    """By name. What the other fields say goes before what the preset says."""
    resolved_preset: core_events.Preset | None = None
    """What the name came to: the workshop's answer, nobody else's."""
    program: core_events.Program | None = None
    """The session is this program in a terminal, and its one run begins at once."""
    flow: core_events.Flow | None = None
    """The session is this flow, and its one run begins at once."""
    warnings: tuple[core_events.WarningRaised, ...] = ()
    """What the workshop wants every client of the session to see."""
    alias: str | None = None
    """See `events.SessionStarted`."""


class LoadSession(Command, frozen=True, kw_only=True):
    pass


class UnloadSession(Command, frozen=True, kw_only=True):
    pass


class DeleteSession(Command, frozen=True, kw_only=True):
    """For good, with all that the journal has of it."""


class RecordOutcome(Command, frozen=True, kw_only=True):
    """A protocol's word that a command of its own has ended: its receipts, and whether it changed the session."""

    name: str
    advances: bool


class ReplaceConversation(Command, frozen=True, kw_only=True):
    """The model starts anew, with nothing or with what was said elsewhere."""

    origin: str | None = None
    conversation: tuple[core_events.MessageImported, ...] = ()


class ConfigureSession(Command, frozen=True, kw_only=True):
    """How the session works from its next run on. None leaves a thing as it is."""

    provider: str | None = None
    model: str | None = None
    policy: str | None = None
    thinking: str | None = None
    title: str | None = None
    auto_compact: bool | None = None
    auto_retry: bool | None = None


class SendMessage(Command, frozen=True, kw_only=True):
    identity_fields: ClassVar[tuple[str, ...]] = ("text", "acceptance")
    text: str
    acceptance: tuple[core_events.Criterion, ...] = ()
    images: tuple[core_events.Image, ...] = ()
    rules: tuple[core_events.Rule, ...] = ()
    """Of the policy, for this run alone."""
    run_id: str | None = None
    """Minted by who asks, when a receipt has to name it."""
    client_message_id: str | None = None
    """Ignored when the run under way, or the last one, was already sent a message of this id."""


class QueueMessage(Command, frozen=True, kw_only=True):
    """For a run that is under way. Without one it starts a run, so that a message which comes a moment late is not lost."""

    identity_fields: ClassVar[tuple[str, ...]] = ("text", "delivery")
    text: str
    delivery: core_events.Delivery
    images: tuple[core_events.Image, ...] = ()


class CompactContext(Command, frozen=True, kw_only=True):
    identity_fields: ClassVar[tuple[str, ...]] = ("instructions",)
    instructions: str = ""
    run_id: str | None = None


class RunShell(Command, frozen=True, kw_only=True):
    """A person's own command, in the session's workspace and sandbox."""

    shell_id: str
    command: str
    told: bool = True


class CancelShell(Command, frozen=True, kw_only=True):
    """The one that was named, or all that are running."""

    shell_id: str | None = None


class StopStep(Command, frozen=True, kw_only=True):
    step: str


class AnswerDialog(Command, frozen=True, kw_only=True):
    """Without a response it is dismissed."""

    dialog_id: str
    response: dict[str, object] | None


class RestoreWorkspace(Command, frozen=True, kw_only=True):
    """Takes back what the last run changed, or makes it again."""

    identity_fields: ClassVar[tuple[str, ...]] = ("redo", "force")
    redo: bool = False
    force: bool = False


class DecideApproval(Command, frozen=True, kw_only=True):
    approval_id: str
    verdict: core_events.Verdict
    run_id: str | None = None
    comment: str | None = None
    always: bool = False
    """Let the approval's rule hold for the rest of the session."""
    stop_is_implied: bool = False
    """The client has only one word for a denial. An agent's run then ends by it; a program in a terminal continues."""


class CancelRun(Command, frozen=True, kw_only=True):
    run_id: str | None = None
    reason: str | None = None
    force: bool = False
    """A program is killed rather than asked to end."""


class TypeInput(Command, frozen=True, kw_only=True):
    """A text for the program, written once: its id is the identity."""

    identity_fields: ClassVar[tuple[str, ...]] = ("sha256",)
    input_id: str
    text: str
    sha256: str
    """Of the text; the text itself goes into no receipt."""


class TypeKeys(Command, frozen=True, kw_only=True):
    """Typing at the terminal, of which nothing but its length is kept."""

    text: str


class ResizeTerminal(Command, frozen=True, kw_only=True):
    cols: int
    rows: int


class StartRemoteCall(Command, frozen=True, kw_only=True):
    wire_name: ClassVar[str] = "StartErrand"
    errand_id: str
    tool: str
    args: dict[str, object]


class FinishRemoteCall(Command, frozen=True, kw_only=True):
    wire_name: ClassVar[str] = "FinishErrand"
    errand_id: str
    ok: bool
    duration_ms: int
    result: dict[str, object] | None = None
    error: str | None = None


class RequestApproval(Command, frozen=True, kw_only=True):
    """An engine's: `fingerprint` is the hash of exactly what will run."""

    run_id: str
    call_id: str
    kind: str
    title: str
    summary: str
    details: dict[str, object]
    fingerprint: str
    expires_at_ms: int
    rule: core_events.Rule | None = None
    approval_id: str | None = None
    """Chosen by who asks, where its protocol wants to name the question itself."""
    options: tuple[str, ...] = ("approve", "deny")


class WithdrawApproval(Command, frozen=True, kw_only=True):
    """An engine's: the question has been answered in another way, or has gone."""

    approval_id: str
    reason: str


class OpenDialog(Command, frozen=True, kw_only=True):
    """An engine's. `dialog` has no id yet."""

    run_id: str
    dialog: core_events.Dialog


class ExpireDialog(Command, frozen=True, kw_only=True):
    """A timer's."""

    dialog_id: str


class FinishShell(Command, frozen=True, kw_only=True):
    """The runtime's."""

    shell_id: str
    exit_code: int | None
    text: str
    cancelled: bool = False


class ExpireApproval(Command, frozen=True, kw_only=True):
    """A timer's."""

    approval_id: str


class FinishRun(Command, frozen=True, kw_only=True):
    """An engine's last word, after acceptance was checked."""

    run_id: str
    outcome: core_events.Outcome
    summary: str
    acceptance: tuple[core_events.CriterionResult, ...] = ()
    exit_code: int | None = None


class InterruptRun(Command, frozen=True, kw_only=True):
    """Recovery's and shutdown's: nobody works on this run any more."""

    run_id: str
    reason: str
    lost: str | None = None
    """The machine that it was on and that nobody hears of any more, when its program went with that."""


class HostReport(Struct, frozen=True):
    """One thing that happened on a session's host, and what it is in our words. The first event has the host's number."""

    seq: int
    events: tuple[core_events.AnyEvent, ...]


class MirrorRun(Command, frozen=True, kw_only=True):
    """The hub's: what a host told of one of its sessions, in order. What was told before is not taken twice."""

    host: str
    run_id: str
    """Of the one run that it is in our words."""
    reports: tuple[HostReport, ...]
    opening: tuple[core_events.AnyEvent, ...] = ()
    """How such a session begins when its own beginning was never told."""


class MarkHost(Command, frozen=True, kw_only=True):
    """The hub's: a session's host has gone silent, or is back."""

    lost: bool


AnyCommand = (
    StartSession
    | LoadSession
    | UnloadSession
    | DeleteSession
    | RecordOutcome
    | ReplaceConversation
    | RunShell
    | CancelShell
    | StopStep
    | AnswerDialog
    | OpenDialog
    | ExpireDialog
    | FinishShell
    | ConfigureSession
    | SendMessage
    | QueueMessage
    | CompactContext
    | RestoreWorkspace
    | DecideApproval
    | CancelRun
    | TypeInput
    | TypeKeys
    | ResizeTerminal
    | StartRemoteCall
    | FinishRemoteCall
    | WithdrawApproval
    | MirrorRun
    | MarkHost
    | RequestApproval
    | ExpireApproval
    | FinishRun
    | InterruptRun
)
