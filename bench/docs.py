"""Puts the last results into `docs/performance.md`, between two marks; the rest of the page is written by hand."""

from bench import table
from bench.processes import ROOT
from bench.results import Results

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def write(results: Results) -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{_results(results)}\n{END}{after}")


def _results(results: Results) -> str:
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    short = [row.name for row in results.rows if row.met is False]
    verdict = f"Short of what we want to reach: {', '.join(short)}." if short else "Every row reaches what we want."
    return (
        f"{table.markdown(results.rows)}\n\n{verdict}\n\n"
        f"Measured {results.made_at} at commit `{results.commit}` in {results.seconds:.0f} s, on {machine['cores']} cores of"
        f" {machine['processor']} ({machine['system']}, load {machine['load']}); {versions}."
    )
