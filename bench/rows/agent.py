"""What the agent's loop adds to a model's stream, per token and per tool call, with the journal and all.

The marked baseline is the bare stream consumed in the same process. Its tokens come from memory and cost next to nothing, so
the ratio is large by nature: what counts is the time in the detail, held against the 200 µs and more that a provider's own
library takes for a token.
"""

from collections.abc import Iterator

from bench.row import Row, compare
from bench.setting import BenchContext

BASELINE = "the bare model stream, consumed in the same process"
TOKENS, CALLS = 20_000, 100


def measure(setting: BenchContext) -> Iterator[Row]:
    yield _measure_case(
        setting, "agent loop, per token", tokens=setting.scale_amount(TOKENS), calls=0, unit_count=setting.scale_amount(TOKENS)
    )
    yield _measure_case(
        setting, "agent loop, per tool call", tokens=1, calls=setting.scale_amount(CALLS), unit_count=setting.scale_amount(CALLS)
    )


def _measure_case(setting: BenchContext, name: str, *, tokens: int, calls: int, unit_count: int) -> Row:
    measured: dict[str, float] = {}

    def ours() -> float:
        measured.update(setting.run_load("agent", tokens=tokens, calls=calls, folder=str(setting.make_path("agent"))))
        return measured["ours"] / unit_count * 1e6

    def bare() -> float:
        return measured["bare"] / unit_count * 1e6

    figures = setting.alternate_rounds(name, ours, bare, unit=" µs")
    return compare("agent", name, "µs", *figures, BASELINE)
