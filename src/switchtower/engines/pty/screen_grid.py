"""pyte's screen with features that current programs need beyond it: the alternate screen, wide characters, plain erasing.

Every operation costs at most a row or a screen, whatever its parameters are, and keeps no state that grows. `screen_emulator`
maps a program's output to these operations.
"""

from collections import deque
from typing import Any, NamedTuple

import wcwidth
from pyte import charsets, modes, screens

from switchtower.engines.pty.sgr import PLAIN

REPLAYED = (1, 5, 9, 12, 66, 1000, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 2004, 2031)
"""Private modes that concern the attached client: keys, mouse, focus, pasting, the screen's colours. They are only recorded."""

ORIGIN, WRAP, VISIBLE = 6, 7, 25
ALTERNATE = (47, 1047, 1049)
MARKS_LIMIT = 16
"""The most characters in one cell, with its combining marks."""

HISTORY_LIMIT = 300
"""The most rows that are kept after they left the screen at the top."""

_KNOWN = frozenset((*REPLAYED, ORIGIN, WRAP, VISIBLE))
_STYLES_LIMIT = 64
_CHARS_LIMIT = 512

Row = screens.StaticDefaultDict[int, screens.Char]


class _StyleCache(dict[str, screens.Char]):
    """Cells of one style by their character: made once, shared by all places that show it."""

    def __init__(self, attributes: screens.Char) -> None:
        super().__init__()
        self.attributes = attributes

    def __missing__(self, char: str) -> screens.Char:
        if len(self) >= _CHARS_LIMIT:
            self.clear()
        cell = self[char] = self.attributes._replace(data=char)
        return cell


class SavedCursor(NamedTuple):
    x: int
    y: int
    attributes: screens.Char
    graphics: tuple[bool, bool]
    shifted: int
    origin: bool


class SavedMainScreen(NamedTuple):
    """The main screen while the alternate one shows."""

    buffer: dict[int, Row]
    cursor: SavedCursor


