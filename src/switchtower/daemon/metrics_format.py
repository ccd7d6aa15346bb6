"""Figures in Prometheus' text format, and as JSON for a page. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[tuple[str, str], ...]
_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n"}


class Sample(Struct, frozen=True):
    value: float
    labels: Labels = ()
    suffix: str = ""


class Family(Struct, frozen=True):
    name: str
    kind: Kind
    help: str
    samples: Sequence[Sample]


def one(name: str, kind: Kind, help: str, value: float) -> Family:
    return Family(name, kind, help, (Sample(value),))


def by(name: str, kind: Kind, help: str, label: str, values: Mapping[str, float]) -> Family:
    return Family(name, kind, help, [Sample(value, ((label, key),)) for key, value in sorted(values.items())])


def histogram(name: str, help: str, bounds: Sequence[float], counts: Sequence[int], total: float) -> Family:
    """`counts` are those of each bucket alone, with one more for what is beyond the last bound."""
    samples, so_far = [], 0
    for bound, count in zip((*bounds, None), counts, strict=True):
        so_far += count
        samples.append(Sample(so_far, (("le", "+Inf" if bound is None else _number(bound)),), "_bucket"))
    return Family(name, "histogram", help, [*samples, Sample(total, (), "_sum"), Sample(so_far, (), "_count")])


def text(families: Iterable[Family]) -> str:
    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {family.help}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines += (f"{family.name}{sample.suffix}{_labels(sample.labels)} {_number(sample.value)}" for sample in family.samples)
    return "\n".join(lines) + "\n"


def figures(families: Iterable[Family]) -> dict[str, Any]:
    """By name: a number, numbers by their label, or a histogram's buckets with their sum and count."""
    return {family.name: _figure(family) for family in families}


def _figure(family: Family) -> Any:
    if family.kind == "histogram":
        buckets = [[sample.labels[0][1], sample.value] for sample in family.samples if sample.suffix == "_bucket"]
        rest = {sample.suffix.lstrip("_"): sample.value for sample in family.samples if sample.suffix != "_bucket"}
        return {"buckets": buckets, **rest}
    if len(family.samples) == 1 and not family.samples[0].labels:
        return family.samples[0].value
    return {",".join(value for _, value in sample.labels): sample.value for sample in family.samples}


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in value)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
