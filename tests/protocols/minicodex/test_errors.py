"""The table from core errors to MiniCodex's codes: complete, and true to what each error says."""

from collections.abc import Iterator
from typing import get_args

import pytest

from switchtower.core import errors as core_errors
from switchtower.protocols.minicodex import errors


def list_subclasses(kind: type[core_errors.CoreError] = core_errors.CoreError) -> Iterator[type[core_errors.CoreError]]:
    for below in kind.__subclasses__():
        yield below
        yield from list_subclasses(below)


@pytest.mark.parametrize("kind", sorted(list_subclasses(), key=str))
def test_a_core_error_has_a_code_and_says_what_it_is_about(kind: type[core_errors.CoreError]) -> None:
    code, message = errors.convert_core_error(kind("about `this`", hint="do that"))
    assert code in get_args(errors.Code)
    assert kind.__doc__ is not None
    assert message == f"{kind.__doc__.rstrip('.')}: about `this`; hint: do that"


def test_the_table_has_no_row_that_is_no_core_error() -> None:
    assert set(errors.TABLE) == set(list_subclasses())


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (core_errors.RunInProgress(), "BUSY"),
        (core_errors.NoActiveRun(), "NOT_RUNNING"),
        (core_errors.ApprovalClosed(), "APPROVAL_CONFLICT"),
        (core_errors.ApprovalNotFound(), "UNKNOWN_CALL_ID"),
    ],
)
def test_the_documents_own_codes_are_at_their_place(refusal: core_errors.CoreError, code: str) -> None:
    assert errors.convert_core_error(refusal)[0] == code


def test_while_another_run_is_active_the_one_that_was_meant_is_stale() -> None:
    assert errors.convert_core_error(core_errors.NoActiveRun("run_1"), running=True)[0] == "STALE_RUN_ID"
    assert errors.convert_core_error(core_errors.RunInProgress(), running=True)[0] == "BUSY"
