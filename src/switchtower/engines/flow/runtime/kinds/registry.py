"""From the name of a kind to the kind, loaded when a flow wants it. Refuses, before the run, what cannot be had here."""

import importlib
from collections.abc import Mapping
from typing import Any

from switchtower.engines.flow import ir
from switchtower.engines.flow.runtime import faults
from switchtower.engines.flow.runtime.kinds import catalogue, port

_COROUTINE = 0x80
"""`inspect.CO_COROUTINE`."""


class Registry:
    def __init__(self, more: Mapping[str, port.Kind] | None = None) -> None:
        """`more` are kinds at hand, which come before those that are looked up."""
        self._loaded: dict[str, port.Kind] = dict(more or {})

    def kind(self, node: ir.Node, setting: port.Setting) -> port.Kind:
        """Raises `faults.Invalid` (1002)."""
        name = node.kind
        if name in catalogue.NEED_SHELL and not setting.allow_shell:
            raise _unsupported(node, f"`{name}` is not allowed here; hint: the run's `allow_shell` option allows it")
        if name in self._loaded:
            return self._loaded[name]
        if name in catalogue.TOWERS and setting.tower is None:
            raise _unsupported(node, f"`{name}` needs a tower, and this runtime has none; hint: run the flow on a daemon")
        place = catalogue.OURS.get(name) or catalogue.TOWERS.get(name) or catalogue.plugins().get(name)
        if place is None:
            raise _unsupported(node, f"`{name[:100]}` is not known here; hint: `tower flow kinds` lists those that are")
        self._loaded[name] = _load(node, place)
        return self._loaded[name]


def _load(node: ir.Node, place: str) -> port.Kind:
    try:
        return load(place)
    except Unusable as unusable:
        raise _unsupported(node, f"`{node.kind[:100]}` {unusable}") from None


class Unusable(Exception):
    """A kind cannot be loaded, or is none. The text says why, without the words of the module."""


def load(place: str) -> port.Kind:
    """The kind at `module:Class`. Raises `Unusable`."""
    module, _, name = place.partition(":")
    try:
        kind = getattr(importlib.import_module(module), name)()
        is_kind = _is_coroutine_function(getattr(kind, "run", None))
    except (Exception, SystemExit) as error:  # a module of others may do anything when it is loaded
        faults.panic(error)
        raise Unusable(f"cannot be loaded ({type(error).__name__}); hint: stderr has the traceback") from None
    if not is_kind:
        raise Unusable(f"is no step kind: `{place[:200]}` has no `async def run(self, given, context)`")
    loaded: port.Kind = kind
    return loaded


def _is_coroutine_function(run: Any) -> bool:
    """As `inspect` has it, which takes longer to load than a whole small run. An object with `__call__` is given the benefit."""
    code = getattr(run, "__code__", None)
    return callable(run) if code is None else bool(code.co_flags & _COROUTINE)


def _unsupported(node: ir.Node, reason: str) -> faults.Invalid:
    return faults.Invalid(
        faults.UNSUPPORTED_STEP_KIND, f"Unsupported step kind: {reason}", step_id=node.id, details={"kind": node.kind[:100]}
    )
