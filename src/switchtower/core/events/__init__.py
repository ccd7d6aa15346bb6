"""The events: everything that can happen in a session, in the past tense. The journal holds these and nothing else.

Each event has a short `kind`, the name it is stored under. Kinds never change: a field may be added with a default, never
renamed or removed. Whether an event may be pruned is part of its definition here.
"""

from switchtower.core.events.messages import ApprovalDecided as ApprovalDecided
from switchtower.core.events.messages import ApprovalExpired as ApprovalExpired
from switchtower.core.events.messages import ApprovalRequested as ApprovalRequested
from switchtower.core.events.messages import ApprovalWithdrawn as ApprovalWithdrawn
from switchtower.core.events.messages import ConversationCleared as ConversationCleared
from switchtower.core.events.messages import DialogAnswered as DialogAnswered
from switchtower.core.events.messages import DialogClosed as DialogClosed
from switchtower.core.events.messages import DialogOpened as DialogOpened
from switchtower.core.events.messages import MessageCompleted as MessageCompleted
from switchtower.core.events.messages import MessageDelivered as MessageDelivered
from switchtower.core.events.messages import MessageImported as MessageImported
from switchtower.core.events.messages import MessageQueued as MessageQueued
from switchtower.core.events.messages import MessageWithdrawn as MessageWithdrawn
from switchtower.core.events.messages import PromptExpanded as PromptExpanded
from switchtower.core.events.messages import TextDelta as TextDelta
from switchtower.core.events.messages import ThinkingDelta as ThinkingDelta
from switchtower.core.events.runs import RUN_INTERRUPTED as RUN_INTERRUPTED
from switchtower.core.events.runs import CompactionFailed as CompactionFailed
from switchtower.core.events.runs import CompactionStarted as CompactionStarted
from switchtower.core.events.runs import ContextCompacted as ContextCompacted
from switchtower.core.events.runs import ErrorRaised as ErrorRaised
from switchtower.core.events.runs import PhaseChanged as PhaseChanged
from switchtower.core.events.runs import RetryEnded as RetryEnded
from switchtower.core.events.runs import RetryScheduled as RetryScheduled
from switchtower.core.events.runs import RunCancelRequested as RunCancelRequested
from switchtower.core.events.runs import RunCompleted as RunCompleted
from switchtower.core.events.runs import RunStarted as RunStarted
from switchtower.core.events.runs import StepStopped as StepStopped
from switchtower.core.events.runs import UsageReported as UsageReported
from switchtower.core.events.runs import WarningRaised as WarningRaised
from switchtower.core.events.sessions import HostEventReceived as HostEventReceived
from switchtower.core.events.sessions import HostLost as HostLost
from switchtower.core.events.sessions import HostReturned as HostReturned
from switchtower.core.events.sessions import SessionConfigured as SessionConfigured
from switchtower.core.events.sessions import SessionDeleted as SessionDeleted
from switchtower.core.events.sessions import SessionLoaded as SessionLoaded
from switchtower.core.events.sessions import SessionResumed as SessionResumed
from switchtower.core.events.sessions import SessionStarted as SessionStarted
from switchtower.core.events.sessions import SessionUnloaded as SessionUnloaded
from switchtower.core.events.sessions import VersionAdvanced as VersionAdvanced
from switchtower.core.events.tools import CheckpointTaken as CheckpointTaken
from switchtower.core.events.tools import PromptCleared as PromptCleared
from switchtower.core.events.tools import PromptShown as PromptShown
from switchtower.core.events.tools import RemoteCallFinished as RemoteCallFinished
from switchtower.core.events.tools import RemoteCallStarted as RemoteCallStarted
from switchtower.core.events.tools import ScreenCaptured as ScreenCaptured
from switchtower.core.events.tools import ShellCancelRequested as ShellCancelRequested
from switchtower.core.events.tools import ShellFinished as ShellFinished
from switchtower.core.events.tools import ShellStarted as ShellStarted
from switchtower.core.events.tools import TerminalEchoChanged as TerminalEchoChanged
from switchtower.core.events.tools import TerminalKeysTyped as TerminalKeysTyped
from switchtower.core.events.tools import TerminalResized as TerminalResized
from switchtower.core.events.tools import TerminalTyped as TerminalTyped
from switchtower.core.events.tools import ToolCalled as ToolCalled
from switchtower.core.events.tools import ToolFinished as ToolFinished
from switchtower.core.events.tools import ToolProgressed as ToolProgressed
from switchtower.core.events.tools import WorkspaceRestored as WorkspaceRestored
from switchtower.core.events.values import CANNOT_APPROVE as CANNOT_APPROVE
from switchtower.core.events.values import SYSTEM as SYSTEM
from switchtower.core.events.values import Actor as Actor
from switchtower.core.events.values import Approval as Approval
from switchtower.core.events.values import Budget as Budget
from switchtower.core.events.values import Claim as Claim
from switchtower.core.events.values import Criterion as Criterion
from switchtower.core.events.values import CriterionResult as CriterionResult
from switchtower.core.events.values import Delivery as Delivery
from switchtower.core.events.values import Dialog as Dialog
from switchtower.core.events.values import Event as Event
from switchtower.core.events.values import Flow as Flow
from switchtower.core.events.values import Image as Image
from switchtower.core.events.values import Outcome as Outcome
from switchtower.core.events.values import Preset as Preset
from switchtower.core.events.values import Program as Program
from switchtower.core.events.values import Purpose as Purpose
from switchtower.core.events.values import Relayed as Relayed
from switchtower.core.events.values import Rule as Rule
from switchtower.core.events.values import SessionState as SessionState
from switchtower.core.events.values import ToolError as ToolError
from switchtower.core.events.values import ToolRequest as ToolRequest
from switchtower.core.events.values import Verdict as Verdict
from switchtower.core.events.values import Workspace as Workspace

AnyEvent = (
    SessionStarted
    | SessionLoaded
    | SessionUnloaded
    | SessionDeleted
    | VersionAdvanced
    | SessionResumed
    | SessionConfigured
    | RunStarted
    | MessageQueued
    | MessageDelivered
    | MessageWithdrawn
    | PromptExpanded
    | ConversationCleared
    | MessageImported
    | ShellStarted
    | ShellCancelRequested
    | ShellFinished
    | PhaseChanged
    | ThinkingDelta
    | TextDelta
    | MessageCompleted
    | ToolCalled
    | ToolProgressed
    | ToolFinished
    | UsageReported
    | RetryScheduled
    | RetryEnded
    | CompactionStarted
    | ContextCompacted
    | CompactionFailed
    | CheckpointTaken
    | WorkspaceRestored
    | TerminalTyped
    | TerminalKeysTyped
    | TerminalResized
    | TerminalEchoChanged
    | PromptShown
    | PromptCleared
    | ScreenCaptured
    | RemoteCallStarted
    | RemoteCallFinished
    | HostLost
    | HostReturned
    | HostEventReceived
    | StepStopped
    | DialogOpened
    | DialogAnswered
    | DialogClosed
    | ApprovalRequested
    | ApprovalDecided
    | ApprovalExpired
    | ApprovalWithdrawn
    | WarningRaised
    | ErrorRaised
    | RunCancelRequested
    | RunCompleted
)

BY_KIND: dict[str, type[AnyEvent]] = {event_type.kind: event_type for event_type in AnyEvent.__args__}
