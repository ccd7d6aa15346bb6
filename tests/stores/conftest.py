"""Lets pytest explain the contract suite's asserts as it does those of test files."""

import pytest

pytest.register_assert_rewrite("switchtower.testing.journal_contract")
