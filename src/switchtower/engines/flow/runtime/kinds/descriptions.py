"""What each step kind does, takes and gives, for people. Loads every kind that is installed, those of plugins too."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from switchtower.engines.flow.runtime.kinds import catalogue, registry

_LONGEST = 200
_MOST_NAMES = 50

_CONTROL = {
    "switch": (
        "Continue with the step of a case, by a value",
        {
            "key_from": "`$.inputs.NAME` or `$.vars.STEP.FIELD`",
            "cases": "value to step; `_DEFAULT` for all others",
            "default": "a step",
        },
        {"key": "the value", "chosen": "the step"},
    ),
    "dsl.emit": ("Add to the outputs of the flow", {"…": "names and values"}, {"…": "the same"}),
    "finish": ("End the flow", {}, {}),
}


class Description(Struct, frozen=True, kw_only=True):
    kind: str
    source: str
    """`built in`, `control`, `daemon`, or the plugin's class."""
    summary: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    problem: str | None = None
    """Why it cannot be used."""


def describe_all() -> list[Description]:
    """Every kind, sorted by name. A plugin that cannot be loaded is described by its problem."""
    found = [
        Description(kind=kind, source="control", summary=summary, inputs=inputs, outputs=outputs)
        for kind, (summary, inputs, outputs) in _CONTROL.items()
    ]
    found += [_describe(kind, place, "built in") for kind, place in catalogue.OURS.items()]
    found += [_describe(kind, place, "daemon") for kind, place in catalogue.TOWERS.items()]
    found += [_describe(kind, place, place) for kind, place in catalogue.plugins().items()]
    return sorted(found, key=lambda description: description.kind)


def _describe(kind: str, place: str, source: str) -> Description:
    try:
        loaded = registry.load(place)
        summary, inputs, outputs = (getattr(loaded, name, None) for name in ("summary", "inputs", "outputs"))
        return Description(
            kind=_line(kind), source=_line(source), summary=_line(summary or ""), inputs=_texts(inputs), outputs=_texts(outputs)
        )
    except registry.Unusable as unusable:
        problem = f"it {unusable}"
    except Exception as error:  # a plugin's attributes may be anything
        problem = f"it cannot be described ({type(error).__name__})"
    return Description(kind=_line(kind), source=_line(source), summary="", inputs={}, outputs={}, problem=problem)


def _texts(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        return {}
    return {_line(name): _line(given[name]) for name in list(given)[:_MOST_NAMES]}


def _line(text: Any) -> str:
    """One printable line of a plugin's words."""
    line = " ".join(str(text)[: _LONGEST * 4].split())
    shown = "".join(letter if letter.isprintable() else "?" for letter in line)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
