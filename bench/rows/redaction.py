"""What redaction costs, a KB of CPU: text as terminals and models give it, logs, and text that is full of signs or of secrets.

A mark is 1.2 times the ratio that was measured before providers' prefixes were known: 0.93 for prose, 4.8 for code, 12.4 for
logs, 38 for nothing but signs, 31 for nothing but secrets, 11.1 for small pieces, 11.3 for words, 10.4 for unread pages.

The mark of unread pages is not reached: 15.7 to 17.0 was measured, 1.6 times what it was. The end of each piece is looked up in
a table, because it may begin one of many tokens; an end that is not in the table yet takes a microsecond. That is about half
of the difference; the other half is not explained.
"""

from collections.abc import Iterator

from bench.row import Row, compare
from bench.setting import BenchContext

BASELINE = "one search for ten prefixes in the same pieces"
MARKS = {"prose": 1.12, "code": 5.8, "log": 14.9, "worst": 46.0, "named": 37.2, "pieces": 13.3, "words": 13.6, "unread": 12.5}
NAMES = {
    "prose": "redaction of prose",
    "code": "redaction of code",
    "log": "redaction of key=value logs",
    "worst": "redaction of nothing but signs",
    "named": "redaction of nothing but secrets",
    "pieces": "redaction of a page in pieces of 5 characters",
    "words": "redaction of a page word by word",
    "unread": "redaction of unread pages in pieces of 5 characters",
}


def measure(setting: BenchContext) -> Iterator[Row]:
    measured = [setting.run_load("redaction") for _ in range(setting.rounds)]
    for kind, mark in MARKS.items():
        ours, bare = [figures[kind] for figures in measured], [figures[f"{kind}, bare"] for figures in measured]
        setting.print_progress(f"{NAMES[kind]}: ours {min(ours):,.1f} µs/KB, bare {min(bare):,.1f} µs/KB")
        yield compare("redaction", NAMES[kind], "µs/KB", ours, bare, BASELINE, at_most=mark)
