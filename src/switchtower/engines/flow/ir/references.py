"""References to other values: `$input.a.b` and `$step.id.path` in a node's `with`, `$.inputs.x` and `$.vars.step.field` as the
key of a switch. The executor resolves them in a run.

Only a whole string is a reference; `costs $input.x` is plain text. Names may contain dots: the longest one that exists is used.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any, Literal

from msgspec import Struct

from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.ir import schema

Source = Literal["input", "step"]

_PREFIXES: dict[str, Source] = {"$input": "input", "$step": "step"}
_MOST_DOTS = 100
"""The most parts of a name: thousands of them would be tried one by one."""
_END = object()
_NO_MORE: tuple[str | int, Any] = ("", _END)
_KEY_PREFIXES: dict[str, Source] = {"$.inputs": "input", "$.vars": "step"}


class Reference(Struct, frozen=True):
    source: Source
    parts: tuple[str, ...]
    """The parts between the dots, behind the prefix."""

    def split(self, *, inputs: Collection[str], steps: Collection[str]) -> tuple[str, tuple[str, ...]] | None:
        """Returns the name that is referred to, and the path inside it. None when no such name exists.

        The names are those that the flow declares, in the check and in a run alike: the meaning must not depend on whether a step
        ran or an input was given.
        """
        names = inputs if self.source == "input" else steps
        for length in range(min(len(self.parts), _MOST_DOTS), 0, -1):
            if (name := ".".join(self.parts[:length])) in names:
                return name, self.parts[length:]
        return None


def parse_reference(value: object) -> Reference | None:
    """Parses a value in a `with`; returns None for a literal. `$input` alone refers to all inputs."""
    return _parse(value, _PREFIXES)


def parse_key(value: object) -> Reference | None:
    """Parses the key of a switch; returns None when it is not a valid key."""
    reference = _parse(value, _KEY_PREFIXES)
    return reference if reference is not None and all(reference.parts) and reference.parts else None


def _parse(value: object, prefixes: dict[str, Source]) -> Reference | None:
    if isinstance(value, str):
        for prefix, source in prefixes.items():
            if value == prefix:
                return Reference(source, ())
            if value.startswith(f"{prefix}."):
                return Reference(source, tuple(value[len(prefix) + 1 :].split(".")))
    return None


def iterate_references(value: object, path: str) -> Iterator[tuple[Callable[[], str], Reference]]:
    """Yields all references in a value, at any depth, each with a function that returns its path while it is visited.

    The path is built only on demand: in a hostile document a million values share a long one.
    """
    way: list[str | int] = []
    start: tuple[str | int, Any] = ("", value)
    members: list[Iterator[tuple[str | int, Any]]] = [iter([start])]

    def place() -> str:
        return path + "".join(flows.join_path("", step) if isinstance(step, str) else f"[{step}]" for step in way[1:])

    while members:
        key, each = next(members[-1], _NO_MORE)
        del way[len(members) - 1 :]
        if each is _END:
            members.pop()
            continue
        way.append(key)
        if isinstance(each, dict):
            members.append(iter(each.items()))
        elif isinstance(each, list):
            members.append(iter(enumerate(each)))
        elif (reference := parse_reference(each)) is not None:
            yield place, reference


class ReferenceNames(Struct, frozen=True):
    """The names that can be referred to."""

    inputs: dict[str, dict[str, Any]]
    """The inputs as `parser.list_declarations` returns them."""
    are_inputs_closed: bool
    """True when a run cannot be given an input that is not declared."""
    steps: dict[str, int]
    """The node ids, with their places in the document."""
    before: list[int] | None
    """For each node, the nodes that come before it: one bit for each place. None when the order is not known."""


def check_references(node: flows.FlowNode, path: str, names: ReferenceNames, found: flows.FlowProblems) -> None:
    """Checks that each reference of a node exists and has a value before the node runs."""
    for place, reference in iterate_references(node.params, f"{path}.with"):
        _check(node, place, reference, names, found)
    if node.kind == flows.SWITCH and (key := parse_key(node.params.get("key_from"))) is not None:
        _check(node, lambda: f"{path}.with.key_from", key, names, found)


def _check(
    node: flows.FlowNode, place: Callable[[], str], reference: Reference, names: ReferenceNames, found: flows.FlowProblems
) -> None:
    trouble = _find_input_problem(reference, names) if reference.source == "input" else _find_step_problem(node, reference, names)
    if trouble:
        found.add("$" if found.is_full else place(), trouble, node.id)


def _find_input_problem(reference: Reference, names: ReferenceNames) -> str:
    if not all(reference.parts):
        return "a reference has an empty part; hint: write it as `$input.name`"
    if not reference.parts:
        return ""
    meant = reference.split(inputs=names.inputs, steps=names.steps)
    said = flows.clip_name(".".join(reference.parts))
    if meant is None:
        return f"it refers to the input `{said}`, which `inputs_schema` does not have" if names.are_inputs_closed else ""
    name, way = meant
    kind = names.inputs[name]["type"]
    if way and kind not in ("object", "array", None):
        shown = flows.clip_name(name)
        return f"it refers to `{said}`, but the input `{shown}` is {schema.describe_type(kind)} and has nothing inside"
    return ""


def _find_step_problem(node: flows.FlowNode, reference: Reference, names: ReferenceNames) -> str:
    if not reference.parts or not all(reference.parts):
        return "a reference has an empty part; hint: write it as `$step.id.field`"
    meant = reference.split(inputs=names.inputs, steps=names.steps)
    if meant is None:
        return f"it refers to the step `{flows.clip_name('.'.join(reference.parts))}`, which does not exist"
    step, shown = meant[0], flows.clip_name(meant[0])
    if step == node.id:
        return "it refers to its own outcome, which is not known before it ran"
    if names.before is not None and not names.before[names.steps[node.id]] >> names.steps[step] & 1:
        hint = f"hint: let an edge lead from `{shown}` to it, or to a node before it"
        return f"it refers to the step `{shown}`, which does not come before it; {hint}"
    return ""
