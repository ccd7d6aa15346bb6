"""All that waits for a decision, over all sessions and hosts."""

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from switchtower.tui.state import decisions, harmless
from switchtower.tui.state.inbox import ApprovalInbox, InboxItem
from switchtower.tui.widgets.choices import ChoiceList


class InboxScreen(ModalScreen[str | None]):
    """Ends with the id of the approval that somebody wants to see."""

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
            return  # it is being taken away
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
        command = next((part.text for part in decisions.list_details(one.approval) if part.kind == "command"), None)
        about = Content(" ".join((command or harmless.escape_exact(one.approval.summary)).split()))
        room = max(20, self.query_one("#inbox").size.width - 8)
        where = " on ".join(harmless.to_safe_line(part) for part in (one.session_name or one.session_id, one.host) if part)
        return Content.assemble(
            ("◆ ", "bold $warning"),
            (harmless.escape_exact_line(one.approval.title), "bold"),
            (f"  {where}", "$muted"),
            (f"  {decisions.format_countdown(left)}", "$error" if left < 60 else "$muted"),
            "\n  ",
            about.truncate(room, ellipsis=True),
        )

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)
