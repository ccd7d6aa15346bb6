"""Everything that can be requested of a session, in the imperative: first what clients request, then engines, timers and
recovery.

A command names its actor and may carry an idempotency key: the same key has the same outcome, also after a restart.

Idempotency: the identity of a command, and the stored outcome that a repeated command gets. Pure."""

import hashlib
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from switchtower.core import errors
from switchtower.core import events as core_events
from switchtower.core.ports import journal


class Command(Struct, frozen=True, kw_only=True):
    session_id: str
    actor: core_events.Actor = core_events.SYSTEM
    idempotency_key: str | None = None
    expected_version: int | None = None
    """The command is refused unless the session is at this version."""
    receipts: tuple[journal.Receipt, ...] = ()
    """Receipts that are stored with the outcome, for a protocol that keeps its own idempotency keys."""
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
    """None selects the daemon's setting. A weaker sandbox than that is refused unless `sandbox_is_settled`."""
    sandbox_is_settled: bool = False
    """The owner's own socket names this sandbox, or the session continues one that has it."""
    model: str | None = None
    allows_demo: bool = False
    """A user at a terminal starts it: the demo model may answer when no model is named and none is configured."""
    metadata: dict[str, object] = {}
    policy: str | None = None
    """None selects the daemon's setting; the same holds for the budget."""
    thinking: str | None = None
    budget: core_events.Budget | None = None
    id_is_fresh: bool = False
    """The session's id was minted for this very command, so the journal need not be checked for it."""
    loaded: bool = False
    parent: str | None = None
    parent_run: str | None = None
    """The run whose process starts it. Only the runtime sets it."""
    conversation: tuple[core_events.MessageImported, ...] = ()
    """A conversation from elsewhere that continues here."""
    title: str | None = None
    trusts_folder: bool = False
    """The owner declares with the request that the folder is trusted."""
    preset: str | None = None
    """The name of a preset. The other fields take precedence over the preset."""
    resolved_preset: core_events.Preset | None = None
    """The preset that the name resolves to. Only the host services set it."""
    program: core_events.Program | None = None
    """The session is this program in a terminal, and its only run starts at once."""
    flow: core_events.Flow | None = None
    """The session is this flow, and its only run starts at once."""
    warnings: tuple[core_events.WarningRaised, ...] = ()
    """Warnings of the host services for every client of the session."""
    alias: str | None = None
    """See `events.SessionStarted`."""


class LoadSession(Command, frozen=True, kw_only=True):
    pass


class UnloadSession(Command, frozen=True, kw_only=True):
    pass


class DeleteSession(Command, frozen=True, kw_only=True):
    """Deletes the session permanently, with everything that the journal has of it."""


class RecordOutcome(Command, frozen=True, kw_only=True):
    """A protocol reports that one of its own commands has ended: its receipts, and whether it changed the session."""

    name: str
    advances: bool


class ReplaceConversation(Command, frozen=True, kw_only=True):
    """The model starts from an empty conversation, or from one that took place elsewhere."""

    origin: str | None = None
    conversation: tuple[core_events.MessageImported, ...] = ()


class ConfigureSession(Command, frozen=True, kw_only=True):
    """Changes how the session works from its next run on. None leaves a setting unchanged."""

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
    """Policy rules for this run alone."""
    run_id: str | None = None
    """The id that the client minted, when a receipt has to name it."""
    client_message_id: str | None = None
    """The message is ignored when the active run, or the last one, was already sent a message with this id."""


class QueueMessage(Command, frozen=True, kw_only=True):
    """Sends a message to an active run. Without one it starts a run, so that a message that arrives a moment late is not lost."""

    identity_fields: ClassVar[tuple[str, ...]] = ("text", "delivery")
    text: str
    delivery: core_events.Delivery
    images: tuple[core_events.Image, ...] = ()


class CompactContext(Command, frozen=True, kw_only=True):
    identity_fields: ClassVar[tuple[str, ...]] = ("instructions",)
    instructions: str = ""
    run_id: str | None = None


class RunShell(Command, frozen=True, kw_only=True):
    """Runs a user's own command, in the session's workspace and sandbox."""

    shell_id: str
    command: str
    told: bool = True


class CancelShell(Command, frozen=True, kw_only=True):
    """Cancels the named command, or all that are running."""

    shell_id: str | None = None


class StopStep(Command, frozen=True, kw_only=True):
    step: str


class AnswerDialog(Command, frozen=True, kw_only=True):
    """Answers a dialog. Without a response the dialog is dismissed."""

    dialog_id: str
    response: dict[str, object] | None


