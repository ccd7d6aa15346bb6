"""Provider variables that a shell hands over: which are taken, and that one provider's come from one place."""

import pytest

from switchtower.client import discovery
from switchtower.core import errors
from switchtower.models import providers
from switchtower.models.providers import ProviderVariables

KEY, OTHER = "sk-test-0123456789abcdef", "sk-other-0123456789abcdef"


def test_a_handed_over_key_goes_before_the_daemons_own() -> None:
    held = ProviderVariables({"OPENAI_API_KEY": KEY, "PATH": "/bin"})

    assert held.add_shell_variables({"OPENAI_API_KEY": OTHER})

    assert held.current == {"OPENAI_API_KEY": OTHER, "PATH": "/bin"}
    assert held.started_with["OPENAI_API_KEY"] == KEY
    assert held.describe_source("OPENAI_API_KEY") == "your shell"
    assert not held.add_shell_variables({"OPENAI_API_KEY": OTHER}), "nothing changed"
    assert OTHER not in repr(held)


def test_a_key_of_one_shell_never_meets_the_address_of_another() -> None:
    held = ProviderVariables({"OPENAI_BASE_URL": "http://daemon.test", "GROQ_API_KEY": KEY})

    held.add_shell_variables({"OPENAI_API_KEY": KEY})
    assert held.current == {"OPENAI_API_KEY": KEY, "GROQ_API_KEY": KEY}

    held.add_shell_variables({"OPENAI_BASE_URL": "http://shell.test", "OPENAI_API_KEY": OTHER})
    held.add_shell_variables({"OPENAI_API_KEY": KEY})
    assert held.current == {"OPENAI_API_KEY": KEY, "GROQ_API_KEY": KEY}


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "TOWER_POLICY", "MY_OWN_KEY", "openai_api_key"])
def test_no_other_variable_is_taken(name: str) -> None:
    held = ProviderVariables({})

    with pytest.raises(errors.InvalidCommand):
        held.add_shell_variables({"OPENAI_API_KEY": KEY, name: KEY})

    assert held.current == {}, "all of it or nothing"


@pytest.mark.parametrize("value", ["", "a\nb", "\x1b[31m", "ключ", "k" * (providers.LONGEST_VALUE + 1)])
def test_a_value_that_is_no_plain_text_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(errors.InvalidCommand) as refused:
        ProviderVariables({}).add_shell_variables({"OPENAI_API_KEY": value})

    assert not value or value not in str(refused.value)


def test_a_client_that_looks_only_at_how_names_end_misses_none() -> None:
    assert all(name.endswith(discovery.PROVIDER_VARIABLE_SUFFIXES) for name in providers.NAMES)


def test_a_process_hands_over_what_providers_know_and_nothing_else() -> None:
    environ = {
        "OPENAI_API_KEY": f" {KEY}\n",
        "OLLAMA_HOST": "gpu",
        "GROQ_API_KEY": "",
        "AWS_SECRET_ACCESS_KEY": "x",
        "HOME": "/h",
    }

    assert providers.select_provider_variables(environ) == {"OPENAI_API_KEY": KEY, "OLLAMA_HOST": "gpu"}
