"""Lets pytest explain the contract suites' asserts as it does those of test files."""

import pytest

pytest.register_assert_rewrite("tests.contracts.journal", "tests.contracts.registry", "tests.contracts.search")
