"""What a decision of the policy costs: one everyday command, judged against a dozen rules.

The mark is 1.2 times the ratio (7.4) that was measured before tables of harmless options judged the wildcards. The second row
adds what the disk costs, under the same mark: a command that a rule allows has its names followed there, on a thread.
"""

from collections.abc import Iterator

from bench.row import Row, compare
from bench.setting import BenchContext

BASELINE = "shlex splitting the same commands"
MARK = 8.9
ROUNDS = 100


def measure(setting: BenchContext) -> Iterator[Row]:
    measured: dict[str, float] = {}
    on_disk: list[float] = []

    def ours() -> float:
        folder = setting.make_path("workspace")
        folder.mkdir()
        measured.update(setting.run_load("policy", rounds=setting.scale_amount(ROUNDS), folder=str(folder)))
        on_disk.append(measured["on disk"])
        return measured["ours"]

    def bare() -> float:
        return measured["bare"]

    figures = setting.alternate_rounds("policy decision", ours, bare, unit=" µs")
    yield compare("policy", "policy decision", "µs", *figures, BASELINE, at_most=MARK)
    yield compare("policy", "policy decision, names followed on the disk", "µs", on_disk, figures[1], BASELINE, at_most=MARK)
