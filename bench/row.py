"""One row of the table: our figure, the baseline's, their ratio, and whether that is what we want to reach."""

from enum import StrEnum
from statistics import median
from typing import Any

from msgspec import Struct


class TargetDirection(StrEnum):
    AT_LEAST = "≥"
    AT_MOST = "≤"


class Row(Struct, kw_only=True):
    group: str
    name: str
    unit: str
    ours: float
    baseline: float
    ratio: float
    baseline_is: str
    reach: TargetDirection | None = None
    target: float | None = None
    """None: the row is there to be read, not to be reached."""
    met: bool | None = None
    rounds: dict[str, list[float]] = {}
    detail: dict[str, Any] = {}


def compare(
    group: str,
    name: str,
    unit: str,
    ours: list[float],
    baseline: list[float],
    baseline_is: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    detail: dict[str, Any] | None = None,
) -> Row:
    """The row of these rounds: medians are compared, because single rounds are at the mercy of the neighbours."""
    ratio = median(ours) / median(baseline)
    reach, target, met = None, None, None
    if at_least is not None:
        reach, target, met = TargetDirection.AT_LEAST, at_least, ratio >= at_least
    elif at_most is not None:
        reach, target, met = TargetDirection.AT_MOST, at_most, ratio <= at_most
    return Row(
        group=group,
        name=name,
        unit=unit,
        ours=median(ours),
        baseline=median(baseline),
        ratio=ratio,
        baseline_is=baseline_is,
        reach=reach,
        target=target,
        met=met,
        rounds={"ours": ours, "baseline": baseline},
        detail=detail or {},
    )


def compute_percentile(values: list[float], share: float) -> float:
    """The value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
