"""Formats metrics in Prometheus' text format, and as JSON for a page. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[tuple[str, str], ...]
_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n"}


class MetricSample(Struct, frozen=True):
    value: float
    labels: Labels = ()
    suffix: str = ""


class MetricFamily(Struct, frozen=True):
    name: str
    kind: Kind
    help: str
    samples: Sequence[MetricSample]


def make_single(name: str, kind: Kind, help: str, value: float) -> MetricFamily:
    return MetricFamily(name, kind, help, (MetricSample(value),))


def make_labelled(name: str, kind: Kind, help: str, label: str, values: Mapping[str, float]) -> MetricFamily:
    return MetricFamily(name, kind, help, [MetricSample(value, ((label, key),)) for key, value in sorted(values.items())])


def make_histogram(name: str, help: str, bounds: Sequence[float], counts: Sequence[int], total: float) -> MetricFamily:
    """`counts` are those of each bucket alone, with one more for values beyond the last bound."""
    samples, so_far = [], 0
    for bound, count in zip((*bounds, None), counts, strict=True):
        so_far += count
        samples.append(MetricSample(so_far, (("le", "+Inf" if bound is None else _format_number(bound)),), "_bucket"))
    return MetricFamily(name, "histogram", help, [*samples, MetricSample(total, (), "_sum"), MetricSample(so_far, (), "_count")])


def format_text(families: Iterable[MetricFamily]) -> str:
    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {family.help}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines += (
            f"{family.name}{sample.suffix}{_format_labels(sample.labels)} {_format_number(sample.value)}"
            for sample in family.samples
        )
    return "\n".join(lines) + "\n"


def convert_to_json(families: Iterable[MetricFamily]) -> dict[str, Any]:
    """Returns by name: a number, numbers by their label, or a histogram's buckets with their sum and count."""
    return {family.name: _convert_family(family) for family in families}


def _convert_family(family: MetricFamily) -> Any:
    if family.kind == "histogram":
        buckets = [[sample.labels[0][1], sample.value] for sample in family.samples if sample.suffix == "_bucket"]
        rest = {sample.suffix.lstrip("_"): sample.value for sample in family.samples if sample.suffix != "_bucket"}
        return {"buckets": buckets, **rest}
    if len(family.samples) == 1 and not family.samples[0].labels:
        return family.samples[0].value
    return {",".join(value for _, value in sample.labels): sample.value for sample in family.samples}


def _format_labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels) + "}"


def _escape(value: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in value)


def _format_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
