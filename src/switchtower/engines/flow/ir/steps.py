"""The steps of a YAML flow, and the graph that follows from them: steps become nodes, and their relations become edges.

In a list a step follows the one above it, unless it has `needs` or another step leads to it: a case of a switch, or an
`on_failure`. Steps without a successor lead to the end: a `dsl.emit` with the outputs, where there are any, and a `finish`.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.ir import references, source

_KEYS = ("id", "kind", "with", "retry", "timeout", "needs", "on_failure", "switch", "cases", "default", "description")
_ONLY_OF_A_SWITCH = ("cases", "default")
_NOT_OF_A_SWITCH = ("kind", "with", "retry", "timeout")

NamedTarget = tuple[str, source.SourceItem]
"""The id of a step, and the position where it was named."""


class SourceStep(Struct, frozen=True, kw_only=True):
    id: str
    at: source.SourceItem
    kind: str
    kind_at: source.SourceItem | None = None
    """The position of its kind, or of its switch key."""
    params: source.SourceItem | None = None
    timeout_ms: int = 0
    retry: flows.RetryPolicy = flows.RetryPolicy()
    description: str | None = None
    needs: list[NamedTarget] | None = None
    """None when the step has no `needs`."""
    on_failure: list[NamedTarget] = []
    key_from: str = ""
    cases: dict[str, NamedTarget] = {}
    """The cases of a switch; `_DEFAULT` is its default."""

    def make_node(self) -> dict[str, Any]:
        node: dict[str, Any] = {"id": self.id, "type": self.kind, "with": self._make_params(), "timeout_ms": self.timeout_ms}
        node["retry"] = {"max": self.retry.max, "backoff_ms": self.retry.backoff_ms}
        return node if self.description is None else {**node, "description": self.description}

    def _make_params(self) -> Any:
        if self.kind != flows.SWITCH:
            return {} if self.params is None else self.params.to_plain()
        cases = {case: target for case, (target, _) in self.cases.items()}
        return {"key_from": self.key_from, "cases": cases, "default": cases.get(flows.OTHERWISE)}


def read_steps(item: source.SourceItem, source_problems: source.SourceProblems) -> tuple[list[SourceStep], bool]:
    """Returns the steps, and whether they are a list, which runs from top to bottom."""
    in_order = isinstance(item.value, list)
    found: list[SourceStep] = []
    seen: dict[str, source.SourceItem] = {}
    if isinstance(item.value, list):
        entries = [(each.value.get("id") if isinstance(each.value, dict) else None, each) for each in item.value]
    elif isinstance(item.value, dict):
        entries = [(source.SourceItem(key, *item.keys[key]), each) for key, each in item.value.items()]
    else:
        source_problems.add(item, "`steps` must be a list of steps, or a map of ids and steps")
        return [], False
    if not entries:
        source_problems.add(item, "`steps` must not be empty")
    for named, each in entries:
        if named is None:
            source_problems.add(each, "a step in a list needs an `id`")
        elif (identity := source.read_name(named, "the id of a step", source_problems)) is not None:
            if identity in seen:
                source_problems.add(
                    named, f"another step is called `{identity}` too, in line {seen[identity].line}; hint: ids are unique"
                )
            seen.setdefault(identity, named)
            found.append(_read_step(identity, named, each, source_problems, in_list=in_order))
    return found, in_order


def _read_step(
    identity: str, at: source.SourceItem, item: source.SourceItem, source_problems: source.SourceProblems, *, in_list: bool
) -> SourceStep:
    keys = _KEYS if in_list else _KEYS[1:]
    members = source.MapReader(item, f"the step `{flows.clip_name(identity)}`", keys, source_problems)
    said = SourceStep(
        id=identity,
        at=at,
        kind=flows.SWITCH,
        description=members.get_text("description"),
        needs=members.get_names("needs"),
        on_failure=members.get_names("on_failure") or [],
    )
    if (key := members.get("switch")) is not None:
        _refuse(members, _NOT_OF_A_SWITCH, "a step with `switch` only chooses; it has no", source_problems)
        return _read_switch(said, key, members, source_problems)
    _refuse(members, _ONLY_OF_A_SWITCH, "only a step with `switch` has", source_problems)
    kind = members.get_text("kind")
    if kind is None and isinstance(item.value, dict) and members.get("kind") is None:
        source_problems.add(at, f"the step `{flows.clip_name(identity)}` needs a `kind`, such as `http.get`, or a `switch`")
    kind_item = members.get("kind")
    if kind_item is not None and (kind in flows.CONTROL_KINDS or kind == ""):
        source_problems.add(
            kind_item, "`kind` must name work to do; hint: `switch` chooses, `outputs` emits, and the end comes by itself"
        )
    params = members.get("with")
    if params is not None and not isinstance(params.value, dict):
        source_problems.add(params, "`with` must be a map")
        params = None
    return SourceStep(
        id=identity,
        at=at,
        kind=kind or "unknown",
        kind_at=kind_item if kind else None,
        params=params,
        timeout_ms=members.get_duration_ms("timeout"),
        retry=_read_retry(members.get("retry"), source_problems),
        description=said.description,
        needs=said.needs,
        on_failure=said.on_failure,
    )


def _refuse(members: source.MapReader, keys: tuple[str, ...], message: str, source_problems: source.SourceProblems) -> None:
    for key in keys:
        if (item := members.get(key)) is not None:
            source_problems.add(item, f"{message} `{key}`")


def _read_switch(
    step: SourceStep, key: source.SourceItem, members: source.MapReader, source_problems: source.SourceProblems
) -> SourceStep:
    cases: dict[str, NamedTarget] = {}
    listed = members.get("cases")
    if listed is not None and not isinstance(listed.value, dict):
        source_problems.add(listed, "`cases` must be a map of values and steps")
    elif listed is not None and isinstance(listed.value, dict):
        for case, target in listed.value.items():
            if (to := source.read_text(target, "the step of a case", source_problems)) is not None:
                cases[case] = (to, target)
    default = members.get("default")
    if default is not None and (to := source.read_text(default, "`default`", source_problems)) is not None:
        if cases.get(flows.OTHERWISE, (to, default))[0] != to:
            source_problems.add(default, f"`default` and the case `{flows.OTHERWISE}` disagree; hint: keep one")
        cases[flows.OTHERWISE] = (to, default)
    if listed is None and default is None:
        source_problems.add(key, "a switch needs `cases`, a `default`, or both")
    return SourceStep(
        id=step.id,
        at=step.at,
        kind=flows.SWITCH,
        kind_at=key,
        description=step.description,
        needs=step.needs,
        on_failure=step.on_failure,
        key_from=_read_key(key, source_problems),
        cases=cases,
    )


def _read_key(item: source.SourceItem, source_problems: source.SourceProblems) -> str:
    """Returns the key of a switch in the flow's own spelling; the spelling of other references is accepted too."""
    reference = references.parse_key(item.value) or references.parse_reference(item.value)
    if reference is None or not reference.parts or not all(reference.parts):
        source_problems.add(item, "`switch` must say what it looks at; hint: `$input.name` or `$step.id.field`")
        return "$.inputs.unknown"
    return f"{'$.inputs' if reference.source == 'input' else '$.vars'}.{'.'.join(reference.parts)}"


