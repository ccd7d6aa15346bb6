"""Rows as people read them: aligned for a terminal, or as Markdown."""

from collections.abc import Container, Sequence

from bench.row import Row

HEADINGS = ("row", "ours", "bare", "ratio", "reach", "", "bare is")


def format_figure(value: float, unit: str) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}{'' if unit.startswith('/') else ' '}{unit}"


def render_text(rows: Sequence[Row]) -> str:
    cells: list[Sequence[str]] = [HEADINGS, *(_format_cells(row) for row in rows)]
    return _align_cells(cells, right=range(1, 5))


def render_markdown(rows: Sequence[Row]) -> str:
    lines = [HEADINGS, ("---", "--:", "--:", "--:", "--:", "---", "---"), *(_format_cells(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def compare_runs(rows: Sequence[Row], earlier: Sequence[Row]) -> str:
    """What changed since an earlier run. Ratios are the thing to compare: machines and minutes differ, ratios less."""
    before = {row.name: row for row in earlier}
    cells: list[Sequence[str]] = [("row", "ratio then", "ratio now", "change", "ours then", "ours now")]
    for row in rows:
        if old := before.get(row.name):
            cells.append(
                (
                    row.name,
                    f"{old.ratio:.2f}",
                    f"{row.ratio:.2f}",
                    f"{row.ratio / old.ratio - 1:+.0%}",
                    format_figure(old.ours, old.unit),
                    format_figure(row.ours, row.unit),
                )
            )
    return _align_cells(cells, right=range(1, 6))


def _align_cells(cells: Sequence[Sequence[str]], right: Container[int]) -> str:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for line in cells:
        padded = [cell.rjust(widths[n]) if n in right else cell.ljust(widths[n]) for n, cell in enumerate(line)]
        lines.append("  ".join(padded).rstrip())
    return "\n".join([lines[0], "─" * max(map(len, lines)), *lines[1:]])


def _format_cells(row: Row) -> tuple[str, ...]:
    reach = f"{row.reach} {row.target:g}" if row.reach else "–"
    verdict = "" if row.met is None else "ok" if row.met else "SHORT"
    ours, baseline = format_figure(row.ours, row.unit), format_figure(row.baseline, row.unit)
    return row.name, ours, baseline, f"{row.ratio:.2f}", reach, verdict, row.baseline_is
