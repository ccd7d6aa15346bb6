"""A list whose selected line is visible without colour too. Its entries are never interpreted as markup."""

from rich.style import Style
from textual.strip import Strip
from textual.widgets import OptionList
from textual.widgets.option_list import Option

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
