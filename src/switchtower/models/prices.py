"""The price of a call and the context window of a model: as the user configured it, else from the bundled price list, else
unknown. It uses no network; the list is as old as the library that contains it.
"""

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from switchtower.models import entries, port

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider

MILLION = 1_000_000
_SAMPLE = 1_000
"""The tokens of the sample; few enough to stay in the first tier of every price."""


class Price(Struct, frozen=True):
    """US dollars for a million tokens."""

    going_in: float | None
    coming_out: float | None


def compute_cost(entry: entries.ProviderEntry, model: str, usage: port.UsagePart) -> float | None:
    """Returns US dollars; None when no price is known. A configured price counts cached tokens like others."""
    if entry.price_in is not None or entry.price_out is not None:
        return (usage.input_tokens * (entry.price_in or 0.0) + usage.output_tokens * (entry.price_out or 0.0)) / MILLION
    listed = _find_listed(entry, model)
    return _calculate_price(*listed, usage) if listed is not None else None


def find_price(entry: entries.ProviderEntry, model: str) -> Price:
    if entry.price_in is not None or entry.price_out is not None:
        return Price(entry.price_in, entry.price_out)
    listed = _find_listed(entry, model)
    if listed is None:
        return Price(None, None)
    going_in, coming_out = (
        _calculate_price(*listed, port.UsagePart(_SAMPLE, 0)),
        _calculate_price(*listed, port.UsagePart(0, _SAMPLE)),
    )
    return Price(_to_price_per_million(going_in), _to_price_per_million(coming_out))


def is_known(entry: entries.ProviderEntry, model: str) -> bool:
    """Returns whether the bundled price list has this model of the entry's provider."""
    return _find_listed(entry, model) is not None


def find_context_window(entry: entries.ProviderEntry, model: str) -> int | None:
    if entry.context_window is not None:
        return entry.context_window
    listed = _find_listed(entry, model)
    return listed[1].context_window if listed is not None else None


def _to_price_per_million(sample: float | None) -> float | None:
    return None if sample is None else round(sample * MILLION / _SAMPLE, 6)


def _find_listed(entry: entries.ProviderEntry, model: str) -> "tuple[Provider, ModelInfo] | None":
    """A server that the user runs is looked up by its address: a model there may have a famous name and no price."""
    from genai_prices import data_snapshot

    own_address = entry.base_url != entry.provider.base_url
    if entry.provider.price_list is None and not own_address:
        return None
    reference: dict[str, Any] = {
        "provider_id": None if own_address else entry.provider.price_list,
        "provider_api_url": entry.base_url if own_address else None,
    }
    try:
        return data_snapshot.get_snapshot().find_provider_model(model, None, **reference)
    except LookupError:
        return None


def _calculate_price(provider: "Provider", model: "ModelInfo", usage: port.UsagePart) -> float | None:
    from datetime import UTC, datetime

    from genai_prices import Usage

    counted = Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        calculated = model.calc_price(counted, provider, genai_request_timestamp=datetime.now(UTC))
    except (LookupError, ValueError):
        return None  # counts that contradict each other, or a price for something other than tokens
    return float(calculated.total_price)
