"""Maps each control and escape sequence of a program to an operation of the grid, and renders a screen as terminal text again:
written to a terminal of the same size, that text restores the contents and the state.

The parser in `screen` drives it, never pyte's own stream, which shows or raises on sequences that it does not know. A sequence
that is not listed here has no effect.
"""

from collections.abc import Mapping

from pyte import modes

from switchtower.engines.pty import screen_grid
from switchtower.engines.pty.sgr import PLAIN, format_sgr, parse_sgr


class TerminalEmulator(screen_grid.ScreenGrid):
    def handle_control(self, char: str) -> None:
        match char:
            case "\n" | "\v" | "\f":
                self.linefeed()
            case "\r":
                self.carriage_return()
            case "\b":
                self.backspace()
            case "\t":
                self.tab()
            case "\x0e" | "\x0f":
                self.charset = int(char == "\x0e")
            case "\x84" | "\x85" | "\x8d":
                self.handle_escape({"\x84": "D", "\x85": "E", "\x8d": "M"}[char])
            case _:
                pass

    def handle_escape(self, char: str) -> None:
        match char:
            case "c":
                self.reset()
            case "D":
                self.index()
            case "E":
                self.index()
                self.carriage_return()
            case "M":
                self.reverse_index()
            case "H":
                self.set_tab_stop()
            case "7":
                self.save_cursor()
            case "8":
                self.restore_cursor()
            case "=" | ">":
                self.set_mode_flag(66, on=char == "=")
            case _:
                pass

    def set_charset(self, slot: str, charset: str) -> None:
        if slot in "()":
            drawing = charset == "0"
            self.graphics = (drawing, self.graphics[1]) if slot == "(" else (self.graphics[0], drawing)
        elif slot == "#" and charset == "8":
            self.alignment_display()

    def handle_command(self, text: str) -> None:
        code, _, value = text.partition(";")
        if code in ("0", "2"):
            self.title = "".join(char for char in value if char.isprintable())

    def handle_sequence(self, params: str, between: str, final: str) -> None:
        prefix = params[0] if params and params[0] in "<=>?" else ""
        if between:
            if between + final == "!p" and not params:
                self.soft_reset()
        elif prefix == "?" and final in "hl":
            for mode in params[1:].split(";")[:16]:
                self.set_private_mode(_parse_number(mode), on=final == "h")
        elif prefix == "" or (prefix == "?" and final in "JK"):
            self._handle_plain_sequence(params.lstrip("?"), final)

    def _handle_plain_sequence(self, params: str, final: str) -> None:
        if final == "m":
            self.cursor.attrs = parse_sgr(self.cursor.attrs, params)
            return
        numbers = [_parse_number(field) for field in params.split(";")[:16]]
        first = numbers[0]
        second = numbers[1] if len(numbers) > 1 else 0
        match final:
            case "A":
                self.cursor_up(first)
            case "B" | "e":
                self.cursor_down(first)
            case "C" | "a":
                self.cursor_forward(first)
            case "D":
                self.cursor_back(first)
            case "E":
                self.cursor_down1(first)
            case "F":
                self.cursor_up1(first)
            case "G" | "`":
                self.cursor_to_column(first)
            case "H" | "f":
                self.cursor_position(first, second)
            case "d":
                self.cursor_to_line(first)
            case "I":
                for _ in range(min(first or 1, self.columns)):
                    self.tab()
            case "Z":
                self.back_tab(first or 1)
            case "J":
                self.erase_in_display(first)
            case "K":
                self.erase_in_line(first)
            case "X":
                self.erase(self.cursor.y, self.cursor.x, self.cursor.x + (first or 1))
            case "@":
                self.insert_characters(min(first or 1, self.columns))
            case "P":
                self.delete_characters(min(first or 1, self.columns))
            case "L":
                self.insert_lines(first)
            case "M":
                self.delete_lines(first)
            case "S" | "T":
                self.scroll(first or 1, up=final == "S")
            case "b":
                self.draw(self.last_drawn * min(first or 1, self.columns))
            case "g":
                self.clear_tab_stop(first)
            case "r":
                self.margins = None
                self.set_margins(first or 1, second or self.lines)
            case "h" | "l":
                for mode in {modes.IRM, modes.LNM} & set(numbers):
                    (self.mode.add if final == "h" else self.mode.discard)(mode)
            case "s":
                self.save_cursor()
            case "u":
                self.restore_cursor()
            case _:
                pass


