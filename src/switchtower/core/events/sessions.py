"""The lifecycle of a session: started, configured, loaded or unloaded, deleted; and the host of a session that lives on
another one.
"""

from typing import Any, ClassVar

from msgspec import field

from switchtower.core.events.values import Actor, Approval, Budget, Event, Flow, Preset, Program, SessionState, Workspace


class SessionStarted(Event, frozen=True):
    kind: ClassVar[str] = "session.started"
    engine: str
    mode: str
    provider: str
    sandbox: str
    workspace: Workspace
    by: Actor
    attach_token_sha256: str
    model: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    policy: str = "ask"
    thinking: str | None = None
    budget: Budget = Budget()
    parent: str | None = None
    """The session whose conversation it started with, or whose run has started it."""
    parent_run: str | None = None
    """The run that started it, when a process of a run did."""
    preset: Preset | None = None
    program: Program | None = None
    """The program in its terminal, when it has one."""
    host: str | None = None
    """The host that it lives on, when that is not this daemon."""
    flow: Flow | None = None
    """The flow that it runs, when it is one."""
    alias: str | None = None
    """The id chosen by the client that started it, in a protocol whose clients choose ids. Only that protocol shows it."""


class SessionLoaded(Event, frozen=True):
    """A client wants the session loaded. Its version counts from 0 again."""

    kind: ClassVar[str] = "session.loaded"
    by: Actor


class SessionUnloaded(Event, frozen=True):
    """No client needs the session loaded any more. Everything stays in the journal."""

    kind: ClassVar[str] = "session.unloaded"
    by: Actor


class SessionDeleted(Event, frozen=True):
    """The last event of a session: from here on it is not found, and the journal removes its entries."""

    kind: ClassVar[str] = "session.deleted"
    by: Actor
    exit_code: int | None = None
    """The exit code of the program in its terminal, when it had ended."""


class VersionAdvanced(Event, frozen=True):
    """A command has changed the session, by the rules of a protocol that counts versions itself."""

    kind: ClassVar[str] = "session.version"
    by: Actor
    command: str


class SessionConfigured(Event, frozen=True):
    """A client changed how the session works from its next run on. None leaves a setting unchanged."""

    kind: ClassVar[str] = "session.configured"
    by: Actor
    provider: str | None = None
    model: str | None = None
    policy: str | None = None
    thinking: str | None = None
    title: str | None = None
    auto_compact: bool | None = None
    auto_retry: bool | None = None


class SessionResumed(Event, frozen=True):
    """The summary that a push client requested. Journals of earlier versions have it; now only that client gets one."""

    kind: ClassVar[str] = "session.resumed"
    by: Actor
    state: SessionState
    provider: str
    sandbox: str
    active_run_id: str | None = None
    last_assistant_text: str = ""
    pending_approval: Approval | None = None


class HostLost(Event, frozen=True):
    """The host that the session lives on has been silent for too long: the state of the session is unknown."""

    kind: ClassVar[str] = "host.lost"
    host: str


class HostReturned(Event, frozen=True):
    kind: ClassVar[str] = "host.returned"
    host: str


class HostEventReceived(Event, frozen=True):
    """An event of another host that we have no type for. It is forwarded unchanged; without a type only its number counts."""

    kind: ClassVar[str] = "host.said"
    type: str
    data: dict[str, Any]
