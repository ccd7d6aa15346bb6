"""The screen for one approval, with exactly what will run and the keys that decide, and the inbox of all pending approvals.

A key that was meant for something else must not decide. Keys count only after a moment without typing, a key that decides nothing
disarms the screen again, and a decision key that another key follows at once was part of a word. "Always" and the approval of a
destructive action need a second, different key that no text contains.
"""

from collections.abc import Callable
from typing import ClassVar

from rich.console import Group
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option

from switchtower.presentation import approval_text, safe_text
from switchtower.presentation.approval_text import ApprovalChoice
from switchtower.tui.paint import palette
from switchtower.tui.state.session_rows import ApprovalInbox, InboxItem
from switchtower.tui.widgets.lines import ChoiceList

QUIET_SECONDS = 0.6
"""Seconds without a keystroke after which keys decide."""
_DISARM_FACTOR = 5 / 3
"""The time for which a key that decides nothing disarms the screen, as a multiple of the quiet time: one second."""
_SETTLE_FACTOR = 1 / 2
"""The time within which another key makes a decision key part of a word, as a multiple of the quiet time."""


_DECISION_KEYS = frozenset({"y", "a", "n", "d", "ctrl+y", "escape"})
"""The keys that decide. Every other key disarms the screen, even one that scrolls."""


