"""Generates relay's TypeScript types from the wire types: what apps send, and what HTTP lists. The document leaves its events
open, so they have one type with undecoded data.

`documents/typescript/relay.ts` holds them; a test compares. `python -m switchtower.protocols.relay.schemas` prints them (`make
schemas`).
"""

import sys
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, inspect

from switchtower.protocols.relay import messages

_ROWS: tuple[type[Struct], ...] = (
    *(messages.RowUsage, messages.RowCriterion, messages.RunRow),
    *(messages.Message, messages.HostRow, messages.Response, messages.Login),
)
_HEAD = """// Made from the wire types by `make schemas`; not to be edited.
// Times are RFC 3339. What is absent was not said, and fields may be added: ignore those that you do not know."""
_EVENT = """// Server → app. `id` is the place in the hub's journal, for paging; what is no part of a run has none.
export interface AppEvent {
  type: string;
  ts: string;
  host_id?: string;
  run_id?: string;
  seq?: number;
  id?: number;
  data: Record<string, unknown>;
}"""
_SUBSCRIPTIONS: Mapping[str, type[Struct]] = {"run.subscribe": messages.Subscribe, "run.unsubscribe": messages.Subscribe}


def generate_source() -> str:
    """Returns the whole file."""
    of_runs = {**messages.COMMAND_DATA, **_SUBSCRIPTIONS}
    run_rpcs = {type_: messages.RPC_DATA[type_] for type_ in messages.RUN_RPCS}
    host_rpcs = {type_: messages.RPC_DATA[type_] for type_ in messages.HOST_RPCS}
    data = dict.fromkeys((*of_runs.values(), *run_rpcs.values(), *host_rpcs.values()))
    parts = [
        _HEAD,
        "// HTTP, and the answers to calls",
        *(_format_interface(row) for row in _ROWS),
        "// The data of what apps send",
        *(_format_interface(struct) for struct in data),
        "// App → server",
        _format_union("RunCommand", of_runs, names="run_id: string"),
        _format_union("RunRpc", run_rpcs, names="run_id: string"),
        _format_union("HostRpc", host_rpcs, names="run_id?: string"),
        "export type AppCommand = RunCommand | RunRpc | HostRpc;",
        _EVENT,
    ]
    return "\n\n".join(parts) + "\n"


def _format_interface(struct: type[Struct]) -> str:
    shown = inspect.type_info(struct)
    assert isinstance(shown, inspect.StructType), "wire types are structs"
    fields = (
        f"\n  {field.encode_name}{'?' if _is_optional(field) else ''}: {_format_type(field.type)};" for field in shown.fields
    )
    return f"export interface {struct.__name__} {{{''.join(fields)}\n}}"


def _format_union(name: str, members: Mapping[str, type[Struct]], *, names: str) -> str:
    lines = "".join(
        f"\n  | {{ type: {_format_literal(type_)}; {names}; data: {data.__name__} }}" for type_, data in members.items()
    )
    return f"export type {name} ={lines};"


def _is_optional(field: inspect.Field) -> bool:
    return not field.required


def _format_literal(value: str) -> str:
    return msgspec.json.encode(value).decode()


def _format_type(of: inspect.Type) -> str:
    match of:
        case inspect.StrType():
            return "string"
        case inspect.IntType() | inspect.FloatType():
            return "number"
        case inspect.BoolType():
            return "boolean"
        case inspect.NoneType():
            return "null"
        case inspect.AnyType() | inspect.RawType():
            return "unknown"
        case inspect.LiteralType(values=values):
            return " | ".join(_format_literal(str(value)) for value in values)
        case inspect.DictType():
            return f"Record<string, {_format_type(of.value_type)}>"
        case inspect.ListType():
            return f"{_format_type(of.item_type)}[]"
        case inspect.StructType():
            return of.cls.__name__
        case inspect.UnionType():
            said = {_format_type(part): part for part in of.types if not _is_unset(part)}
            if "unknown" in said:
                return "unknown"  # which includes everything else
            return " | ".join(sorted(said, key=lambda spelled: spelled == "null"))
    raise TypeError(f"no TypeScript is known for {of}")


def _is_unset(of: Any) -> bool:
    """Unset fields are absent on the wire; the question mark expresses that."""
    return isinstance(of, inspect.CustomType) and of.cls is msgspec.UnsetType


if __name__ == "__main__":
    sys.stdout.write(generate_source())
