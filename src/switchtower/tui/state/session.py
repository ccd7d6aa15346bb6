"""The open session with its transcript and run, the draft of a session that is not started yet, and the status meter. Pure."""

import re
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple, cast

from msgspec import UNSET, Struct

from switchtower import config
from switchtower.client import frames
from switchtower.client.frames import PushEvent
from switchtower.config import POLICIES
from switchtower.presentation import formats, session_details, transcript
from switchtower.presentation.transcript import TranscriptModel
from switchtower.protocols.push import extension_messages, messages

BAR_WIDTH = 10
_NEARLY_FULL = 0.8


class SessionMeter(NamedTuple):
    model: str
    policy: str
    sandbox: str
    spent: str
    context: str
    is_nearly_full: bool


def make_meter(
    about: extension_messages.SessionInfo | None, *, provider: str = "", model: str | None = None, policy: str = ""
) -> SessionMeter:
    """Describes the session; without one, the settings that a new session would start with."""
    if about is None:
        return SessionMeter(model or provider, policy, "", "", "", False)
    if about.terminal is not None:
        return SessionMeter(about.terminal.tool, about.policy, about.sandbox, "", "", False)
    name = about.model or about.provider
    thinking = f" ({about.thinking})" if about.thinking and about.thinking != "off" else ""
    used, window = about.contextTokens, about.contextWindow
    return SessionMeter(
        f"{name}{thinking}",
        about.policy,
        about.sandbox,
        _format_spent(about.usage),
        f"{format_bar(used, window)} {used / window:.0%}"
        if window
        else f"{formats.format_tokens(used)} in context"
        if used
        else "",
        bool(window) and used / (window or 1) >= _NEARLY_FULL,
    )


def _format_spent(usage: extension_messages.Usage) -> str:
    if not usage.calls:
        return ""
    spent = f"↑{formats.format_tokens(usage.inputTokens)} ↓{formats.format_tokens(usage.outputTokens)}"
    if usage.unpricedCalls == usage.calls or not usage.cost:
        return spent
    return f"{spent} {'≥' if usage.unpricedCalls else ''}{formats.format_dollars(usage.cost)}"


def format_bar(used: int, window: int) -> str:
    filled = min(BAR_WIDTH, max(0, round(BAR_WIDTH * used / window))) if window > 0 else 0
    if used > 0 and not filled:
        filled = 1
    return "▰" * filled + "▱" * (BAR_WIDTH - filled)


AUTO: Final = "auto"


class SessionDraft(Struct, frozen=True):
    root: str
    provider: str = AUTO
    model: str | None = None
    policy: messages.PolicyProfile | None = None
    thinking: messages.ThinkingLevel | None = None
    preset: str | None = None

    @classmethod
    def from_settings(cls, settings: config.Settings, root: str) -> "SessionDraft":
        # The configured model belongs to the configured provider. A policy is sent only if the user chose one: the daemon may
        # have been started with something stricter than the default.
        return cls(
            root=root,
            provider=settings.provider,
            model=settings.model if settings.provider != AUTO else None,
            policy=cast(Any, settings.policy) if settings.policy != POLICIES[1] else None,
        )

    def with_preset(self, name: str) -> "SessionDraft":
        """Leaves everything else to the preset, except the strictest policy: no file of a workspace may lift that."""
        return SessionDraft(self.root, policy=self.policy if self.policy == POLICIES[0] else None, preset=name)

    def build_request(
        self, repo: messages.Repo, *, command: str | None = None, size: tuple[int, int] | None = None
    ) -> messages.StartSession:
        """Builds the request; with `command`, for a program in a terminal of this size."""
        if command is not None:
            cols, rows = size or (None, None)
            return messages.StartSession(
                mode="interactive",
                provider="terminal",
                sandboxProvider=AUTO,
                repo=repo,
                metadata={"source": "tui"},
                engine="pty",
                command=command,
                cols=cols,
                rows=rows,
            )
        return messages.StartSession(
            mode="interactive",
            provider=self.provider,
            sandboxProvider=AUTO,
            repo=repo,
            metadata={"source": "tui"},
            model=self.model,
            policy=self.policy,
            thinking=self.thinking,
            preset=self.preset,
            allowDemo=True,
        )


_RESIZE_PATTERN = re.compile(r"(\d{1,4})x(\d{1,4})")


class SessionModel:
    def __init__(self, about: extension_messages.SessionInfo) -> None:
        self.info = about
        self.transcript = TranscriptModel()
        self.run_id = about.activeRunId
        self.running_since_ms: int | None = about.updatedAt if about.activeRunId else None
        self.asking = frames.DialogTracker()
        self._needs_full_screen = True

    @staticmethod
    def make_empty_transcript() -> TranscriptModel:
        return TranscriptModel()

    @property
    def session_id(self) -> str:
        return self.info.sessionId

    @property
    def is_program(self) -> bool:
        return self.info.terminal is not None

    @property
    def is_running(self) -> bool:
        return self.run_id is not None

    def extend(self, events: Iterable[PushEvent]) -> None:
        for event in events:
            self.transcript.extend((event,))
            self.asking.on_event(event)
            match event.payload:
                case messages.Status(_, phase) if phase in session_details.START_PHASES:
                    self.run_id, self.running_since_ms = event.run_id, event.ts
                case messages.RunComplete():
                    self.run_id = self.running_since_ms = None

    def update_info(self, about: extension_messages.SessionInfo) -> None:
        """Stores the daemon's latest details. Whether a run is active is known from the events first."""
        self.info = about
        if about.lastSeq >= self.transcript.last_seq and about.activeRunId is not None and self.run_id is None:
            self.run_id, self.running_since_ms = about.activeRunId, about.updatedAt

    def get_next_dialog(self, but: Collection[str] = ()) -> frames.PushDialog | None:
        return next((dialog for _, dialog in self.asking.dialogs.values() if dialog.dialog_id not in but), None)

    def describe_activity(self) -> str:
        """Describes the current activity in a word or two."""
        for block in reversed(self.transcript.blocks[-30:]):
            match block:
                case transcript.ApprovalBlock() if self.transcript.facts.get_decision(block.approval.approvalId) is None:
                    return "needs approval: Ctrl-T"
                case transcript.ToolBlock(is_open=True):
                    return "runs a tool"
                case transcript.ThinkingBlock(done=False):
                    return "thinks"
                case transcript.AnswerBlock(done=False):
                    return "answers"
                case transcript.UserMessageBlock() | transcript.RunEndBlock():
                    break
        return "works"

    # A program's screen

    def collect_output(self, events: Iterable[PushEvent]) -> str:
        """Returns the program's output. The whole screen is painted once; after that, only new output is added."""
        pieces: list[str] = []
        for event in events:
            match event.payload:
                case messages.Status("tool", "Tool output", str(text)):
                    # Output that starts at the program's beginning needs no repaint.
                    pieces.append(text)
                    self._needs_full_screen = False
                case messages.Status("tool", "Screen", str(text)) if self._needs_full_screen:
                    pieces.append(text)
                    self._needs_full_screen = False
                case messages.Warn("EVENT_GAP"):
                    self._needs_full_screen = True
        return "".join(pieces)

    def find_resize(self, events: Iterable[PushEvent]) -> tuple[int, int] | None:
        """Returns the new size of the program's window if a client has changed it."""
        found = None
        for event in events:
            match event.payload:
                case messages.Status(_, "Terminal resized", detail) if detail is not UNSET:
                    if (parts := _RESIZE_PATTERN.fullmatch(detail)) is not None:
                        found = int(parts[1]), int(parts[2])
        return found
