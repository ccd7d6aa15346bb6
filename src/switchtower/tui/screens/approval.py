"""An approval, before everything else: what will run, exactly, and the keys that decide it.

Keys that were meant for something else must not decide: they count only after a moment in which nothing was typed.
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
from textual.widgets import Button, Input, Static

from switchtower.tui.paint import diffs, palette
from switchtower.tui.state import decisions, harmless
from switchtower.tui.state.decisions import Decision
from switchtower.tui.state.inbox import Pending

QUIET = 0.6
"""Seconds without a key after which keys decide."""


class ApprovalScreen(ModalScreen[Decision | None]):
    """Ends with the decision, or with None when it is put aside."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "decide('yes')", "Yes"),
        Binding("a", "decide('always')", "Always"),
        Binding("n", "decide('no')", "No"),
        Binding("d", "decide('stop')", "Deny and stop"),
        Binding("escape", "later", "Later"),
        Binding("down,j", "scroll(1)", "Down", show=False),
        Binding("up,k", "scroll(-1)", "Up", show=False),
        Binding("pagedown,space", "scroll(10)", "Page down", show=False),
        Binding("pageup", "scroll(-10)", "Page up", show=False),
    ]

    def __init__(self, pending: Pending, *, now_ms: Callable[[], float], waiting: int = 1, quiet: float = QUIET) -> None:
        super().__init__(id="approval-screen")
        self.pending = pending
        self._now_ms = now_ms
        self._waiting = waiting
        self._quiet = quiet
        self._armed = quiet <= 0
        self._arming: Timer | None = None
        self._rule = decisions.always_rule(pending.approval)

    def compose(self) -> ComposeResult:
        approval = self.pending.approval
        with Vertical(id="approval"):
            yield Static(self._head(), id="approval-head", markup=False)
            with VerticalScroll(id="approval-body", can_focus=False):
                yield Static(self._body(), id="approval-details", markup=False)
            if self._rule is not None:
                always = Content.assemble(("always for this session: ", "$muted"), self._rule)
                yield Static(always, id="approval-rule", markup=False)
            yield Input(placeholder="why not? Enter sends, empty is fine; Esc goes back", id="approval-why", compact=True)
            with Horizontal(id="approval-keys"):
                yield Button("y  yes, once", id="yes", variant="success", compact=True)
                if self._rule is not None:
                    yield Button("a  always", id="always", variant="primary", compact=True)
                yield Button("n  no, go on", id="no", variant="warning", compact=True)
                yield Button("d  deny, stop", id="stop", variant="error", compact=True)
            yield Static("", id="approval-foot", markup=False)
        self.set_class(decisions.is_destructive(approval), "destructive")

    def on_mount(self) -> None:
        self.query_one("#approval-why").display = False
        self._draw_foot()
        self.set_interval(1.0, self._draw_foot)
        self._arm_later()

    def on_resize(self) -> None:
        self.call_after_refresh(self._make_room)

    def _make_room(self) -> None:
        """The details get what the rest leaves: the keys and the countdown are always in view."""
        if not self._is_whole:
            return
        body = self.query_one("#approval-body")
        others = sum(
            child.outer_size.height + child.styles.margin.height
            for child in self.query_one("#approval").children
            if child is not body
        )
        body.styles.max_height = max(3, self.size.height - others - 2)
        self.call_after_refresh(self._draw_foot)

    def _head(self) -> Content:
        approval = self.pending.approval
        where = " on ".join(part for part in (self.pending.session_name, self.pending.host) if part)
        return Content.assemble(
            ("◆ ", "bold $warning"),
            (harmless.line(approval.title), "bold"),
            (f"  in {harmless.line(where)}" if where else "", "$muted"),
            "\n" if approval.summary else "",
            harmless.line(approval.summary),
            ("\nDESTRUCTIVE: what this removes or overwrites may not come back", "bold $error")
            if decisions.is_destructive(approval)
            else "",
        )

    def _body(self) -> Group:
        """Every line of a value is marked, so that nothing inside of it can pass for one of ours."""
        paint = palette.DARK if self.app.current_theme.dark else palette.LIGHT
        lines: list[Text] = []
        for part in decisions.parts(self.pending.approval):
            if part.kind == "diff":
                shown = list(diffs.lines(part.text))
            elif part.kind == "command":
                rows = part.text.split("\n")
                shown = [Text.assemble(("$ " if not at else "  ", "accent"), (row, "name")) for at, row in enumerate(rows)]
            elif part.kind == "text":
                shown = [Text(row) for row in part.text.split("\n")]
            else:
                lines.append(Text.assemble((f"{harmless.line(part.name)}: ", "dim"), part.text))
                continue
            if part.kind != "command":
                lines.append(Text(f"{harmless.line(part.name)}:", "dim"))
            lines += [Text("│ ", "faint").append_text(line) for line in shown]
        # Styles by name are this palette's; the app's own console does not know them.
        return Group(*(_resolved(line, paint) for line in lines))

    @property
    def _is_whole(self) -> bool:
        """A timer may still go off while the screen is being taken away."""
        return bool(self.query("#approval-foot")) and bool(self.query("#approval-body"))

    def _draw_foot(self) -> None:
        if not self._is_whole:
            return
        left = self.pending.seconds_left(self._now_ms())
        more = f"  ·  {self._waiting - 1} more waiting" if self._waiting > 1 else ""
        ready = "" if self._armed else "  ·  keys count in a moment"
        body = self.query_one("#approval-body")
        below = "  ·  ↓ there is more to see" if body.scroll_y < body.max_scroll_y else ""
        text = f"{decisions.countdown(left)}  ·  Esc decides later{below}{more}{ready}"
        self.query_one("#approval-foot", Static).update(Content.styled(text, "bold $error" if left < 60 else "$muted"))

    # When keys count

    def _arm_later(self) -> None:
        if self._armed:
            return
        if self._arming is not None:
            self._arming.stop()
        self._arming = self.set_timer(self._quiet, self._arm)

    def _arm(self) -> None:
        self._armed = True
        self._draw_foot()

    def on_key(self, event: events.Key) -> None:
        if not self._armed:
            event.stop()
            event.prevent_default()
            self._arm_later()

    # Deciding

    def action_decide(self, how: str) -> None:
        if not self._armed or self.query_one("#approval-why").display:
            return
        self._decide(how)

    def _decide(self, how: str) -> None:
        match how:
            case "yes":
                self.dismiss(decisions.YES)
            case "always" if self._rule is not None:
                self.dismiss(decisions.ALWAYS)
            case "stop":
                self.dismiss(decisions.DENY_AND_STOP)
            case "no":
                why = self.query_one("#approval-why", Input)
                why.display = True
                why.focus()
            case _:
                self.notify(
                    "this is asked each time anew: there is no rule that would allow it", severity="warning", markup=False
                )

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self._decide(event.button.id or "")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(decisions.no(event.value))

    def action_later(self) -> None:
        why = self.query_one("#approval-why", Input)
        if why.display:
            why.display = False
            self.set_focus(None)
        elif self._armed:
            self.dismiss(None)

    def action_scroll(self, lines: int) -> None:
        self.query_one("#approval-body").scroll_relative(y=lines, animate=False)
        self.call_after_refresh(self._draw_foot)


def _resolved(line: Text, paint: palette.Palette) -> Text:
    resolved = Text(line.plain, style=paint.console.get_style(line.style, default=""))
    for span in line.spans:
        resolved.stylize(paint.console.get_style(span.style, default=""), span.start, span.end)
    return resolved
