"""Lets pytest explain the contract suites' asserts as it does those of test files."""

import pytest

pytest.register_assert_rewrite(
    "switchtower.testing.journal_contract", "switchtower.testing.registry_contract", "switchtower.testing.search_contract"
)