def _read_retry(item: source.SourceItem | None, source_problems: source.SourceProblems) -> flows.RetryPolicy:
    """Parses `3`, or `{max: 3, backoff: 500ms}`."""
    if item is None:
        return flows.RetryPolicy()
    if not isinstance(item.value, dict):
        return flows.RetryPolicy(source.read_count(item, "`retry`", source_problems))
    members = source.MapReader(item, "`retry`", ("max", "backoff"), source_problems)
    most = members.get("max")
    return flows.RetryPolicy(
        0 if most is None else source.read_count(most, "`max`", source_problems), members.get_duration_ms("backoff")
    )


SourceEdge = dict[str, Any]


def build_graph(
    steps: list[SourceStep],
    outputs: source.SourceItem | None,
    source_problems: source.SourceProblems,
    *,
    in_order: bool,
) -> dict[str, Any]:
    by_id = {step.id: step for step in steps}
    edges: dict[tuple[str, ...], SourceEdge] = {}

    def lead(origin: str, target: str, on: str, case: str | None = None) -> None:
        edge = {"from": origin, "to": target, "on": on}
        edges.setdefault((origin, target, on, case or ""), edge if case is None else {**edge, "case": case})

    for step, needs in _collect_needs(steps, source_problems, in_order=in_order):
        for needed, at in _keep_known(needs, by_id, source_problems):
            if by_id[needed].kind == flows.SWITCH:
                source_problems.add(
                    at, f"`{needed}` is a switch, and its cases say what follows; hint: name this step in a case of it"
                )
            lead(needed, step.id, "success")
    for step in steps:
        for case, (target, at) in step.cases.items():
            if _keep_known([(target, at)], by_id, source_problems):
                lead(step.id, target, "success", case)
        for target, _ in _keep_known(step.on_failure, by_id, source_problems):
            lead(step.id, target, "failure")

    nodes = [step.make_node() for step in steps]
    goes_on = {edge["from"] for edge in edges.values() if edge["on"] == "success"}
    ends = [step.id for step in steps if step.id not in goes_on]
    taken = set(by_id)
    if outputs is not None and outputs.value:
        nodes.append(_make_end_node("outputs", flows.EMIT, taken, outputs.to_plain()))
        for end in ends:
            lead(end, nodes[-1]["id"], "success")
        ends = [nodes[-1]["id"]]
    nodes.append(_make_end_node("finish", flows.FINISH, taken, {}))
    for end in ends:
        lead(end, nodes[-1]["id"], "success")
    return {"nodes": nodes, "edges": list(edges.values())}


def _collect_needs(
    steps: list[SourceStep], source_problems: source.SourceProblems, *, in_order: bool
) -> Iterator[tuple[SourceStep, list[NamedTarget]]]:
    """Yields each step with the steps that it follows."""
    led_to = {target for each in steps for target, _ in [*each.cases.values(), *each.on_failure]}
    above: SourceStep | None = None
    for step in steps:
        if step.needs is not None or not in_order or above is None or step.id in led_to:
            yield step, step.needs or []
        elif above.kind == flows.SWITCH:
            source_problems.add(
                step.at, "the step above is a switch, and no case leads here; hint: name this step in one, or say `needs`"
            )
        elif above.id in led_to:
            # The file does not state whether it follows only that step, or every path.
            hint = f"hint: say `needs: {flows.clip_name(above.id)}`, or name all steps that it follows"
            source_problems.add(step.at, f"the step above runs only sometimes, so what this one follows is not clear; {hint}")
        else:
            yield step, [(above.id, step.at)]
        above = step


def _keep_known(
    named: list[NamedTarget], by_id: dict[str, SourceStep], source_problems: source.SourceProblems
) -> list[NamedTarget]:
    for name, at in named:
        if name not in by_id:
            source_problems.add(at, f"there is no step `{flows.clip_name(name)}`")
    return [(name, at) for name, at in named if name in by_id]


def _make_end_node(name: str, kind: str, taken: set[str], params: Any) -> dict[str, Any]:
    while name in taken:
        name += "_"
    return {"id": name, "type": kind, "with": params, "timeout_ms": 0, "retry": {"max": 0, "backoff_ms": 0}}
