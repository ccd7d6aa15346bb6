"""A screen as terminal text again: written to a terminal of the same size, it shows the same and goes on the same."""

from collections.abc import Mapping

from pyte import modes

from switchtower.engines.pty import screen_colours, screen_grid

_BEGIN = "\x1b[?1049l\x1b[!p\x1b[?7h\x1b[H\x1b[2J"


def render_repaint(grid: screen_grid.ScreenGrid) -> str:
    parts = [_BEGIN]
    if grid.title:
        parts.append(f"\x1b]2;{grid.title}\x07")
    if grid.saved_main is not None:
        # Who joins now sees the main screen when the program leaves the alternate one.
        place = grid.saved_main.cursor
        parts += _render_cells(grid.saved_main.buffer, grid.columns, grid.lines)
        parts += _render_cursor(grid.saved_main.buffer, place.x, place.y, grid.columns)
        parts += [screen_colours.format_sgr(place.attributes), "\x1b[?1049h\x1b[0m\x1b[H\x1b[2J"]
    parts += _render_cells(grid.buffer, grid.columns, grid.lines)
    parts += _render_state(grid)
    return "".join(parts)


def _render_cells(buffer: Mapping[int, screen_grid.Row], columns: int, lines: int) -> list[str]:
    parts: list[str] = []
    for y in sorted(y for y in buffer if y < lines):
        row = buffer[y]
        cells = [row[x] for x in range(columns)]
        while cells and cells[-1] == screen_colours.PLAIN:
            cells.pop()
        if not cells:
            continue
        parts.append(f"\x1b[{y + 1};1H")
        style = screen_colours.PLAIN
        for cell in cells:
            if not cell.data:
                continue  # the second half of a wide character
            if cell[1:] != style[1:]:
                style = cell
                parts.append(screen_colours.format_sgr(cell))
            parts.append(cell.data)
        if style[1:] != screen_colours.PLAIN[1:]:
            parts.append("\x1b[0m")
    return parts


def _render_cursor(buffer: Mapping[int, screen_grid.Row], x: int, y: int, columns: int, *, top: int = 0) -> list[str]:
    if x < columns:
        return [f"\x1b[{y - top + 1};{x + 1}H"]
    # The cursor waits behind the last column: only drawing that column again brings it there.
    row = buffer.get(y) or screen_grid.Row(screen_colours.PLAIN)
    cell, at = row[columns - 1], columns
    if not cell.data:
        cell, at = row[columns - 2], columns - 1
    return [f"\x1b[{y - top + 1};{at}H", screen_colours.format_sgr(cell), cell.data]


def _render_state(grid: screen_grid.ScreenGrid) -> list[str]:
    parts: list[str] = []
    if grid.margins:
        parts.append(f"\x1b[{grid.margins.top + 1};{grid.margins.bottom + 1}r")
    origin = grid.has_mode(screen_grid.ORIGIN)
    if origin:
        parts.append("\x1b[?6h")
    top = grid.margins.top if origin and grid.margins else 0
    parts += _render_cursor(grid.buffer, grid.cursor.x, grid.cursor.y, grid.columns, top=top)
    parts.append(screen_colours.format_sgr(grid.cursor.attrs))
    parts += [f"\x1b{slot}0" for slot, drawing in zip("()", grid.graphics, strict=True) if drawing]
    if grid.charset:
        parts.append("\x0e")
    parts += [f"\x1b[{mode}h" for mode in (modes.IRM, modes.LNM) if mode in grid.mode]
    parts += [f"\x1b[?{mode}h" for mode in screen_grid.REPLAYED if grid.has_mode(mode)]
    parts += [f"\x1b[?{mode}l" for mode in (screen_grid.WRAP, screen_grid.VISIBLE) if not grid.has_mode(mode)]
    return parts
