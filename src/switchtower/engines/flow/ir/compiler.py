"""YAML flows become Flow IR. Pure: a text and the time come in, a document goes out. What comes out passes `parse`.

    name: weather                     # required, as are steps
    description: Fetches a forecast   # for people
    timeout: 2m                       # of the whole run; none without it
    policy: default                   # the IR's policyRef
    inputs:
      city: string                    # or {type, default, required, description}
    steps:                            # a list runs from top to bottom, a map as `needs` says
      - id: fetch
        kind: http.get
        with: {url: $input.city}      # literals, $input.name, $step.id.field
        retry: {max: 2, backoff: 1s}  # or a number
        timeout: 10s                  # of each try
        on_failure: alarm             # where to go on after the last failed try
      - id: alarm
        kind: log
    outputs:
      body: $step.fetch.body

`docs/flows.md` tells the rest. Every problem has its line and column.
"""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.ir import parsing, problems, reading, schema, shape, source, wiring
from switchtower.engines.flow.ir import steps as stepping

_KEYS = ("name", "description", "timeout", "policy", "inputs", "steps", "outputs")
_INPUT_KEYS = ("type", "default", "required", "description")
_BOOLEANS = {"true": True, "false": False}


def compile_yaml(text: str, source_file: str | None, now: datetime, *, kinds: Collection[str] | None = None) -> dict[str, Any]:
    """With `kinds`, a step of any other kind is a problem. Raises `source.InvalidSource` with every problem."""
    root = source.read(text, source_file)
    notes = reading.Notes()
    members = reading.Members(root, "a flow", _KEYS, notes)
    name, listed = members.get("name"), members.get("steps")
    if isinstance(root.value, dict):
        for key, item in (("name", name), ("steps", listed)):
            if item is None:
                notes.add(root, f"a flow needs `{key}`")
    steps, in_order = stepping.read(listed, notes) if listed is not None else ([], False)
    outputs = members.get("outputs")
    if outputs is not None and not isinstance(outputs.value, dict):
        notes.add(outputs, "`outputs` must be a map of names and values")
        outputs = None
    metadata = {"generated_at": _spelled(now), "source_file": source_file}
    description = members.text("description")
    document = {
        "version": flows.VERSION,
        "flow": {
            "name": (reading.name(name, "`name`", notes) if name is not None else None) or "unnamed",
            "timeout_ms": members.duration_ms("timeout"),
        },
        "constants": {"policyRef": members.text("policy") or "default", "policy": {}},
        "inputs_schema": _inputs(members.get("inputs"), notes),
        "graph": wiring.graph(steps, outputs, notes, in_order=in_order),
        "metadata": metadata if description is None else {**metadata, "description": description},
    }
    _check(document, steps, outputs, root, notes, kinds)
    if notes.found:
        raise source.InvalidSource(source_file, notes.found)
    return document


def _spelled(now: datetime) -> str:
    return now.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def _inputs(item: source.Item | None, notes: reading.Notes) -> dict[str, dict[str, Any]]:
    if item is None:
        return {}
    if not isinstance(item.value, dict):
        notes.add(item, "`inputs` must be a map of names and types")
        return {}
    return {name: _input(name, said, notes) for name, said in item.value.items()}


def _input(name: str, item: source.Item, notes: reading.Notes) -> dict[str, Any]:
    what = f"the input `{problems.clipped(name)}`"
    if not name or "" in name.split("."):
        notes.add(item, "an input needs a name without empty parts")
    if not isinstance(item.value, dict):
        return {"type": _type(item, what, notes)}
    members = reading.Members(item, what, _INPUT_KEYS, notes)
    kind_item = members.get("type")
    if kind_item is None:
        notes.add(item, f"{what} needs a `type`")
        return {"type": "string"}
    declared: dict[str, Any] = {"type": _type(kind_item, what, notes)}
    if (default := members.get("default")) is not None:
        declared["default"] = _value(default, declared["type"], what, notes)
    if (required := members.get("required")) is not None:
        if not isinstance(required.value, str) or required.value not in _BOOLEANS:
            notes.add(required, "`required` must be `true` or `false`")
        else:
            declared["required"] = _BOOLEANS[required.value]
    if (description := members.text("description")) is not None:
        declared["description"] = description
    return declared


def _type(item: source.Item, what: str, notes: reading.Notes) -> str:
    if isinstance(item.value, str) and item.value in schema.TYPES:
        return item.value
    notes.add(item, f"the type of {what} must be one of {', '.join(f'`{kind}`' for kind in schema.TYPES)}")
    return "string"


def _value(item: source.Item, kind: str, what: str, notes: reading.Notes) -> Any:
    """A default, as the type asks for it. Inside lists and objects, what is written stays a text."""
    value: Any = item.texts()
    if isinstance(value, str) and kind in ("integer", "number"):
        value = _number(value)
    elif isinstance(value, str) and kind == "boolean":
        value = _BOOLEANS.get(value, value)
    if not shape.is_a(value, kind):
        notes.add(item, f"the default of {what} must be {shape.named(kind)}")
    return value


def _number(said: str) -> int | float | str:
    plain = said.lstrip("+-")
    if len(said) > 40 or len(said) - len(plain) > 1 or not plain[:1].isdigit() or "_" in said or not said.isascii():
        return said
    try:
        return int(said) if plain.isdigit() else _finite(float(said), said)
    except ValueError:
        return said


def _finite(value: float, said: str) -> float | str:
    return value if abs(value) != float("inf") else said


def _check(
    document: dict[str, Any],
    steps: list[stepping.Step],
    outputs: source.Item | None,
    root: source.Item,
    notes: reading.Notes,
    kinds: Collection[str] | None,
) -> None:
    """Adds what the check of the IR finds, at its place in the file. Where the file itself has problems, the document may be
    incomplete: only what a step refers to and which kind it has is reported then, and each place once."""
    found = problems.Problems()
    is_clean = not notes.found
    parsing.check(document, found, kinds=kinds, is_wired=is_clean, are_inputs_closed=True)
    places: dict[str, source.Item] = {}
    for index, step in enumerate(steps):
        node = f"$.graph.nodes[{index}]"
        if step.kind_at is not None:
            places[f"{node}.type"] = places[f"{node}.with.key_from"] = step.kind_at
        if step.params is not None:
            places.update(step.params.places(f"{node}.with"))
    if outputs is not None:
        # `wiring` puts the node that emits right behind the steps.
        places.update(outputs.places(f"$.graph.nodes[{len(steps)}].with"))
    by_id = {step.id: step.at for step in steps}
    noted = {(note.line, note.column) for note in notes.found}
    for problem in found.listed:
        place = places.get(problem.path)
        if is_clean:
            notes.add(place or by_id.get(problem.node or "") or root, str(problem))
        elif place is not None and (place.line, place.column) not in noted:
            notes.add(place, str(problem))
