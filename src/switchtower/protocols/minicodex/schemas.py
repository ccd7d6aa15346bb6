"""Generates the protocol's TypeScript types from the wire types, under the names that the document gives them.

`documents/typescript/minicodex.ts` holds them; a test compares. `python -m switchtower.protocols.minicodex.schemas` prints them
(`make schemas`).
"""

import sys
from types import UnionType
from typing import Any, get_args

import msgspec
from msgspec import Struct, inspect

from switchtower.protocols.minicodex import messages

_NAMED: dict[object, str] = {
    messages.SessionState: "SessionState",
    messages.RunState: "RunState",
    messages.ApprovalBrief: "ApprovalBrief",
}
_STATUSES = get_args(messages.RunStatus)
_HEAD = """// Made from the wire types by `make schemas`; not to be edited.
// Times are RFC 3339, ids of runs are UUIDs. What is absent was not said."""


def generate_source() -> str:
    """Returns the whole file."""
    parts = [
        _HEAD,
        f"export type RunStatus =\n  | {' | '.join(_format_literal(status) for status in _STATUSES)};",
        _format_interface(messages.SessionState),
        _format_interface(messages.RunState),
        _format_interface(messages.ApprovalBrief),
        _format_union("TranscriptItem", messages.TranscriptItem),
        "// What any message may carry beside its own fields.\n" + _format_interface(messages.Envelope),
        "// Client → server",
        _format_union("ClientMessage", messages.ClientMessage, beside="Envelope"),
        "// Server → client",
        "// Items of the transcript as they are told, each with its place.\n"
        "export type TranscriptEvent = TranscriptItem & {\n  event_id: number;\n  run_id?: string | null;\n  ts: string;\n};",
        _format_union("ServerEvent", messages.ServerEvent, beside="Envelope"),
        "export type ServerMessage = ServerEvent | TranscriptEvent;",
    ]
    return "\n\n".join(parts) + "\n"


def _format_interface(struct: type[Struct]) -> str:
    lines = "".join(f"\n  {field};" for field in _format_fields(struct))
    return f"export interface {struct.__name__} {{{lines}\n}}"


def _format_union(name: str, union: UnionType, *, beside: str | None = None) -> str:
    members = "".join(f"\n  | {{ {'; '.join(_format_fields(member, but_of=beside))} }}" for member in get_args(union))
    if beside is None:
        return f"export type {name} ={members};"
    return f"export type {name} = {beside} & (\n{members[1:]}\n);"


def _format_fields(struct: type[Struct], *, but_of: str | None = None) -> list[str]:
    """Formats each field as it is declared. Those of the envelope are left out unless the message requires them."""
    shown = inspect.type_info(struct)
    assert isinstance(shown, inspect.StructType), "wire types are structs"
    common = {field.name for field in msgspec.structs.fields(messages.Envelope)} if but_of else set()
    tag = [f"type: {_format_literal(str(shown.tag))}"] if shown.tag is not None and struct is not messages.Envelope else []
    place = ["event_id: number"] if struct in messages.PLACED else []
    declared = [
        f"{field.encode_name}{'' if field.required else '?'}: {_format_type(field.type)}"
        for field in shown.fields
        if field.required or field.name not in common
    ]
    return tag + declared + place


def _format_literal(value: str) -> str:
    return msgspec.json.encode(value).decode()


def _format_type(of: inspect.Type) -> str:
    match of:
        case inspect.StrType() | inspect.DateTimeType():
            return "string"
        case inspect.IntType():
            return "number"
        case inspect.BoolType():
            return "boolean"
        case inspect.NoneType():
            return "null"
        case inspect.AnyType():
            return "unknown"
        case inspect.LiteralType(values=values):
            return "RunStatus" if set(values) == set(_STATUSES) else " | ".join(_format_literal(str(value)) for value in values)
        case inspect.DictType():
            return f"Record<string, {_format_type(of.value_type)}>"
        case inspect.ListType(item_type=inspect.UnionType()):
            return "TranscriptItem[]"
        case inspect.ListType():
            return f"{_format_type(of.item_type)}[]"
        case inspect.StructType():
            return _NAMED[of.cls]
        case inspect.UnionType():
            return " | ".join(_format_type(part) for part in sorted(of.types, key=_is_null))
    raise TypeError(f"no TypeScript is known for {of}")


def _is_null(of: Any) -> bool:
    return isinstance(of, inspect.NoneType)


if __name__ == "__main__":
    sys.stdout.write(generate_source())