class ApprovalScreen(ModalScreen[ApprovalChoice | None]):
    """Returns the decision, or None when the user defers it."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "decide('yes')", "Yes"),
        Binding("a", "decide('always')", "Always"),
        Binding("n", "decide('no')", "No"),
        Binding("d", "decide('stop')", "Deny and stop"),
        Binding("ctrl+y", "confirm", "Confirm", show=False),
        Binding("escape", "later", "Later"),
        Binding("down,j", "scroll(1)", "Down", show=False),
        Binding("up,k", "scroll(-1)", "Up", show=False),
        Binding("pagedown,space", "scroll(10)", "Page down", show=False),
        Binding("pageup", "scroll(-10)", "Page up", show=False),
    ]

    def __init__(
        self, pending: InboxItem, *, now_ms: Callable[[], float], waiting: int = 1, quiet: float = QUIET_SECONDS
    ) -> None:
        super().__init__(id="approval-screen")
        self.pending = pending
        self._now_ms = now_ms
        self._waiting = waiting
        self._quiet = quiet
        self._armed = quiet <= 0
        self._was_armed = self._armed
        self._arm_timer: Timer | None = None
        self._decision_timer: Timer | None = None
        self._unconfirmed: str | None = None
        """The decision that waits for its second key."""
        self._rule = approval_text.format_safe_always_rule(pending.approval)
        self._can_approve = "approve" in pending.approval.options

    def compose(self) -> ComposeResult:
        approval = self.pending.approval
        with Vertical(id="approval"):
            yield Static(self._paint_head(), id="approval-head", markup=False)
            with VerticalScroll(id="approval-body", can_focus=False):
                yield Static(self._paint_body(), id="approval-details", markup=False)
            if self._rule is not None:
                always = Content.assemble(("always for this session: ", "$muted"), self._rule)
                yield Static(always, id="approval-rule", markup=False)
            yield Static(
                "Reason for the denial (optional). Enter sends it, Esc goes back.", id="approval-why-label", markup=False
            )
            yield Input(id="approval-why", compact=True)
            with Horizontal(id="approval-keys"):
                if self._can_approve:
                    yield Button("y  Approve", id="yes", variant="success", compact=True)
                if self._can_approve and self._rule is not None:
                    yield Button("a  Always", id="always", variant="primary", compact=True)
                yield Button("n  Deny", id="no", variant="warning", compact=True)
                yield Button("d  Deny and stop", id="stop", variant="error", compact=True)
            with Horizontal(id="approval-confirm"):
                yield Button("Esc  Go back", id="back", compact=True)
                yield Static(self._describe_question(), id="approval-question", markup=False)
                yield Button("Ctrl-Y  Confirm", id="confirm", variant="error", compact=True)
            yield Static("", id="approval-foot", markup=False)
        self.set_class(approval_text.is_destructive(approval), "destructive")

    def on_mount(self) -> None:
        self._ask_reason(False)
        self._show_confirmation(None)
        self._draw_foot()
        self.set_interval(1.0, self._draw_foot)
        self._arm_later(self._quiet)

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit_details)

    def _fit_details(self) -> None:
        """Gives the details the height that the rest leaves: the keys and the countdown are always visible."""
        if not self._is_composed:
            return
        body = self.query_one("#approval-body")
        others = sum(
            child.outer_size.height + child.styles.margin.height
            for child in self.query_one("#approval").children
            if child is not body
        )
        body.styles.max_height = max(3, self.size.height - others - 2)
        self.call_after_refresh(self._draw_foot)

    def _paint_head(self) -> Content:
        approval = self.pending.approval
        where = " on ".join(part for part in (self.pending.session_name, self.pending.host) if part)
        return Content.assemble(
            ("◆ ", "bold $warning"),
            (safe_text.escape_exact_line(approval.title), "bold"),
            (f"  in {safe_text.to_safe_line(where)}" if where else "", "$muted"),
            "\n" if approval.summary else "",
            safe_text.escape_exact_line(approval.summary),
            ("\nDESTRUCTIVE: what this removes or overwrites may not come back", "bold $error")
            if approval_text.is_destructive(approval)
            else "",
        )

    def _paint_body(self) -> Group:
        """Marks every line of a value, so that no content can imitate a line of the user interface."""
        paint = palette.DARK if self.app.current_theme.dark else palette.LIGHT
        lines: list[Text] = []
        for part in approval_text.list_details(self.pending.approval):
            if part.kind == "diff":
                shown = list(palette.paint_diff(part.text))
            elif part.kind == "command":
                rows = part.text.split("\n")
                shown = [Text.assemble(("$ " if not at else "  ", "accent"), (row, "name")) for at, row in enumerate(rows)]
            elif part.kind == "text":
                shown = [Text(row) for row in part.text.split("\n")]
            else:
                lines.append(Text.assemble((f"{safe_text.to_safe_line(part.name)}: ", "dim"), part.text))
                continue
            if part.kind != "command":
                lines.append(Text(f"{safe_text.to_safe_line(part.name)}:", "dim"))
            lines += [Text("│ ", "faint").append_text(line) for line in shown]
        # The style names belong to this palette; the app's own console does not know them.
        return Group(*(_resolve_styles(line, paint) for line in lines))

    @property
    def _is_composed(self) -> bool:
        """True while all children exist: a timer may still fire while the screen is being removed."""
        return bool(self.query("#approval-foot")) and bool(self.query("#approval-body"))

    def _draw_foot(self) -> None:
        if not self._is_composed:
            return
        left = self.pending.seconds_left(self._now_ms())
        more = f"  ·  {self._waiting - 1} more waiting" if self._waiting > 1 else ""
        ready = "" if self._armed else "  ·  keys are off while you type"
        body = self.query_one("#approval-body")
        below = "  ·  ↓ more below" if body.scroll_y < body.max_scroll_y else ""
        text = f"{approval_text.format_countdown(left)}  ·  Esc: decide later{below}{more}{ready}"
        self.query_one("#approval-foot", Static).update(Content.styled(text, "bold $error" if left < 60 else "$muted"))

    # Arming the keys

    def _arm_later(self, seconds: float) -> None:
        if self._quiet <= 0:
            return
        self._armed = False
        if self._arm_timer is not None:
            self._arm_timer.stop()
        self._arm_timer = self.set_timer(seconds, self.arm)

    def arm(self) -> None:
        """Lets keys decide."""
        self._armed = self._was_armed = True
        self._draw_foot()

    def on_key(self, event: events.Key) -> None:
        if self._is_giving_reason:
            return
        is_part_of_a_word = self._decision_timer is not None
        is_early = not self._armed and not (event.key == "escape" and self._was_armed)
        if is_part_of_a_word or is_early:
            event.stop()
            event.prevent_default()
        if is_part_of_a_word or not self._armed or event.key not in _DECISION_KEYS:
            self._revoke_choice()
            self._arm_later(self._quiet * (1 if event.key in _DECISION_KEYS else _DISARM_FACTOR))
            self._draw_foot()

    # Deciding

    def action_decide(self, how: str) -> None:
        """Handles a key that chose `how`. The choice counts when no other key follows at once."""
        if not self._armed or self._is_giving_reason or self._unconfirmed is not None:
            return
        if self._quiet <= 0:
            self._choose(how)
        else:
            self._decision_timer = self.set_timer(self._quiet * _SETTLE_FACTOR, lambda: self._apply_choice(how))

    def _apply_choice(self, how: str) -> None:
        self._decision_timer = None
        self._choose(how)

    def _revoke_choice(self) -> None:
        if self._decision_timer is not None:
            self._decision_timer.stop()
            self._decision_timer = None

    def _choose(self, how: str) -> None:
        needs_confirmation = how == "always" or (how == "yes" and approval_text.is_destructive(self.pending.approval))
        if how in ("yes", "always") and not self._can_approve:
            self.notify("This can only be denied here; approve it in its terminal.", severity="warning", markup=False)
        elif how == "always" and self._rule is None:
            self.notify("This action is asked about every time; no rule can allow it.", severity="warning", markup=False)
        elif needs_confirmation:
            self._show_confirmation(how)
        else:
            self._decide(how)

    def _decide(self, how: str) -> None:
        match how:
            case "yes":
                self.dismiss(approval_text.APPROVE_ONCE)
            case "always":
                self.dismiss(approval_text.APPROVE_FOR_SESSION)
            case "stop":
                self.dismiss(approval_text.DENY_AND_STOP)
            case "no":
                self._ask_reason(True)

    def _describe_question(self) -> Content:
        if self._unconfirmed == "always":
            return Content("Allow this rule for the rest of the session?")
        return Content("Approve an action that cannot be undone?")

    def _show_confirmation(self, how: str | None) -> None:
        self._unconfirmed = how
        self.query_one("#approval-confirm").display = how is not None
        self.query_one("#approval-keys").display = how is None
        if how is not None:  # on a busy machine the screen mounts before its children, which then compose the question themselves
            self.query_one("#approval-question", Static).update(self._describe_question())
        self.call_after_refresh(self._fit_details)

    def action_confirm(self) -> None:
        if self._armed and self._unconfirmed is not None:
            self._decide(self._unconfirmed)

    @property
    def _is_giving_reason(self) -> bool:
        return bool(self.query_one("#approval-why").display)

    def _ask_reason(self, asked: bool) -> None:
        self.query_one("#approval-why-label").display = asked
        why = self.query_one("#approval-why", Input)
        why.display = asked
        if asked:
            why.focus()
        else:
            self.set_focus(None)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        match event.button.id:
            case "back":
                self._show_confirmation(None)
            case "confirm" if self._unconfirmed is not None:
                self._decide(self._unconfirmed)
            case str(how):
                self._choose(how)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(approval_text.make_denial(event.value))

    def action_later(self) -> None:
        if self._is_giving_reason:
            self._ask_reason(False)
        elif self._unconfirmed is not None:
            self._show_confirmation(None)
        else:
            self.dismiss(None)

    def action_scroll(self, lines: int) -> None:
        self.query_one("#approval-body").scroll_relative(y=lines, animate=False)
        self.call_after_refresh(self._draw_foot)


def _resolve_styles(line: Text, paint: palette.Palette) -> Text:
    resolved = Text(line.plain, style=paint.console.get_style(line.style, default=""))
    for span in line.spans:
        resolved.stylize(paint.console.get_style(span.style, default=""), span.start, span.end)
    return resolved


class InboxScreen(ModalScreen[str | None]):
    """Lists all pending approvals and returns the id of the one that the user opens."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", "Back")]

    def __init__(self, inbox: ApprovalInbox, *, now_ms: Callable[[], float]) -> None:
        super().__init__()
        self._inbox = inbox
        self._now_ms = now_ms
        self._drawn: list[str] = []

    def compose(self) -> ComposeResult:
        with Vertical(id="inbox"):
            yield Static("Waiting for a decision", id="inbox-title", markup=False)
            yield ChoiceList()
            yield Static("nothing waits for you", id="inbox-empty", markup=False)
            yield Static("Enter looks at it, Esc goes back", id="inbox-foot", markup=False)

    def on_mount(self) -> None:
        self.refresh_list()
        self.set_interval(1.0, self.refresh_list)

    def on_resize(self) -> None:
        self.call_after_refresh(self.refresh_list)

    def refresh_list(self) -> None:
        if not self.query("#inbox-empty") or not self.query(OptionList):
            return  # the screen is being removed
        options = self.query_one(OptionList)
        pending = self._inbox.pending
        self.query_one("#inbox-empty").display = not pending
        options.display = bool(pending)
        if [one.id for one in pending] == self._drawn:
            for one in pending:
                options.replace_option_prompt(one.id, self._paint_item(one))
            return
        self._drawn = [one.id for one in pending]
        at = options.highlighted or 0
        options.set_options(Option(self._paint_item(one), id=one.id) for one in pending)
        if pending:
            options.highlighted = min(at, len(pending) - 1)
            options.focus()

    def _paint_item(self, one: InboxItem) -> Content:
        left = one.seconds_left(self._now_ms())
        command = next((part.text for part in approval_text.list_details(one.approval) if part.kind == "command"), None)
        about = Content(" ".join((command or safe_text.escape_exact(one.approval.summary)).split()))
        room = max(20, self.query_one("#inbox").size.width - 8)
        where = " on ".join(safe_text.to_safe_line(part) for part in (one.session_name or one.session_id, one.host) if part)
        return Content.assemble(
            ("◆ ", "bold $warning"),
            (safe_text.escape_exact_line(one.approval.title), "bold"),
            (f"  {where}", "$muted"),
            (f"  {approval_text.format_countdown(left)}", "$error" if left < 60 else "$muted"),
            "\n  ",
            about.truncate(room, ellipsis=True),
        )

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)
