"""What the daemon under test noted about its commits, as it passes from process to process."""

from pathlib import Path
from statistics import mean

import msgspec
from msgspec import Struct


class EventRange(Struct, array_like=True):
    """Neighbouring events of one session."""

    sid: int
    first_seq: int
    count: int


class Commit(Struct, array_like=True):
    at_ns: int
    """When it was on the disk, on the clock that all processes share."""
    stretches: list[EventRange]
    deltas: int
    sessions: int
    """How many sessions began with it."""


class Report(Struct):
    commits: list[Commit]
    emitted_ns: list[int]


class ReplayPlan(Struct):
    """Commits for a baseline to repeat: the rows are read from `source`, and go into `target`."""

    source: str
    target: str
    commits: list[Commit]


def read(path: Path) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def select_streaming(report: Report) -> list[Commit]:
    """From the first commit with streamed text to the last."""
    with_text = [place for place, commit in enumerate(report.commits) if commit.deltas]
    return report.commits[with_text[0] : with_text[-1] + 1]


def compute_event_rate(commits: list[Commit], at_ns: list[int]) -> float:
    """What the commits after the first one stored, over the time since the first one."""
    stored = sum(stretch.count for commit in commits[1:] for stretch in commit.stretches)
    return stored / (at_ns[-1] - at_ns[0]) * 1e9


def compute_mean_batch(commits: list[Commit]) -> float:
    return mean(sum(stretch.count for stretch in commit.stretches) for commit in commits)
