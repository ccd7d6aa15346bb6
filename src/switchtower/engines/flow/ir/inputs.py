"""What a run is given, against the `inputs_schema` of its flow. Pure.

An input may say more than its type: with `required: false` it may be left out, with a `default` that is used instead.
"""

import itertools
from typing import Any

from switchtower.engines.flow.ir import problems, shape

_MOST_COMPARED = 200
"""Names that a misspelt one is compared with."""


def check(inputs_schema: dict[str, dict[str, Any]], inputs: object, *, closed: bool = True) -> dict[str, Any]:
    """The inputs with their defaults. Raises `InvalidFlow` with all that is wrong; `closed` minds inputs that nobody declared."""
    found = problems.Problems()
    if not isinstance(inputs, dict):
        found.add("$", "inputs must be an object of names and values")
        found.raise_any()
        return {}
    complete = {name: said["default"] for name, said in inputs_schema.items() if "default" in said} | inputs
    for name, said in inputs_schema.items():
        shown = problems.clipped(name)
        if name in complete:
            if not shape.is_a(complete[name], said["type"]):
                found.add(problems.member("$", name), f"the input `{shown}` must be {shape.named(said['type'])}")
        elif said.get("required") is not False:
            found.add("$", f"the input `{shown}` is missing; it must be {shape.named(said['type'])}")
    known = [name for name in itertools.islice(inputs_schema, _MOST_COMPARED) if len(name) <= 100]
    for name in inputs if closed else ():
        if name not in inputs_schema:
            import difflib  # late: only for this hint

            near = difflib.get_close_matches(str(name)[:100], known, n=1)
            hint = f"; hint: `{near[0]}`?" if near else ""
            found.add(problems.member("$", str(name)), f"the flow has no input `{problems.clipped(str(name))}`{hint}")
            if found.full:
                break
    found.raise_any()
    return complete
