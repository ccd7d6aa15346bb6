"""Relay's TypeScript types are made from the wire types, all of them, and what is committed is what is made."""

from pathlib import Path

import pytest

from switchtower.protocols.relay import messages, schemas

COMMITTED = Path(__file__).parents[3] / "documents" / "typescript" / "relay.ts"


def test_the_committed_typescript_is_what_the_wire_types_make() -> None:
    assert COMMITTED.read_text() == schemas.generate_source(), "hint: make schemas"


@pytest.mark.parametrize("type_", [*messages.COMMAND_DATA, *messages.RPC_DATA, "run.subscribe", "run.unsubscribe"])
def test_everything_that_an_app_may_send_has_its_typescript(type_: str) -> None:
    assert f'{{ type: "{type_}"; run_id' in schemas.generate_source()


@pytest.mark.parametrize(
    "line",
    [
        "  text: string;",
        "  after_id?: number | null;",
        '  signal?: "int" | "kill" | "term" | null;',
        "  online: boolean;",
        "  last_seen_at: string | null;",
        "  pending_request_id?: string;",
        "  error?: string | null;",
        "  result?: unknown;",
        '  | { type: "rpc.run.start"; run_id?: string; data: RunStart }',
    ],
)
def test_absent_and_null_are_told_apart(line: str) -> None:
    assert line in schemas.generate_source().splitlines()


def test_every_type_that_is_named_is_declared() -> None:
    made = schemas.generate_source()
    for data in {*messages.COMMAND_DATA.values(), *messages.RPC_DATA.values(), messages.Subscribe}:
        assert made.count(f"export interface {data.__name__} {{") == 1
