"""From the name of a kind to the kind, loaded when a flow wants it. Refuses, before the run, what cannot be had here."""

import importlib
from collections.abc import Mapping

from switchtower.engines.flow import ir
from switchtower.engines.flow.runtime import faults
from switchtower.engines.flow.runtime.kinds import catalogue, port


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
            raise _unsupported(node, f"`{name[:100]}` is not known here")
        self._loaded[name] = _load(node, place)
        return self._loaded[name]


def _load(node: ir.Node, place: str) -> port.Kind:
    module, _, name = place.partition(":")
    try:
        kind: port.Kind = getattr(importlib.import_module(module), name)()
    except (Exception, SystemExit) as error:  # a module of others may do anything when it is loaded
        faults.panic(error)
        raise _unsupported(node, f"`{node.kind[:100]}` cannot be loaded; hint: the runtime's stderr has the traceback") from None
    return kind


def _unsupported(node: ir.Node, reason: str) -> faults.Invalid:
    return faults.Invalid(
        faults.UNSUPPORTED_STEP_KIND, f"Unsupported step kind: {reason}", step_id=node.id, details={"kind": node.kind[:100]}
    )
