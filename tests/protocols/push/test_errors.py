"""The table from core errors to push's codes: complete, and true to what each error says."""

from collections.abc import Iterator

import pytest
from msgspec import UNSET

from switchtower.core import errors as core_errors
from switchtower.protocols.push import errors, messages


def list_subclasses(kind: type[core_errors.CoreError] = core_errors.CoreError) -> Iterator[type[core_errors.CoreError]]:
    for below in kind.__subclasses__():
        yield below
        yield from list_subclasses(below)


@pytest.mark.requirement("push:error:shape")
@pytest.mark.parametrize("kind", sorted(list_subclasses(), key=str))
def test_a_core_error_has_a_code_of_the_document(kind: type[core_errors.CoreError]) -> None:
    wire = errors.convert_core_error(kind("about `this`", hint="do that"))
    assert wire.code in messages.ErrorCode.__args__  # type: ignore[attr-defined]
    assert wire.retryable is kind.retryable
    assert kind.__doc__ is not None
    assert wire.message == f"{kind.__doc__.rstrip('.')}: about `this`; hint: do that"


def test_the_table_has_no_row_that_is_no_core_error() -> None:
    assert set(errors.TABLE) == set(list_subclasses())


def test_every_code_of_the_document_is_used_somewhere() -> None:
    made_at_the_door = {"UNSUPPORTED_PROTOCOL_VERSION", "UNSUPPORTED_REQUEST_TYPE"}
    assert {*errors.TABLE.values(), *made_at_the_door} == set(messages.ErrorCode.__args__)  # type: ignore[attr-defined]


@pytest.mark.requirement("push:error:INTERNAL_ERROR")
def test_our_own_bugs_have_no_detail() -> None:
    assert errors.INTERNAL.code == "INTERNAL_ERROR"
    assert not errors.INTERNAL.retryable
    assert errors.INTERNAL.detail is UNSET
