"""The session that is open: what it said so far, what is known about it, and whether something runs in it. Pure."""

import re
from collections.abc import Collection, Iterable

from msgspec import UNSET

from switchtower.client import dialogs
from switchtower.client.frames import PushEvent
from switchtower.protocols.push import extensions, messages
from switchtower.tui.state import blocks, facts
from switchtower.tui.state.transcript import TranscriptModel

_RESIZE_PATTERN = re.compile(r"(\d{1,4})x(\d{1,4})")


class SessionModel:
    def __init__(self, about: extensions.SessionInfo) -> None:
        self.info = about
        self.transcript = TranscriptModel()
        self.run_id = about.activeRunId
        self.running_since_ms: int | None = about.updatedAt if about.activeRunId else None
        self.asking = dialogs.DialogTracker()
        self._needs_full_screen = True

    @staticmethod
    def make_empty_transcript() -> TranscriptModel:
        """Before anything was said."""
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
                case messages.Status(_, phase) if phase in facts.START_PHASES:
                    self.run_id, self.running_since_ms = event.run_id, event.ts
                case messages.RunComplete():
                    self.run_id = self.running_since_ms = None

    def update_info(self, about: extensions.SessionInfo) -> None:
        """What the daemon says about it now. Whether something runs, the events know first."""
        self.info = about
        if about.lastSeq >= self.transcript.last_seq and about.activeRunId is not None and self.run_id is None:
            self.run_id, self.running_since_ms = about.activeRunId, about.updatedAt

    def get_next_dialog(self, but: Collection[str] = ()) -> dialogs.PushDialog | None:
        return next((dialog for _, dialog in self.asking.dialogs.values() if dialog.dialog_id not in but), None)

    def describe_activity(self) -> str:
        """What is under way, in a word or two."""
        for block in reversed(self.transcript.blocks[-30:]):
            match block:
                case blocks.ApprovalBlock() if self.transcript.facts.get_decision(block.approval.approvalId) is None:
                    return "needs approval: Ctrl-T"
                case blocks.ToolBlock(is_open=True):
                    return "runs a tool"
                case blocks.ThinkingBlock(done=False):
                    return "thinks"
                case blocks.AnswerBlock(done=False):
                    return "answers"
                case blocks.UserMessageBlock() | blocks.RunEndBlock():
                    break
        return "works"

    # A program's screen

    def collect_output(self, events: Iterable[PushEvent]) -> str:
        """What the program has put out. Its whole screen is painted once; then it is kept by what comes."""
        pieces: list[str] = []
        for event in events:
            match event.payload:
                case messages.Status("tool", "Tool output", str(text)):
                    # Where the output begins at the beginning, no repaint is needed.
                    pieces.append(text)
                    self._needs_full_screen = False
                case messages.Status("tool", "Screen", str(text)) if self._needs_full_screen:
                    pieces.append(text)
                    self._needs_full_screen = False
                case messages.Warn("EVENT_GAP"):
                    self._needs_full_screen = True
        return "".join(pieces)

    def find_resize(self, events: Iterable[PushEvent]) -> tuple[int, int] | None:
        """The program's window, where somebody has changed it."""
        found = None
        for event in events:
            match event.payload:
                case messages.Status(_, "Terminal resized", detail) if detail is not UNSET:
                    if (parts := _RESIZE_PATTERN.fullmatch(detail)) is not None:
                        found = int(parts[1]), int(parts[2])
        return found
