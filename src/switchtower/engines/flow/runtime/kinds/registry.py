"""From the name of a kind to the kind, loaded when a flow wants it. Refuses, before the run, what cannot be had here."""

import importlib
from collections.abc import Mapping
from typing import Any

from switchtower.engines.flow import ir
from switchtower.engines.flow.runtime import faults
from switchtower.engines.flow.runtime.kinds import catalogue, port

_COROUTINE = 0x80
"""`inspect.CO_COROUTINE`."""


class KindRegistry:
    def __init__(self, more: Mapping[str, port.StepKind] | None = None) -> None:
        """`more` are kinds at hand, which come before those that are looked up."""
        self._loaded: dict[str, port.StepKind] = dict(more or {})

    def load_kind(self, node: ir.FlowNode, setting: port.StepEnvironment) -> port.StepKind:
        """Raises `faults.Invalid` (1002)."""
        name = node.kind
        if name in catalogue.NEED_SHELL and not setting.allow_shell:
            raise _make_unsupported(node, f"`{name}` is not allowed here; hint: the run's `allow_shell` option allows it")
        if name in self._loaded:
            return self._loaded[name]
        if name in catalogue.SESSION_KINDS and setting.tower is None:
            raise _make_unsupported(node, f"`{name}` needs a tower, and this runtime has none; hint: run the flow on a daemon")
        place = catalogue.BUILT_IN.get(name) or catalogue.SESSION_KINDS.get(name) or catalogue.list_plugins().get(name)
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
    """A kind cannot be loaded, or is none. The text says why, without the words of the module."""


def load_class(place: str) -> port.StepKind:
    """The kind at `module:Class`. Raises `Unusable`."""
    module, _, name = place.partition(":")
    try:
        kind = getattr(importlib.import_module(module), name)()
        is_kind = _is_coroutine_function(getattr(kind, "run", None))
    except (Exception, SystemExit) as error:  # a module of others may do anything when it is loaded
        faults.make_panic(error)
        raise InvalidKind(f"cannot be loaded ({type(error).__name__}); hint: stderr has the traceback") from None
    if not is_kind:
        raise InvalidKind(f"is no step kind: `{place[:200]}` has no `async def run(self, given, context)`")
    loaded: port.StepKind = kind
    return loaded


def _is_coroutine_function(run: Any) -> bool:
    """As `inspect` has it, which takes longer to load than a whole small run. An object with `__call__` is given the benefit."""
    code = getattr(run, "__code__", None)
    return callable(run) if code is None else bool(code.co_flags & _COROUTINE)


def _make_unsupported(node: ir.FlowNode, reason: str) -> faults.FlowRejected:
    return faults.FlowRejected(
        faults.UNSUPPORTED_STEP_KIND, f"Unsupported step kind: {reason}", step_id=node.id, details={"kind": node.kind[:100]}
    )