class ScreenGrid(screens.Screen):
    @property
    def default_char(self) -> screens.Char:
        # The attached client reverses the screen; the cells stay as they were written.
        return PLAIN

    def reset(self) -> None:
        super().reset()
        self.graphics = (False, False)  # whether G0 and G1 are the line-drawing set
        self.saved_main: SavedMainScreen | None = None
        self._saved: dict[bool, SavedCursor] = {}
        self._styles: dict[screens.Char, _StyleCache] = {}
        self._styled = _StyleCache(self.cursor.attrs)
        self.last_drawn = ""
        self._wide = False
        self.history: deque[Row] = deque(maxlen=HISTORY_LIMIT)
        self.scrolled = getattr(self, "scrolled", 0)  # never reset: it distinguishes two prompts on the same row

    # Rows that left at the top. They count only as long as they directly precede the screen's contents: a program that writes
    # into the first row, or clears the screen, starts another picture.

    def _keep_row(self) -> None:
        if self.saved_main is None:
            row = self.buffer.get(0)
            self.history.append(Row(PLAIN) if row is None else row)
        self.scrolled += 1

    def _touch(self, y: int) -> None:
        if y == 0 and self.history:
            self.history.clear()

    # Modes

    def has_mode(self, mode: int) -> bool:
        return mode << 5 in self.mode

    def set_mode_flag(self, mode: int, *, on: bool) -> None:
        (self.mode.add if on else self.mode.discard)(mode << 5)

    def set_private_mode(self, mode: int, *, on: bool) -> None:
        if mode in ALTERNATE:
            self._switch_screen(on=on, keeps_cursor=mode == 1049)
        elif mode == 1048:
            (self.save_cursor if on else self.restore_cursor)()
        elif mode in _KNOWN:
            self.set_mode_flag(mode, on=on)
            if mode == ORIGIN:
                self.cursor_position()

    def _switch_screen(self, *, on: bool, keeps_cursor: bool) -> None:
        if on and self.saved_main is None:
            if keeps_cursor:
                self.save_cursor()
            self.saved_main = SavedMainScreen(dict(self.buffer), self._capture_cursor())
            self.buffer.clear()
            self.history.clear()
        elif not on and self.saved_main is not None:
            self.buffer.clear()
            self.buffer.update(self.saved_main.buffer)
            self.saved_main = None
            if keeps_cursor:
                self.restore_cursor()
            self.dirty.update(range(self.lines))

    def soft_reset(self) -> None:
        self.mode -= {modes.IRM, ORIGIN << 5}
        self.mode |= {WRAP << 5, VISIBLE << 5}
        self.margins = None
        self.graphics, self.charset = (False, False), 0
        self.cursor.attrs = PLAIN
        self._saved.pop(self.saved_main is not None, None)

    def start_over(self) -> None:
        """Clears the screen and keeps the modes: the earlier output was skipped."""
        self.buffer.clear()
        self.history.clear()
        if self.saved_main is not None:
            self.saved_main = SavedMainScreen({}, self.saved_main.cursor._replace(x=0, y=0))
        self.margins = None
        self.cursor.attrs = PLAIN
        self.cursor.x = self.cursor.y = 0

    # The cursor

    def _capture_cursor(self) -> SavedCursor:
        cursor = self.cursor
        return SavedCursor(cursor.x, cursor.y, cursor.attrs, self.graphics, self.charset, self.has_mode(ORIGIN))

    def save_cursor(self) -> None:
        # pyte keeps a stack that only grows; terminals keep one saved cursor for each of the two screens.
        self._saved[self.saved_main is not None] = self._capture_cursor()

    def restore_cursor(self) -> None:
        place = self._saved.get(self.saved_main is not None)
        if place is None:
            self.set_mode_flag(ORIGIN, on=False)
            self.cursor_position()
            return
        self.graphics, self.charset = place.graphics, place.shifted
        self.set_mode_flag(ORIGIN, on=place.origin)
        self.cursor.attrs = place.attributes
        self.cursor.x, self.cursor.y = min(place.x, self.columns), place.y
        self.ensure_vbounds()

    def cursor_up(self, count: int | None = None) -> None:
        top = self.margins.top if self.margins and self.cursor.y >= self.margins.top else 0
        self.cursor.y = max(self.cursor.y - (count or 1), top)

    def cursor_down(self, count: int | None = None) -> None:
        bottom = self.margins.bottom if self.margins and self.cursor.y <= self.margins.bottom else self.lines - 1
        self.cursor.y = min(self.cursor.y + (count or 1), bottom)

    def cursor_to_line(self, line: int | None = None) -> None:
        top = self.margins.top if self.margins and self.has_mode(ORIGIN) else 0
        self.cursor.y = (line or 1) - 1 + top
        self.ensure_vbounds()

    def tab(self) -> None:
        if self.cursor.x < self.columns:
            super().tab()

    def back_tab(self, count: int) -> None:
        stops = sorted(stop for stop in self.tabstops if stop < self.cursor.x)
        self.cursor.x = stops[-count] if count <= len(stops) else 0

    # Drawing

    def draw(self, data: str) -> None:
        if self.graphics[self.charset]:
            data = data.translate(charsets.VT100_MAP)
        if self._styled.attributes is not self.cursor.attrs:
            self._select_style()
        if data.isascii() and modes.IRM not in self.mode:
            self._draw_narrow(data)
        else:
            for char in data:
                self._draw_one(char)
        self.last_drawn = data[-1:]

    def _select_style(self) -> None:
        attributes = self.cursor.attrs
        if len(self._styles) >= _STYLES_LIMIT:
            self._styles.clear()
        self._styled = self._styles.get(attributes) or self._styles.setdefault(attributes, _StyleCache(attributes))

    def _draw_narrow(self, data: str) -> None:
        cursor, cell, at = self.cursor, self._styled.__getitem__, 0
        while at < len(data):
            self._make_room(1)
            self._touch(cursor.y)
            piece = data[at : at + self.columns - cursor.x]
            self.buffer[cursor.y].update(zip(range(cursor.x, self.columns), map(cell, piece), strict=False))
            self.dirty.add(cursor.y)
            cursor.x += len(piece)
            at += len(piece)

    def _draw_one(self, char: str) -> None:
        width = _measure_width(char)
        if width == 0:
            self._combine(char)
        if width <= 0:
            return
        self._make_room(width)
        if modes.IRM in self.mode:
            self.insert_characters(width)
        cursor = self.cursor
        self._touch(cursor.y)
        row = self.buffer[cursor.y]
        row[cursor.x] = self._styled[char]
        if width == 2:
            row[cursor.x + 1] = self._styled[""]
            self._wide = True
        self.dirty.add(cursor.y)
        cursor.x += width

    def _make_room(self, width: int) -> None:
        if self.cursor.x + width <= self.columns:
            return
        if self.has_mode(WRAP):
            self.carriage_return()
            self.index()
        else:
            self.cursor.x = self.columns - width

    def _combine(self, mark: str) -> None:
        row, x = self.buffer[self.cursor.y], self.cursor.x - 1
        if x > 0 and not row[x].data:
            x -= 1  # the second half of a wide character
        if x >= 0 and 0 < len(row[x].data) < MARKS_LIMIT:
            row[x] = row[x]._replace(data=row[x].data + mark)

    def repair_wide_characters(self) -> None:
        """Removes halves of wide characters: overwriting or shifting may have cut some in two."""
        if self._wide:
            for y in self.dirty & self.buffer.keys():
                row = self.buffer[y]
                for x in [x for x, cell in row.items() if not cell.data or not cell.data.isascii()]:
                    data = row[x].data
                    whole = (
                        _measure_width(row[x - 1].data[:1]) == 2
                        if not data
                        else _measure_width(data[0]) < 2 or not row[x + 1].data
                    )
                    if not whole or (not data and x == 0) or x >= self.columns:
                        row[x] = row[x]._replace(data=" ")
        self.dirty.clear()

    # Erasing and moving

    def _make_blank(self) -> screens.Char:
        return PLAIN._replace(bg=self.cursor.attrs.bg)

    def erase(self, y: int, start: int, end: int) -> None:
        self.dirty.add(y)
        self._touch(y)
        if start > 0 or end < self.columns:
            self.buffer[y].update(dict.fromkeys(range(start, min(end, self.columns)), self._make_blank()))
        else:
            self._erase_rows(range(y, y + 1))

    def _erase_rows(self, rows: range) -> None:
        blank = self._make_blank()
        for y in rows:
            self._touch(y)
            self.buffer.pop(y, None)
            if blank != PLAIN:
                self.buffer[y] = Row(blank)

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        x = self.cursor.x
        if how in (0, 1, 2):
            self.erase(self.cursor.y, x if how == 0 else 0, x + 1 if how == 1 else self.columns)

    def erase_in_display(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
        y = self.cursor.y
        rows = {0: range(y + 1, self.lines), 1: range(y), 2: range(self.lines)}.get(how, range(0))
        self._erase_rows(rows)
        if how in (0, 1):
            self.erase_in_line(how)
        elif how == 3:
            self.history.clear()

    def index(self) -> None:
        top, bottom = self.margins or (0, self.lines - 1)
        if self.cursor.y == bottom and top == 0:
            self._keep_row()
        if self.margins is not None or self.cursor.y < self.lines - 1:
            super().index()
            return
        moved = {y - 1: row for y, row in self.buffer.items() if y > 0}
        self.buffer.clear()
        self.buffer.update(moved)
        self.dirty.update(range(self.lines) if self._wide else ())

    def reverse_index(self) -> None:
        self._touch(self.cursor.y)
        super().reverse_index()

    def insert_lines(self, count: int | None = None) -> None:
        self._touch(self.cursor.y)
        super().insert_lines(count)

    def insert_characters(self, count: int | None = None) -> None:
        self._touch(self.cursor.y)
        super().insert_characters(count)

    def delete_characters(self, count: int | None = None) -> None:
        self._touch(self.cursor.y)
        super().delete_characters(count)

    def delete_lines(self, count: int | None = None) -> None:
        self._touch(self.cursor.y)
        top, bottom = self.margins or (0, self.lines - 1)
        if not top <= self.cursor.y <= bottom:
            return
        # pyte leaves a row unchanged when the row that should move there was never written.
        for y in range(self.cursor.y, bottom + 1):
            below = self.buffer.pop(y + (count or 1), None) if y + (count or 1) <= bottom else None
            self.buffer.pop(y, None)
            if below is not None:
                self.buffer[y] = below
        self.dirty.update(range(self.cursor.y, bottom + 1))
        self.carriage_return()

    def scroll(self, count: int, *, up: bool) -> None:
        top, bottom = self.margins or (0, self.lines - 1)
        y, self.cursor.y = self.cursor.y, bottom if up else top
        for _ in range(min(count, bottom - top + 1)):
            (self.index if up else self.reverse_index)()
        self.cursor.y = y

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        lines, columns = lines or self.lines, columns or self.columns
        # Rows leave at the top only as far as the cursor's row must stay on the screen.
        above = max(0, self.cursor.y - lines + 1)
        kept = _crop(self.buffer, above, lines, columns)
        self.history.clear()
        self.buffer.clear()
        self.buffer.update(kept)
        if self.saved_main is not None:
            place = self.saved_main.cursor
            hidden = max(0, place.y - lines + 1)
            self._saved.pop(False, None)
            place = place._replace(x=min(place.x, columns - 1), y=place.y - hidden)
            self.saved_main = SavedMainScreen(_crop(self.saved_main.buffer, hidden, lines, columns), place)
            self._saved[False] = place
        self.tabstops |= set(range(8 * (self.columns // 8 + 1), columns, 8))
        self.lines, self.columns, self.margins = lines, columns, None
        self.cursor.y -= above
        self.ensure_hbounds()
        self.ensure_vbounds()
        self.dirty.update(range(lines))
        self.repair_wide_characters()


def _crop(buffer: dict[int, Row], above: int, lines: int, columns: int) -> dict[int, Row]:
    kept: dict[int, Row] = {}
    for y, row in buffer.items():
        if above <= y < above + lines:
            new = kept[y - above] = Row(row.default)
            new.update((x, cell) for x, cell in row.items() if x < columns)
    return kept


def _measure_width(char: str) -> int:
    return wcwidth.wcwidth(char) if char else 0
