"""The steps of a YAML flow: what each says, and which edges follow from that. Pure."""

from typing import Any

from msgspec import Struct

from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.ir import problems, reading, references, source

_KEYS = ("id", "kind", "with", "retry", "timeout", "needs", "on_failure", "switch", "cases", "default", "description")
_ONLY_OF_A_SWITCH = ("cases", "default")
_NOT_OF_A_SWITCH = ("kind", "with", "retry", "timeout")

Named = tuple[str, source.Item]
"""The id of a step, and where it was named."""


class Step(Struct, frozen=True, kw_only=True):
    id: str
    at: source.Item
    kind: str
    kind_at: source.Item | None = None
    """Where it names its kind, or what it switches on."""
    params: source.Item | None = None
    timeout_ms: int = 0
    retry: flows.Retry = flows.Retry()
    description: str | None = None
    needs: list[Named] | None = None
    """None when it does not say."""
    on_failure: list[Named] = []
    key_from: str = ""
    cases: dict[str, Named] = {}
    """Of a switch; `_DEFAULT` is its default."""

    def node(self) -> dict[str, Any]:
        node: dict[str, Any] = {"id": self.id, "type": self.kind, "with": self._with(), "timeout_ms": self.timeout_ms}
        node["retry"] = {"max": self.retry.max, "backoff_ms": self.retry.backoff_ms}
        return node if self.description is None else {**node, "description": self.description}

    def _with(self) -> Any:
        if self.kind != flows.SWITCH:
            return {} if self.params is None else self.params.texts()
        cases = {case: target for case, (target, _) in self.cases.items()}
        return {"key_from": self.key_from, "cases": cases, "default": cases.get(flows.OTHERWISE)}


def read(item: source.Item, notes: reading.Notes) -> tuple[list[Step], bool]:
    """The steps, and whether they were a list, which is run from top to bottom."""
    in_order = isinstance(item.value, list)
    found: list[Step] = []
    seen: dict[str, source.Item] = {}
    if isinstance(item.value, list):
        entries = [(each.value.get("id") if isinstance(each.value, dict) else None, each) for each in item.value]
    elif isinstance(item.value, dict):
        entries = [(source.Item(key, *item.keys[key]), each) for key, each in item.value.items()]
    else:
        notes.add(item, "`steps` must be a list of steps, or a map of ids and steps")
        return [], False
    if not entries:
        notes.add(item, "`steps` must not be empty")
    for named, each in entries:
        if named is None:
            notes.add(each, "a step in a list needs an `id`")
        elif (identity := reading.name(named, "the id of a step", notes)) is not None:
            if identity in seen:
                notes.add(named, f"another step is called `{identity}` too, in line {seen[identity].line}; hint: ids are unique")
            seen.setdefault(identity, named)
            found.append(_step(identity, named, each, notes, in_list=in_order))
    return found, in_order


def _step(identity: str, at: source.Item, item: source.Item, notes: reading.Notes, *, in_list: bool) -> Step:
    keys = _KEYS if in_list else _KEYS[1:]
    members = reading.Members(item, f"the step `{problems.clipped(identity)}`", keys, notes)
    said = Step(
        id=identity,
        at=at,
        kind=flows.SWITCH,
        description=members.text("description"),
        needs=members.names("needs"),
        on_failure=members.names("on_failure") or [],
    )
    if (key := members.get("switch")) is not None:
        _refuse(members, _NOT_OF_A_SWITCH, "a step with `switch` only chooses; it has no", notes)
        return _switch(said, key, members, notes)
    _refuse(members, _ONLY_OF_A_SWITCH, "only a step with `switch` has", notes)
    kind = members.text("kind")
    if kind is None and isinstance(item.value, dict) and members.get("kind") is None:
        notes.add(at, f"the step `{problems.clipped(identity)}` needs a `kind`, such as `http.get`, or a `switch`")
    kind_item = members.get("kind")
    if kind_item is not None and (kind in flows.CONTROL_KINDS or kind == ""):
        notes.add(kind_item, "`kind` must name work to do; hint: `switch` chooses, `outputs` emits, and the end comes by itself")
    params = members.get("with")
    if params is not None and not isinstance(params.value, dict):
        notes.add(params, "`with` must be a map")
        params = None
    return Step(
        id=identity,
        at=at,
        kind=kind or "unknown",
        kind_at=kind_item if kind else None,
        params=params,
        timeout_ms=members.duration_ms("timeout"),
        retry=_retry(members.get("retry"), notes),
        description=said.description,
        needs=said.needs,
        on_failure=said.on_failure,
    )


def _refuse(members: reading.Members, keys: tuple[str, ...], message: str, notes: reading.Notes) -> None:
    for key in keys:
        if (item := members.get(key)) is not None:
            notes.add(item, f"{message} `{key}`")


def _switch(said: Step, key: source.Item, members: reading.Members, notes: reading.Notes) -> Step:
    cases: dict[str, Named] = {}
    listed = members.get("cases")
    if listed is not None and not isinstance(listed.value, dict):
        notes.add(listed, "`cases` must be a map of values and steps")
    elif listed is not None and isinstance(listed.value, dict):
        for case, target in listed.value.items():
            if (to := reading.text(target, "the step of a case", notes)) is not None:
                cases[case] = (to, target)
    default = members.get("default")
    if default is not None and (to := reading.text(default, "`default`", notes)) is not None:
        if cases.get(flows.OTHERWISE, (to, default))[0] != to:
            notes.add(default, f"`default` and the case `{flows.OTHERWISE}` disagree; hint: keep one")
        cases[flows.OTHERWISE] = (to, default)
    if listed is None and default is None:
        notes.add(key, "a switch needs `cases`, a `default`, or both")
    return Step(
        id=said.id,
        at=said.at,
        kind=flows.SWITCH,
        kind_at=key,
        description=said.description,
        needs=said.needs,
        on_failure=said.on_failure,
        key_from=_key(key, notes),
        cases=cases,
    )


def _key(item: source.Item, notes: reading.Notes) -> str:
    """The flow's own spelling of what a switch looks at; that of other values is understood too."""
    reference = references.read_key(item.value) or references.read(item.value)
    if reference is None or not reference.parts or not all(reference.parts):
        notes.add(item, "`switch` must say what it looks at; hint: `$input.name` or `$step.id.field`")
        return "$.inputs.unknown"
    return f"{'$.inputs' if reference.source == 'input' else '$.vars'}.{'.'.join(reference.parts)}"


def _retry(item: source.Item | None, notes: reading.Notes) -> flows.Retry:
    """`3`, or `{max: 3, backoff: 500ms}`."""
    if item is None:
        return flows.Retry()
    if not isinstance(item.value, dict):
        return flows.Retry(reading.count(item, "`retry`", notes))
    members = reading.Members(item, "`retry`", ("max", "backoff"), notes)
    most = members.get("max")
    return flows.Retry(0 if most is None else reading.count(most, "`max`", notes), members.duration_ms("backoff"))
