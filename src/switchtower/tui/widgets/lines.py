"""The lines above and below: the session, the connection to the daemon, pending approvals, and usage.

A list whose selected line is visible without colour too. Its entries are never interpreted as markup."""

from rich.style import Style
from textual.content import Content
from textual.message import Message
from textual.strip import Strip
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from switchtower.presentation import formats, safe_text
from switchtower.tui.paint.blocks import SPINNER
from switchtower.tui.state import session

_REVERSED = Style(reverse=True)


class ChoiceList(OptionList):
    def __init__(self, *options: Option, id: str | None = None) -> None:
        super().__init__(*options, id=id, markup=False)

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        # https://no-color.org: the selection must be visible without colour.
        if self.app.no_color and self._is_chosen(y):
            return strip.apply_style(_REVERSED)
        return strip

    def _is_chosen(self, y: int) -> bool:
        line = self.scroll_offset.y + y
        return line < len(self._lines) and self._lines[line][0] == self.highlighted


_LINKS = {"connected": ("●", "$success"), "connecting": ("◌", "$warning"), "lost": ("○", "$error")}


class TopLine(Static):
    """The session's name, and the facts that the user must see in every view."""

    class InboxRequested(Message):
        pass

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._state: tuple[str, str, str, str, int] | None = None

    def show(self, *, name: str, where: str, link: str, reason: str, waiting: int) -> None:
        state = (name, where, link, reason, waiting)
        if state == self._state:
            return
        self._state = state
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        if self._state is None:
            return
        name, where, link, reason, waiting = self._state
        sign, style = _LINKS[link]
        said = {"connected": "connected", "connecting": "connecting…", "lost": f"daemon away{', ' + reason if reason else ''}"}[
            link
        ]
        right = Content.assemble(
            (f" ◆ {waiting} waiting ", "bold $text-warning on $warning-muted") if waiting else "",
            " ",
            (sign, style),
            (f" {said} ", style),
        )
        right = right.truncate(max(10, self.size.width - 12), ellipsis=True)
        left = Content.assemble(
            (" Switchtower ", "bold"), (safe_text.to_safe_line(name), ""), (f"  {safe_text.to_safe_line(where)}", "$muted")
        )
        room = self.size.width - right.cell_length - 1
        if left.cell_length > room:
            left = left.truncate(max(1, room), ellipsis=True)
        self.update(Content.assemble(left, " " * max(1, self.size.width - left.cell_length - right.cell_length), right))

    def on_click(self) -> None:
        if self._state is not None and self._state[4]:
            self.post_message(self.InboxRequested())


class StatusLine(Static):
    """The active run with its duration, and the meter."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)

    def show(self, what: session.SessionMeter, *, running_seconds: float | None, note: str, queued: int, beat: int) -> None:
        if running_seconds is not None:
            left = Content.assemble(
                (f" {SPINNER[beat % len(SPINNER)]} ", "$accent"),
                (f"{formats.format_clock(running_seconds)} ", ""),
                (note or "working", ""),
                ("  Esc cancels", "$muted"),
            )
        else:
            left = Content.assemble((f" {note}" if note else "", "$muted"))
        if queued:
            left = Content.assemble(left, (f"  {formats.format_count(queued, 'message')} queued", "$warning"))
        parts: list[tuple[str, str]] = [
            (safe_text.to_safe_line(what.model), ""),
            (what.policy, "bold $error" if what.policy == "yolo" else "$muted"),
            (what.sandbox, "$muted"),
            (what.spent, "$muted"),
            (what.context, "$warning" if what.is_nearly_full else "$muted"),
        ]
        right = Content("  ").join([Content.styled(text, style) for text, style in parts if text])
        width = self.size.width
        if left.cell_length + right.cell_length + 3 > width:
            left = left.truncate(max(8, width - right.cell_length - 3), ellipsis=True)
        gap = " " * max(1, width - left.cell_length - right.cell_length - 1)
        self.update(Content.assemble(left, gap, right))
