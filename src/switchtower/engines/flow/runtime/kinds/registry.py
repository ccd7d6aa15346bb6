"""Loads a kind by its name when a flow needs it, and refuses unavailable kinds before the run. Also describes each installed
kind, including those of plugins, for people.
"""

import importlib
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from switchtower.engines.flow import ir
from switchtower.engines.flow.runtime import failures
from switchtower.engines.flow.runtime.kinds import catalog, port

_COROUTINE = 0x80
"""`inspect.CO_COROUTINE`."""


class KindRegistry:
    def __init__(self, more: Mapping[str, port.StepKind] | None = None) -> None:
        """`more` are loaded kinds, which take precedence over those that are looked up."""
        self._loaded: dict[str, port.StepKind] = dict(more or {})

    def load_kind(self, node: ir.FlowNode, setting: port.StepEnvironment) -> port.StepKind:
        """Raises `failures.FlowRejected` (1002)."""
        name = node.kind
        if name in catalog.NEED_SHELL and not setting.allow_shell:
            raise _make_unsupported(node, f"`{name}` is not allowed here; hint: the run's `allow_shell` option allows it")
        if name in self._loaded:
            return self._loaded[name]
        if name in catalog.SESSION_KINDS and setting.tower is None:
            raise _make_unsupported(node, f"`{name}` needs a tower, and this runtime has none; hint: run the flow on a daemon")
        place = catalog.BUILT_IN.get(name) or catalog.SESSION_KINDS.get(name) or catalog.list_plugins().get(name)
        if place is None:
            raise _make_unsupported(node, f"`{name[:100]}` is not known here; hint: `tower flow kinds` lists those that are")
        self._loaded[name] = _load(node, place)
        return self._loaded[name]


def _load(node: ir.FlowNode, place: str) -> port.StepKind:
    try:
        return load_class(place)
    except InvalidKind as unusable:
        raise _make_unsupported(node, f"`{node.kind[:100]}` {unusable}") from None


class InvalidKind(Exception):
    """A kind cannot be loaded, or is not a kind. The text gives the reason, without any text of the module."""


def load_class(place: str) -> port.StepKind:
    """Loads the kind at `module:Class`. Raises `InvalidKind`."""
    module, _, name = place.partition(":")
    try:
        kind = getattr(importlib.import_module(module), name)()
        is_kind = _is_coroutine_function(getattr(kind, "run", None))
    except (Exception, SystemExit) as error:  # a foreign module may do anything when it is imported
        failures.make_panic(error)
        raise InvalidKind(f"cannot be loaded ({type(error).__name__}); hint: stderr has the traceback") from None
    if not is_kind:
        raise InvalidKind(f"is no step kind: `{place[:200]}` has no `async def run(self, given, context)`")
    loaded: port.StepKind = kind
    return loaded


def _is_coroutine_function(run: Any) -> bool:
    """Like `inspect.iscoroutinefunction`, but importing `inspect` takes longer than a whole small run. An object with `__call__`
    is accepted.
    """
    code = getattr(run, "__code__", None)
    return callable(run) if code is None else bool(code.co_flags & _COROUTINE)


def _make_unsupported(node: ir.FlowNode, reason: str) -> failures.FlowRejected:
    return failures.FlowRejected(
        failures.UNSUPPORTED_STEP_KIND, f"Unsupported step kind: {reason}", step_id=node.id, details={"kind": node.kind[:100]}
    )


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
    """The reason why it cannot be used."""


def describe_all() -> list[KindDescription]:
    """Describes every kind, sorted by name. A plugin that cannot be loaded is described by its problem."""
    found = [
        KindDescription(kind=kind, source="control", summary=summary, inputs=inputs, outputs=outputs)
        for kind, (summary, inputs, outputs) in _CONTROL.items()
    ]
    found += [_describe_kind(kind, place, "built in") for kind, place in catalog.BUILT_IN.items()]
    found += [_describe_kind(kind, place, "daemon") for kind, place in catalog.SESSION_KINDS.items()]
    found += [_describe_kind(kind, place, place) for kind, place in catalog.list_plugins().items()]
    return sorted(found, key=lambda description: description.kind)


def _describe_kind(kind: str, place: str, source: str) -> KindDescription:
    try:
        loaded = load_class(place)
        summary, inputs, outputs = (getattr(loaded, name, None) for name in ("summary", "inputs", "outputs"))
        return KindDescription(
            kind=_format_line(kind),
            source=_format_line(source),
            summary=_format_line(summary or ""),
            inputs=_format_texts(inputs),
            outputs=_format_texts(outputs),
        )
    except InvalidKind as unusable:
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
    """Returns one printable line of a plugin's text."""
    line = " ".join(str(text)[: _LONGEST * 4].split())
    shown = "".join(letter if letter.isprintable() else "?" for letter in line)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
