"""Compiles YAML flows to Flow IR. It does no I/O: the text and the time are arguments. The result passes `parse_flow`.

    name: weather                     # required, as are steps
    description: Fetches a forecast   # for people
    timeout: 2m                       # of the whole run; none without it
    policy: default                   # the IR's policyRef
    inputs:
      city: string                    # or {type, default, required, description}
    steps:                            # a list runs from top to bottom, a map by its `needs`
      - id: fetch
        kind: http.get
        with: {url: $input.city}      # literals, $input.name, $step.id.field
        retry: {max: 2, backoff: 1s}  # or a number
        timeout: 10s                  # of each attempt
        on_failure: alarm             # the next step after the last failed attempt
      - id: alarm
        kind: log
    outputs:
      body: $step.fetch.body

`docs/flows.md` has the complete reference. Every problem has its line and column.
"""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from switchtower.engines.flow.ir import flow as flows
from switchtower.engines.flow.ir import parser, schema, source
from switchtower.engines.flow.ir import steps as ir_steps

_KEYS = ("name", "description", "timeout", "policy", "inputs", "steps", "outputs")
_INPUT_KEYS = ("type", "default", "required", "description")
_BOOLEANS = {"true": True, "false": False}


def compile_yaml(text: str, source_file: str | None, now: datetime, *, kinds: Collection[str] | None = None) -> dict[str, Any]:
    """Compiles YAML. With `kinds`, a step of any other kind is a problem. Raises `source.InvalidSource` with every problem."""
    root = source.parse_source(text, source_file)
    notes = source.SourceProblems()
    members = source.MapReader(root, "a flow", _KEYS, notes)
    name, listed = members.get("name"), members.get("steps")
    if isinstance(root.value, dict):
        for key, item in (("name", name), ("steps", listed)):
            if item is None:
                notes.add(root, f"a flow needs `{key}`")
    steps, in_order = ir_steps.read_steps(listed, notes) if listed is not None else ([], False)
    outputs = members.get("outputs")
    if outputs is not None and not isinstance(outputs.value, dict):
        notes.add(outputs, "`outputs` must be a map of names and values")
        outputs = None
    metadata = {"generated_at": _format_time(now), "source_file": source_file}
    description = members.get_text("description")
    document = {
        "version": flows.VERSION,
        "flow": {
            "name": (source.read_name(name, "`name`", notes) if name is not None else None) or "unnamed",
            "timeout_ms": members.get_duration_ms("timeout"),
        },
        "constants": {"policyRef": members.get_text("policy") or "default", "policy": {}},
        "inputs_schema": _read_inputs(members.get("inputs"), notes),
        "graph": ir_steps.build_graph(steps, outputs, notes, in_order=in_order),
        "metadata": metadata if description is None else {**metadata, "description": description},
    }
    _check(document, steps, outputs, root, notes, kinds)
    if notes.found:
        raise source.InvalidSource(source_file, notes.found)
    return document


def _format_time(now: datetime) -> str:
    return now.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def _read_inputs(item: source.SourceItem | None, source_problems: source.SourceProblems) -> dict[str, dict[str, Any]]:
    if item is None:
        return {}
    if not isinstance(item.value, dict):
        source_problems.add(item, "`inputs` must be a map of names and types")
        return {}
    return {name: _read_input(name, said, source_problems) for name, said in item.value.items()}


def _read_input(name: str, item: source.SourceItem, source_problems: source.SourceProblems) -> dict[str, Any]:
    what = f"the input `{flows.clip_name(name)}`"
    if not name or "" in name.split("."):
        source_problems.add(item, "an input needs a name without empty parts")
    if not isinstance(item.value, dict):
        return {"type": _read_type(item, what, source_problems)}
    members = source.MapReader(item, what, _INPUT_KEYS, source_problems)
    kind_item = members.get("type")
    if kind_item is None:
        source_problems.add(item, f"{what} needs a `type`")
        return {"type": "string"}
    declared: dict[str, Any] = {"type": _read_type(kind_item, what, source_problems)}
    if (default := members.get("default")) is not None:
        declared["default"] = _read_default(default, declared["type"], what, source_problems)
    if (required := members.get("required")) is not None:
        if not isinstance(required.value, str) or required.value not in _BOOLEANS:
            source_problems.add(required, "`required` must be `true` or `false`")
        else:
            declared["required"] = _BOOLEANS[required.value]
    if (description := members.get_text("description")) is not None:
        declared["description"] = description
    return declared


def _read_type(item: source.SourceItem, what: str, source_problems: source.SourceProblems) -> str:
    if isinstance(item.value, str) and item.value in schema.TYPES:
        return item.value
    source_problems.add(item, f"the type of {what} must be one of {', '.join(f'`{kind}`' for kind in schema.TYPES)}")
    return "string"


def _read_default(item: source.SourceItem, kind: str, what: str, source_problems: source.SourceProblems) -> Any:
    """Reads a default as its type requires. Inside lists and objects, scalars stay strings."""
    value: Any = item.to_plain()
    if isinstance(value, str) and kind in ("integer", "number"):
        value = _parse_number(value)
    elif isinstance(value, str) and kind == "boolean":
        value = _BOOLEANS.get(value, value)
    if not schema.is_json_type(value, kind):
        source_problems.add(item, f"the default of {what} must be {schema.describe_type(kind)}")
    return value


def _parse_number(text: str) -> int | float | str:
    plain = text.lstrip("+-")
    if len(text) > 40 or len(text) - len(plain) > 1 or not plain[:1].isdigit() or "_" in text or not text.isascii():
        return text
    try:
        return int(text) if plain.isdigit() else _keep_finite(float(text), text)
    except ValueError:
        return text


def _keep_finite(value: float, text: str) -> float | str:
    return value if abs(value) != float("inf") else text


def _check(
    document: dict[str, Any],
    steps: list[ir_steps.SourceStep],
    outputs: source.SourceItem | None,
    root: source.SourceItem,
    source_problems: source.SourceProblems,
    kinds: Collection[str] | None,
) -> None:
    """Adds the problems that the check of the IR finds, at their places in the file. When the file itself has problems, the
    document may be incomplete: then only the references and the kinds of steps are checked, and each place is reported once.
    """
    found = flows.FlowProblems()
    is_clean = not source_problems.found
    parser.check_document(document, found, kinds=kinds, is_wired=is_clean, are_inputs_closed=True)
    places: dict[str, source.SourceItem] = {}
    for index, step in enumerate(steps):
        node = f"$.graph.nodes[{index}]"
        if step.kind_at is not None:
            places[f"{node}.type"] = places[f"{node}.with.key_from"] = step.kind_at
        if step.params is not None:
            places.update(step.params.iterate_paths(f"{node}.with"))
    if outputs is not None:
        # `steps` puts the node that emits right behind the steps.
        places.update(outputs.iterate_paths(f"$.graph.nodes[{len(steps)}].with"))
    by_id = {step.id: step.at for step in steps}
    noted = {(note.line, note.column) for note in source_problems.found}
    for problem in found.listed:
        place = places.get(problem.path)
        if is_clean:
            source_problems.add(place or by_id.get(problem.node or "") or root, str(problem))
        elif place is not None and (place.line, place.column) not in noted:
            source_problems.add(place, str(problem))
