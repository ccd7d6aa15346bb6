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


class KindDescription(Struct, frozen=True, kw_only=True):
    kind: str
    source: str
    """`built in`, `control`, `daemon`, or the plugin's class."""
    summary: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    problem: str | None = None
    """Why it cannot be used."""


def describe_all() -> list[KindDescription]:
    """Every kind, sorted by name. A plugin that cannot be loaded is described by its problem."""
    found = [
        KindDescription(kind=kind, source="control", summary=summary, inputs=inputs, outputs=outputs)
        for kind, (summary, inputs, outputs) in _CONTROL.items()
    ]
    found += [_describe_kind(kind, place, "built in") for kind, place in catalogue.BUILT_IN.items()]
    found += [_describe_kind(kind, place, "daemon") for kind, place in catalogue.SESSION_KINDS.items()]
    found += [_describe_kind(kind, place, place) for kind, place in catalogue.list_plugins().items()]
    return sorted(found, key=lambda description: description.kind)


def _describe_kind(kind: str, place: str, source: str) -> KindDescription:
    try:
        loaded = registry.load_class(place)
        summary, inputs, outputs = (getattr(loaded, name, None) for name in ("summary", "inputs", "outputs"))
        return KindDescription(
            kind=_format_line(kind),
            source=_format_line(source),
            summary=_format_line(summary or ""),
            inputs=_format_texts(inputs),
            outputs=_format_texts(outputs),
        )
    except registry.InvalidKind as unusable:
        problem = f"it {unusable}"
    except Exception as error:  # a plugin's attributes may be anything
        problem = f"it cannot be described ({type(error).__name__})"
    return KindDescription(
        kind=_format_line(kind), source=_format_line(source), summary="", inputs={}, outputs={}, problem=problem
    )


def _format_texts(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        return {}
    return {_format_line(name): _format_line(given[name]) for name in list(given)[:_MOST_NAMES]}


def _format_line(text: Any) -> str:
    """One printable line of a plugin's words."""
    line = " ".join(str(text)[: _LONGEST * 4].split())
    shown = "".join(letter if letter.isprintable() else "?" for letter in line)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
