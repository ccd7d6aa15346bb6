"""A terminal's vocabulary: which operation of the grid each control and escape sequence of a program means.

Driven by `screen_parser`, never by pyte's own stream, which shows or raises on what it does not know. A sequence that is
not here does nothing.
"""

from pyte import modes

from switchtower.engines.pty import screen_colours, screen_grid


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
            self.cursor.attrs = screen_colours.parse_sgr(self.cursor.attrs, params)
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