def _parse_number(field: str) -> int:
    if not field.isdecimal():
        return 0
    return min(int(field[:5]), 9999) if len(field) <= 5 else 9999


_BEGIN = "\x1b[?1049l\x1b[!p\x1b[?7h\x1b[H\x1b[2J"


def render_repaint(grid: screen_grid.ScreenGrid) -> str:
    parts = [_BEGIN]
    if grid.title:
        parts.append(f"\x1b]2;{grid.title}\x07")
    if grid.saved_main is not None:
        # A client that attaches now sees the main screen when the program leaves the alternate one.
        place = grid.saved_main.cursor
        parts += _render_cells(grid.saved_main.buffer, grid.columns, grid.lines)
        parts += _render_cursor(grid.saved_main.buffer, place.x, place.y, grid.columns)
        parts += [format_sgr(place.attributes), "\x1b[?1049h\x1b[0m\x1b[H\x1b[2J"]
    parts += _render_cells(grid.buffer, grid.columns, grid.lines)
    parts += _render_state(grid)
    return "".join(parts)


def _render_cells(buffer: Mapping[int, screen_grid.Row], columns: int, lines: int) -> list[str]:
    parts: list[str] = []
    for y in sorted(y for y in buffer if y < lines):
        row = buffer[y]
        cells = [row[x] for x in range(columns)]
        while cells and cells[-1] == PLAIN:
            cells.pop()
        if not cells:
            continue
        parts.append(f"\x1b[{y + 1};1H")
        style = PLAIN
        for cell in cells:
            if not cell.data:
                continue  # the second half of a wide character
            if cell[1:] != style[1:]:
                style = cell
                parts.append(format_sgr(cell))
            parts.append(cell.data)
        if style[1:] != PLAIN[1:]:
            parts.append("\x1b[0m")
    return parts


def _render_cursor(buffer: Mapping[int, screen_grid.Row], x: int, y: int, columns: int, *, top: int = 0) -> list[str]:
    if x < columns:
        return [f"\x1b[{y - top + 1};{x + 1}H"]
    # The cursor waits behind the last column: only drawing that column again puts it there.
    row = buffer.get(y) or screen_grid.Row(PLAIN)
    cell, at = row[columns - 1], columns
    if not cell.data:
        cell, at = row[columns - 2], columns - 1
    return [f"\x1b[{y - top + 1};{at}H", format_sgr(cell), cell.data]


def _render_state(grid: screen_grid.ScreenGrid) -> list[str]:
    parts: list[str] = []
    if grid.margins:
        parts.append(f"\x1b[{grid.margins.top + 1};{grid.margins.bottom + 1}r")
    origin = grid.has_mode(screen_grid.ORIGIN)
    if origin:
        parts.append("\x1b[?6h")
    top = grid.margins.top if origin and grid.margins else 0
    parts += _render_cursor(grid.buffer, grid.cursor.x, grid.cursor.y, grid.columns, top=top)
    parts.append(format_sgr(grid.cursor.attrs))
    parts += [f"\x1b{slot}0" for slot, drawing in zip("()", grid.graphics, strict=True) if drawing]
    if grid.charset:
        parts.append("\x0e")
    parts += [f"\x1b[{mode}h" for mode in (modes.IRM, modes.LNM) if mode in grid.mode]
    parts += [f"\x1b[?{mode}h" for mode in screen_grid.REPLAYED if grid.has_mode(mode)]
    parts += [f"\x1b[?{mode}l" for mode in (screen_grid.WRAP, screen_grid.VISIBLE) if not grid.has_mode(mode)]
    return parts