class RestoreWorkspace(Command, frozen=True, kw_only=True):
    """Undoes the changes of the last run, or redoes them."""

    identity_fields: ClassVar[tuple[str, ...]] = ("redo", "force")
    redo: bool = False
    force: bool = False


class DecideApproval(Command, frozen=True, kw_only=True):
    approval_id: str
    verdict: core_events.Verdict
    run_id: str | None = None
    comment: str | None = None
    always: bool = False
    """The approval's rule holds for the rest of the session."""
    stop_is_implied: bool = False
    """The client has only one word for a denial. An agent's run then ends by it; a program in a terminal continues."""


class CancelRun(Command, frozen=True, kw_only=True):
    run_id: str | None = None
    reason: str | None = None
    force: bool = False
    """The program is killed rather than asked to end."""


class TypeInput(Command, frozen=True, kw_only=True):
    """Sends a text to the program, written once: its id is the idempotency key."""

    identity_fields: ClassVar[tuple[str, ...]] = ("sha256",)
    input_id: str
    text: str
    sha256: str
    """The hash of the text; the text itself is not stored in a receipt."""


class TypeKeys(Command, frozen=True, kw_only=True):
    """Types keys at the terminal, of which only the length is stored."""

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
    """An engine requests an approval: `fingerprint` is the hash of exactly what will run."""

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
    """The id that the engine chose, when its protocol has to name the approval itself."""
    options: tuple[str, ...] = ("approve", "deny")


class WithdrawApproval(Command, frozen=True, kw_only=True):
    """An engine withdraws an approval that was answered in another way or is no longer needed."""

    approval_id: str
    reason: str


class OpenDialog(Command, frozen=True, kw_only=True):
    """An engine opens a dialog. `dialog` has no id yet."""

    run_id: str
    dialog: core_events.Dialog


class ExpireDialog(Command, frozen=True, kw_only=True):
    """A timer ends a dialog that was not answered in time."""

    dialog_id: str


class FinishShell(Command, frozen=True, kw_only=True):
    """The runtime reports the end of a user's own command."""

    shell_id: str
    exit_code: int | None
    text: str
    cancelled: bool = False


class ExpireApproval(Command, frozen=True, kw_only=True):
    """A timer ends an approval that was not decided in time."""

    approval_id: str


class FinishRun(Command, frozen=True, kw_only=True):
    """An engine ends its run, after acceptance was checked."""

    run_id: str
    outcome: core_events.Outcome
    summary: str
    acceptance: tuple[core_events.CriterionResult, ...] = ()
    exit_code: int | None = None


class InterruptRun(Command, frozen=True, kw_only=True):
    """Recovery and shutdown end a run that no engine works on any more."""

    run_id: str
    reason: str
    lost: str | None = None
    """The machine that is no longer reachable, when the run's program was on it."""


class HostReport(Struct, frozen=True):
    """One event of a session's host, translated to our events. The first event carries the host's number."""

    seq: int
    events: tuple[core_events.AnyEvent, ...]


class MirrorRun(Command, frozen=True, kw_only=True):
    """The hub mirrors what a host reported of one of its sessions, in order. Reports that it had before are skipped."""

    host: str
    run_id: str
    """The id of the single run that represents it here."""
    reports: tuple[HostReport, ...]
    opening: tuple[core_events.AnyEvent, ...] = ()
    """The events with which such a session starts when its host never reported its start."""


class MarkHost(Command, frozen=True, kw_only=True):
    """The hub marks that a session's host is silent, or is connected again."""

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


_encoder = msgspec.json.Encoder(order="sorted")


def compute_fingerprint(command: AnyCommand) -> str:
    """Returns the same hash for two commands that request the same thing, whatever the order of their keys."""
    meaning = [command.wire_name, *(getattr(command, name) for name in command.identity_fields)]
    return hashlib.sha256(_encoder.encode(meaning)).hexdigest()


def replay_outcome(receipt: journal.Receipt, command: AnyCommand) -> dict[str, Any]:
    """Returns the first outcome; refuses a command that requests something else under the same key."""
    if receipt.fingerprint != compute_fingerprint(command):
        raise errors.IdentityConflict(receipt.key)
    return receipt.outcome


def issue_receipt(command: AnyCommand, outcome: dict[str, Any], expires_at_ms: int) -> journal.Receipt:
    assert command.idempotency_key is not None, "only a command with an identity has a receipt"
    return journal.Receipt(
        scope=command.session_id,
        key=command.idempotency_key,
        fingerprint=compute_fingerprint(command),
        outcome=outcome,
        expires_at_ms=expires_at_ms,
    )
