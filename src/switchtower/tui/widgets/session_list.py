"""The sessions at the left: filtered by typing, each with its state, workspace, model and age."""

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from switchtower.presentation import formats, safe_text
from switchtower.tui.state import session_rows
from switchtower.tui.widgets.lines import ChoiceList

_STYLES = {"running": "$success", session_rows.WAITING: "bold $warning", "failed": "$error"}


class SessionList(Vertical):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "wish('new')", "New"),
        Binding("r", "wish('rename')", "Rename"),
        Binding("f", "wish('fork')", "Fork"),
        Binding("d,delete", "wish('delete')", "Delete"),
        Binding("slash", "filter", "Filter"),
    ]

    class SessionChosen(Message):
        def __init__(self, session_id: str) -> None:
            super().__init__()
            self.session_id = session_id

    class ActionRequested(Message):
        """The user requests an action on a session. `what` is `new`, `rename`, `fork` or `delete`."""

        def __init__(self, what: str, session_id: str | None) -> None:
            super().__init__()
            self.what = what
            self.session_id = session_id

    class ListClosed(Message):
        """The user pressed Esc."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: Sequence[session_rows.SessionListRow] = ()
        self._drawn: list[tuple[object, ...]] = []
        self._open: str | None = None
        self._now_ms = 0.0

    def compose(self) -> ComposeResult:
        yield Input(placeholder="filter sessions", id="filter", compact=True)
        yield ChoiceList(id="names")
        yield Static("no session yet", id="nobody", markup=False)

    def show(self, rows: Sequence[session_rows.SessionListRow], *, now_ms: float, open_id: str | None) -> None:
        self._rows, self._now_ms, self._open = rows, now_ms, open_id
        self._draw()

    @property
    def selected_id(self) -> str | None:
        option = self.query_one(ChoiceList).highlighted_option
        return option.id if option is not None else None

    def focus_list(self) -> None:
        names = self.query_one(ChoiceList)
        if names.highlighted is None and names.option_count:
            names.highlighted = 0
        names.focus()

    def _draw(self) -> None:
        wanted = self.query_one("#filter", Input).value
        rows = session_rows.filter_rows(self._rows, wanted)
        names = self.query_one(ChoiceList)
        width = max(12, self.size.width - 3)
        looks = [
            (row, formats.format_short_age((self._now_ms - row.updated_ms) / 1000), row.session_id == self._open, width)
            for row in rows
        ]
        nobody = self.query_one("#nobody", Static)
        nobody.display = not rows
        nobody.update("nothing matches" if self._rows else "no session yet")
        if looks == self._drawn:
            return
        self._drawn = list(looks)
        picked, scroll = self.selected_id, names.scroll_y
        names.set_options(
            Option(_paint_session_row(row, age, width, is_open=is_open), id=row.session_id) for row, age, is_open, width in looks
        )
        for index, row in enumerate(rows):
            if row.session_id == (picked or self._open):
                names.highlighted = index
        names.scroll_to(y=scroll, animate=False)

    def on_resize(self, event: events.Resize) -> None:
        self._draw()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._drawn:
            self.focus_list()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_id is not None:
            self.post_message(self.SessionChosen(event.option_id))

    def on_key(self, event: events.Key) -> None:
        field = self.query_one("#filter", Input)
        if event.key == "escape":
            event.stop()
            if field.value:
                field.value = ""
            else:
                self.post_message(self.ListClosed())
        elif event.key == "down" and field.has_focus:
            event.stop()
            self.focus_list()

    def action_filter(self) -> None:
        self.query_one("#filter", Input).focus()

    def action_wish(self, what: str) -> None:
        self.post_message(self.ActionRequested(what, self.selected_id))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # In the filter, the keys of these actions are ordinary letters.
        return not (action in ("wish", "filter") and self.query_one("#filter", Input).has_focus)


def _paint_session_row(row: session_rows.SessionListRow, age: str, width: int, *, is_open: bool) -> Content:
    style = _STYLES.get(row.state, "$muted")
    name = _fit_width(safe_text.to_safe_line(row.name), width - 2 - len(age) - 1)
    gap = " " * max(1, width - 2 - Content(name).cell_length - len(age))
    first = Content.assemble(
        (f"{row.state_mark} ", style), (name, "bold" if is_open or row.is_waiting else ""), gap, (age, "$muted")
    )
    about = [row.state_label if row.is_waiting else "", row.folder, row.model, row.host, f"asks: {row.asks}" if row.asks else ""]
    rest = _fit_width(safe_text.to_safe_line(" · ".join(part for part in about if part)), width - 2)
    return Content.assemble(first, "\n  ", (rest, "$warning" if row.is_waiting else "$muted"))


def _fit_width(text: str, width: int) -> str:
    content = Content(text)
    if content.cell_length <= max(1, width):
        return text
    return content.truncate(max(1, width), ellipsis=True).plain
