"""Costs and windows: the user's own figures first, then the bundled list, and otherwise nothing."""

import pytest

from switchtower.models import entries, port, providers

USAGE = port.UsagePart(input_tokens=1_000_000, output_tokens=100_000)


def make_entry(kind: str = "anthropic", **table: object) -> entries.ProviderEntry:
    [made] = entries.parse_config_entries({"work": {"provider": kind, **table}})
    return made


def test_a_configured_price_wins() -> None:
    assert entries.compute_cost(make_entry(price_in=10, price_out=20), "claude-sonnet-5-5", USAGE) == pytest.approx(12.0)
    assert entries.compute_cost(make_entry(price_in=10), "claude-sonnet-5-5", USAGE) == pytest.approx(10.0)
    assert entries.find_price(make_entry(price_in=10), "claude-sonnet-5-5") == entries.Price(10.0, None)


def test_the_bundled_list_knows_the_rest_and_that_cached_tokens_are_cheaper() -> None:
    listed = entries.find_price(make_entry(), "claude-sonnet-5-5")
    assert listed.going_in is not None
    assert listed.coming_out is not None
    plain = entries.compute_cost(make_entry(), "claude-sonnet-5-5", USAGE)
    assert plain == pytest.approx(listed.going_in + listed.coming_out / 10)
    cached = entries.compute_cost(
        make_entry(), "claude-sonnet-5-5", port.UsagePart(1_000_000, 100_000, cache_read_tokens=900_000)
    )
    assert cached is not None
    assert plain is not None
    assert cached < plain / 2


def test_an_unknown_model_has_no_price_and_no_window() -> None:
    assert entries.compute_cost(make_entry(), "a model of my own", USAGE) is None
    assert entries.find_context_window(make_entry(), "a model of my own") is None
    assert entries.find_price(make_entry(), "a model of my own") == entries.Price(None, None)


def test_a_server_of_ones_own_is_not_billed_like_the_provider() -> None:
    own = make_entry("openai", base_url="http://127.0.0.1:8000/v1")
    assert entries.compute_cost(own, "gpt-5", USAGE) is None
    assert entries.compute_cost(make_entry("openai"), "gpt-5", USAGE) is not None
    assert entries.compute_cost(make_entry("ollama"), "gpt-oss-20b", USAGE) is None


def test_a_known_address_is_recognised() -> None:
    assert entries.compute_cost(
        make_entry("openai-compatible", base_url="https://api.groq.com/openai/v1"), "openai/gpt-oss-120b", USAGE
    )


def test_the_context_window_is_the_configured_one_or_the_lists() -> None:
    assert entries.find_context_window(make_entry(context_window=4_096), "claude-sonnet-5-5") == 4_096
    assert entries.find_context_window(make_entry(), "claude-sonnet-4-5") == 200_000


def test_counts_that_contradict_each_other_have_no_price() -> None:
    assert entries.compute_cost(make_entry(), "claude-sonnet-5-5", port.UsagePart(10, 5, cache_read_tokens=50)) is None


@pytest.mark.parametrize(
    "provider", [provider for provider in providers.PROVIDERS.values() if provider.model], ids=lambda p: p.kind
)
def test_every_model_that_serves_by_itself_is_one_that_exists(provider: providers.Provider) -> None:
    """A name that is mistyped, or gone from the list, shows here and not at a user's."""
    assert provider.model is not None
    assert entries.find_price(make_entry(provider.kind), provider.model).coming_out
    assert entries.find_context_window(make_entry(provider.kind), provider.model)
