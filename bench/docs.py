"""Puts the last results into the documentation, between two marks; the rest of each page is written by hand.

Rows of several nodes go into `docs/scaling.md`, all others into `docs/performance.md`. What was not measured stays as it is.
"""

from pathlib import Path

from bench import table
from bench.processes import ROOT
from bench.results import Results
from bench.row import Row

PAGE = ROOT / "docs" / "performance.md"
PAGE_OF_NODES = ROOT / "docs" / "scaling.md"
NODES = "nodes"


def write(results: Results) -> list[Path]:
    """The pages that are new."""
    written = []
    for page, of_nodes in ((PAGE, False), (PAGE_OF_NODES, True)):
        if rows := [row for row in results.rows if (row.group == NODES) is of_nodes]:
            put(page, "results", _render_results(results, rows))
            written.append(page)
    return written


def put(page: Path, name: str, text: str) -> None:
    """Between the marks of this name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def _render_results(results: Results, rows: list[Row]) -> str:
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    short = [row.name for row in rows if row.met is False]
    verdict = f"Short of what we want to reach: {', '.join(short)}." if short else "Every row reaches what we want."
    return (
        f"{table.render_markdown(rows)}\n\n{verdict}\n\n"
        f"Measured {results.made_at} at commit `{results.commit}` in {results.seconds:.0f} s, on {machine['cores']} cores of"
        f" {machine['processor']} ({machine['system']}, load {machine['load']}); {versions}."
    )
