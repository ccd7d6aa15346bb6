"""`make bench`: measures every row, prints the table, and keeps the results for comparison between commits.

A row that falls short is marked, not an error: what a noisy minute did to a figure must not fail anybody's build.
"""

import argparse
import tempfile
import time
from pathlib import Path

from bench import docs, results, table
from bench.row import Row
from bench.rows import GROUPS
from bench.setting import BenchContext


def main() -> None:
    options = _parse_options()
    rows: list[Row] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tower-bench-", dir=options.folder, ignore_cleanup_errors=True) as folder:
        setting = BenchContext(Path(folder), quick=options.quick)
        for group in options.only or GROUPS:
            rows += GROUPS[group](setting)
    collected = results.collect(rows, quick=options.quick, seconds=time.monotonic() - began)
    print(table.render_text(rows))
    short = [row.name for row in rows if row.met is False]
    print(f"\n{len(short)} of {len(rows)} rows fall short" + (f": {', '.join(short)}" if short else ""))
    if options.compare:
        print(f"\nSince {options.compare}:\n{table.compare_runs(rows, results.read(options.compare).rows)}")
    print(f"\nWritten to {results.write(collected)}")
    if options.write_docs:
        for page in docs.write(collected):
            print(f"The table in {page} is new")


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round a row: whether it works, not how fast")
    parser.add_argument(
        "--only", action="append", choices=list(GROUPS), metavar="GROUP", help=f"{', '.join(GROUPS)}; may be repeated"
    )
    parser.add_argument("--compare", type=Path, metavar="FILE", help="print what changed since these earlier results")
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/performance.md and docs/scaling.md")
    parser.add_argument("--folder", type=Path, help="where journals are written for us and for the baselines (default: $TMPDIR)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
