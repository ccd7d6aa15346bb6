"""A strict reader of Prometheus' text format, version 0.0.4: what is not exactly so is an error."""

import math
import re
from typing import NamedTuple

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_HELP = re.compile(rf"# HELP ({_NAME}) (.+)")
_TYPE = re.compile(rf"# TYPE ({_NAME}) (counter|gauge|histogram)")
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?|\+Inf|NaN")


class ParsedSample(NamedTuple):
    name: str
    labels: tuple[tuple[str, str], ...]


class MetricFamilies:
    def __init__(self, text: str) -> None:
        self.types: dict[str, str] = {}
        self.samples: dict[ParsedSample, float] = {}
        assert text.endswith("\n"), "the last line is a line"
        helped, current = None, ""
        for line in text[:-1].split("\n"):
            if help_ := _HELP.fullmatch(line):
                helped = help_[1]
                assert helped not in self.types, "all of a family is in one place"
            elif type_ := _TYPE.fullmatch(line):
                assert type_[1] == helped, "a family is explained before it is typed"
                current = type_[1]
                self.types[current] = type_[2]
            else:
                self._take(line, current)
        self._check_counters()
        for name, type_name in self.types.items():
            if type_name == "histogram":
                self._check_histogram(name)

    def _take(self, line: str, family: str) -> None:
        read = _SAMPLE.fullmatch(line)
        assert read is not None, f"no sample: {line!r}"
        name, labels, number = read.groups()
        ends = ("_bucket", "_sum", "_count") if self.types[family] == "histogram" else ("",)
        assert name in [family + end for end in ends], f"{name} is not of {family}"
        pairs = []
        while labels:
            label = _LABEL.match(labels)
            assert label is not None, f"no label: {labels!r}"
            pairs.append((label[1], label[2]))
            labels = labels[label.end() :]
            assert labels == "" or (labels.startswith(",") and len(labels) > 1)
            labels = labels.removeprefix(",")
        assert len({key for key, _ in pairs}) == len(pairs), "a label is there once"
        assert _NUMBER.fullmatch(number), f"no number: {number!r}"
        sample = ParsedSample(name, tuple(pairs))
        assert sample not in self.samples, f"{sample} is there twice"
        self.samples[sample] = math.inf if number == "+Inf" else float(number)

    def _check_counters(self) -> None:
        for sample, value in self.samples.items():
            if self.types.get(sample.name) == "counter":
                assert sample.name.endswith("_total"), "so counters are named"
                assert value >= 0

    def _check_histogram(self, name: str) -> None:
        buckets = [
            (dict(sample.labels)["le"], value) for sample, value in self.samples.items() if sample.name == f"{name}_bucket"
        ]
        bounds = [math.inf if bound == "+Inf" else float(bound) for bound, _ in buckets]
        counts = [value for _, value in buckets]
        assert bounds == sorted(set(bounds))
        assert bounds[-1] == math.inf
        assert counts == sorted(counts), "buckets add up"
        assert counts[-1] == self.get_value(f"{name}_count")

    def get_value(self, name: str, **labels: str) -> float:
        return self.samples[ParsedSample(name, tuple(labels.items()))]

    def list_labels(self, name: str, label: str) -> set[str]:
        return {dict(sample.labels)[label] for sample in self.samples if sample.name == name}
