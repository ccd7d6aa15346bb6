"""Flow documents for these tests: small ones by hand, and any number of them by chance, valid or spoilt."""

import copy
import random
from typing import Any

from hypothesis import strategies as st

Document = dict[str, Any]

NAMES = st.from_regex(r"[A-Za-z0-9_.-]{1,8}", fullmatch=True)
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31 - 1, 2**31, 2**70, 0.0, 2.0, 2.5, -1.0, float("inf")),
    *("", "a", "a b", "a\n", "ä", "1.0.0", "1.0.0\n", "2.0.0", "success", "failure", "string", "integer", "int"),
    *(
        "2024-06-30T18:25:43Z",
        "2024-06-30t18:25:60.5+23:59",
        "2024-13-30T18:25:43Z",
        "2024-06-30 18:25:43Z",
        "2024-06-30T18:25:43",
    ),
    *([], [1], ["a"], [{}], {}, {"a": 1}, {"max": 1}, {"type": "array"}, {"id": "a", "type": "b"}, {"from": "a", "to": "a"}),
)
"""Values to put where they may not belong."""
VALUES = st.sampled_from(ODD)
MILLISECONDS = st.integers(0, 2**31 - 1)
KEYS = (
    *(
        "version",
        "flow",
        "name",
        "timeout_ms",
        "constants",
        "policyRef",
        "policy",
        "type",
        "nodes",
        "edges",
        "id",
        "with",
        "retry",
    ),
    *("max", "backoff_ms", "from", "to", "on", "case", "generated_at", "source_file", "graph", "metadata", "inputs_schema", "x"),
)


def make_node(identity: str, kind: str = "log", params: Document | None = None, **more: Any) -> Document:
    return {"id": identity, "type": kind, "with": params or {}, "timeout_ms": 0, "retry": {"max": 0, "backoff_ms": 0}, **more}


def make_edge(source: str, target: str, on: str = "success", **more: Any) -> Document:
    return {"from": source, "to": target, "on": on, **more}


def make_document(nodes: list[Document], edges: list[Document] | None = None, inputs: Document | None = None) -> Document:
    return {
        "version": "1.0.0",
        "flow": {"name": "demo", "timeout_ms": 0},
        "constants": {"policyRef": "default", "policy": {}},
        "inputs_schema": inputs or {},
        "graph": {"nodes": nodes, "edges": edges or []},
        "metadata": {"generated_at": "2024-06-30T18:25:43Z", "source_file": "demo.yaml"},
    }


@st.composite
def valid_flows(draw: st.DrawFn) -> Document:
    """A flow without circles, in which members that may be left out sometimes are."""
    ids = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    nodes = [
        draw(
            st.fixed_dictionaries(
                {"id": st.just(identity), "type": st.sampled_from(["log", "http.get", "custom kind"])},
                optional={
                    "with": st.dictionaries(st.text(max_size=4), VALUES, max_size=2),
                    "timeout_ms": MILLISECONDS | st.just(5.0),
                    "retry": st.fixed_dictionaries({}, optional={"max": st.integers(0, 2**40), "backoff_ms": MILLISECONDS}),
                    "note": VALUES,
                },
            )
        )
        for identity in ids
    ]
    pairs = [(source, target) for place, source in enumerate(ids) for target in ids[place + 1 :]]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=6, unique=True)) if pairs else []
    edges = [make_edge(*pair, on=draw(st.sampled_from(["success", "failure"]))) for pair in chosen]
    inputs = draw(
        st.dictionaries(NAMES, st.fixed_dictionaries({"type": st.sampled_from(["string", "number", "array"])}), max_size=3)
    )
    return {**make_document(nodes, edges, inputs), **draw(st.dictionaries(st.just("more"), VALUES, max_size=1))}


def spoil_flow(flow: Document, chance: random.Random) -> object:
    """The same with up to three changes anywhere in it. It may be valid still."""
    changed: Any = copy.deepcopy(flow)
    for _ in range(chance.randint(1, 3)):
        target = chance.choice(_list_containers(changed))
        odd = copy.deepcopy(chance.choice(ODD))
        way = chance.choice(("replace", "replace", "delete", "add"))
        if target and way != "add":
            place = chance.choice(list(target) if isinstance(target, dict) else range(len(target)))
            if way == "replace":
                target[place] = odd
            else:
                del target[place]
        elif isinstance(target, dict):
            target[chance.choice(KEYS)] = odd
        else:
            target.append(odd)
    return changed


def _list_containers(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [] if inner is None else [value, *(each for one in inner for each in _list_containers(one))]
