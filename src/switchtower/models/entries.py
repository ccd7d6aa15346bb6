"""The configured providers: one `ProviderEntry` for each `[models.NAME]` of the file, and one for each provider that the
environment configures.

It parses its arguments and does no I/O. A mistake in the file is refused with the key's name and a remedy; an entry whose key is
merely missing cannot be used yet, which is not a mistake.

The price of a call and the context window of a model: as the user configured it, else from the bundled price list, else
unknown. It uses no network; the list is as old as the library that contains it."""

import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from switchtower.models import port, providers
from switchtower.settings.sources import ConfigError

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider


def shorten_value(text: str) -> str:
    text = "".join(character if character.isprintable() else "?" for character in text[:65])
    return text if len(text) <= 64 else f"{text[:64]}…"


THINKING = ("off", "minimal", "low", "medium", "high", "xhigh")
LONGEST_NAME = 200

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SOURCE = "the configuration file"


class ProviderEntry(Struct, frozen=True, kw_only=True):
    """A provider under the name that sessions use. It knows the source of a key, and never the key."""

    name: str
    provider: providers.Provider
    source: str
    """`config` or `environment`."""
    base_url: str | None = None
    model: str | None = None
    key_env: str | None = None
    key_command: tuple[str, ...] = ()
    price_in: float | None = None
    price_out: float | None = None
    context_window: int | None = None
    thinking: str | None = None
    timeout: float | None = None
    headers: dict[str, str] = {}
    problem: str | None = None
    """The reason why the environment's values for it cannot be used."""

    def __repr__(self) -> str:
        return f"Entry({self.name!r}, {self.provider.kind!r})"  # a header may contain a key

    @property
    def endpoint(self) -> str:
        """Identifies the server: entries with the same endpoint share a breaker."""
        own_address = self.base_url != self.provider.base_url
        return f"{self.provider.kind} at {self.base_url}" if own_address else self.provider.kind

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The variables that may hold its key. A key that belongs to the provider is not sent to another address."""
        if self.key_env is not None:
            return (self.key_env,)
        if self.key_command or (self.source == "config" and self.base_url != self.provider.base_url):
            return ()
        return self.provider.key_variables

    @property
    def needs_key(self) -> bool:
        """A server that the user runs may need none."""
        if self.key_env is not None or self.key_command:
            return True
        return self.provider.needs_key and self.base_url == self.provider.base_url


def parse_config_entries(tables: Mapping[str, Any]) -> Iterator[ProviderEntry]:
    """Yields the entries of the `[models]` table, in its order. Raises `ConfigError`."""
    for name, table in tables.items():
        if not _NAME.fullmatch(name):
            raise _make_error(name, "not a name", "use letters, digits, `.`, `_` and `-`")
        if name == providers.DEMO:
            raise _make_error(name, "the demo model is built in", "choose another name")
        if not isinstance(table, Mapping):
            raise _make_error(name, "not a table", f"write `[models.{name}]` and its keys below it")
        yield _parse_entry(name, table)


def list_environment_entries(environ: Mapping[str, str]) -> Iterator[ProviderEntry]:
    """Yields an entry for every provider that variables alone can make usable, whether or not they are set."""
    for provider in providers.PROVIDERS.values():
        if not provider.key_variables and provider.url_variable is None:
            continue  # only the file can have its address
        named = environ.get(provider.url_variable, "").strip() if provider.url_variable else ""
        base_url = provider.base_url if provider.key_variables else None
        problem = None
        if named:
            address = providers.parse_ollama_host(named) if provider.kind == "ollama" else named
            problem = providers.find_address_problem(address)
            base_url = None if problem else providers.normalize_address(address, provider.kind)
        yield ProviderEntry(
            name=provider.kind,
            provider=provider,
            source="environment",
            base_url=base_url,
            model=provider.model if base_url == provider.base_url else None,
            problem=f"`{provider.url_variable}` {problem}" if problem else None,
        )


def _parse_entry(name: str, table: Mapping[str, Any]) -> ProviderEntry:
    for key in table:
        if key not in _PARSERS:
            raise _make_error(f"{name}.{key}", "no key has this name", f"remove it; the keys are {', '.join(_PARSERS)}")
    values: dict[str, Any] = {}
    for key, parse in _PARSERS.items():
        if key in table:
            try:
                values[key] = parse(table[key])
            except _InvalidValue as wrong:
                raise _make_error(f"{name}.{key}", wrong.problem, wrong.remedy) from None
    if "provider" not in values:
        raise _make_error(f"{name}.provider", "missing", f"add `provider`, one of {', '.join(providers.PROVIDERS)}")
    provider: providers.Provider = values.pop("provider")
    if "key_env" in values and "key_command" in values:
        raise _make_error(f"{name}.key_command", "there is a `key_env` too", "keep one of the two")
    if "base_url" in values:
        values["base_url"] = providers.normalize_address(values["base_url"], provider.kind)
    elif provider.base_url is None:
        raise _make_error(f"{name}.base_url", "missing", "add the server's address, such as `http://127.0.0.1:8000/v1`")
    values.setdefault("base_url", provider.base_url)
    if values["base_url"] == provider.base_url:
        values.setdefault("model", provider.model)  # a server that the user runs need not have the provider's model
    return ProviderEntry(name=name, provider=provider, source="config", **values)


class _InvalidValue(ValueError):
    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


def _parse_provider(value: object) -> providers.Provider:
    if isinstance(value, str) and value in providers.PROVIDERS:
        return providers.PROVIDERS[value]
    raise _InvalidValue(f"{_quote_value(value)} is not a provider", f"use one of {', '.join(providers.PROVIDERS)}")


def _parse_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_NAME or not value.isprintable():
        raise _InvalidValue(f"{_quote_value(value)} is not a name", "give a text in quotes")
    return value.strip()


def _parse_url(value: object) -> str:
    problem = providers.find_address_problem(value) if isinstance(value, str) else "not an address"
    if not isinstance(value, str) or problem is not None:
        # The value is not shown: people put passwords into addresses.
        raise _InvalidValue(problem or "not an address", "give an address such as `http://127.0.0.1:8000/v1`")
    return value.strip()


def _parse_variable(value: object) -> str:
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
        # The value is not shown either: some users write the key itself here.
        raise _InvalidValue("not the name of a variable", "give the name of a variable that holds the key, not the key")
    return value


def _parse_command(value: object) -> tuple[str, ...]:
    import shlex

    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        raise _InvalidValue("not a command", 'give a text or a list of texts, such as `["pass", "show", "openai"]`')
    return tuple(words)


def _parse_price(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e6:
        raise _InvalidValue(f"{_quote_value(value)} is not a price", "give US dollars for a million tokens, such as `2.5`")
    return float(value)


def _parse_window(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 256 <= value <= 1_000_000_000:
        raise _InvalidValue(
            f"{_quote_value(value)} is not a number of tokens", "give a whole number from 256 on, such as `128000`"
        )
    return value


def _parse_seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86_400:
        raise _InvalidValue(
            f"{_quote_value(value)} is not a number of seconds", "give seconds of silence to wait for, such as `300`"
        )
    return float(value)


def _parse_thinking(value: object) -> str:
    if value not in THINKING:
        raise _InvalidValue(f"{_quote_value(value)} is not a level", f"use one of {', '.join(THINKING)}")
    return str(value)


def _parse_headers(value: object) -> dict[str, str]:
    remedy = 'give texts, such as `headers = { "X-Team" = "tower" }`'
    if not isinstance(value, Mapping):
        raise _InvalidValue("not a table", remedy)
    for name, content in value.items():
        if not isinstance(name, str) or not _HEADER.fullmatch(name):
            raise _InvalidValue(f"{_quote_value(name)} is not a header's name", remedy)
        if not isinstance(content, str) or not content.isascii() or not content.isprintable():
            raise _InvalidValue(f"the content of `{name}` is not plain text", remedy)
    return dict(value)


_PARSERS: dict[str, Callable[[object], Any]] = {
    "provider": _parse_provider,
    "model": _parse_text,
    "base_url": _parse_url,
    "key_env": _parse_variable,
    "key_command": _parse_command,
    "price_in": _parse_price,
    "price_out": _parse_price,
    "context_window": _parse_window,
    "thinking": _parse_thinking,
    "timeout": _parse_seconds,
    "headers": _parse_headers,
}


def _quote_value(value: object) -> str:
    text = str(value)
    return f"`{text if len(text) <= 60 else text[:60] + '…'}`"


def _make_error(key: str, problem: str, remedy: str) -> ConfigError:
    return ConfigError(f"models.{key}", _SOURCE, problem, hint=remedy)


_TRIAL_KEY_VARIABLE = "SWITCHTOWER_TRIAL_KEY"
_SECRET_HEADERS = ("auth", "key", "token", "secret", "cookie", "password")


class CatalogEntry(Struct, frozen=True, kw_only=True):
    name: str
    provider: str
    """The kind of the provider."""
    model: str | None
    """The default model."""
    base_url: str | None
    usable: bool
    reason: str
    """The reason why it cannot be used, with a remedy; empty when it can."""
    context_window: int | None = None
    price_in: float | None = None
    """US dollars for a million tokens, as in `price_out`."""
    price_out: float | None = None
    source: str
    """`config`, `environment` or `built in`."""
    key_source: str | None = None
    """The source of its key, for people; None when it has none or needs none."""
    lacks_key: bool = False
    """True when only a key is missing."""


class LoginTarget(Struct, frozen=True):
    """The target of a stored key: a provider or an entry of the file, and the address that the key may be sent to."""

    name: str
    address: str
    variables: tuple[str, ...]
    """The variables that take precedence over a stored key."""
    is_configured: bool

    @property
    def variable(self) -> str:
        """The variable that a trial of the key sets."""
        return self.variables[0] if self.variables else _TRIAL_KEY_VARIABLE

    def make_trial_tables(self, tables: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the file's tables for a trial: an entry without a `key_env` gets one."""
        if self.variables or not self.is_configured:
            return tables
        return {**tables, self.name: {**tables[self.name], "key_env": _TRIAL_KEY_VARIABLE}}


class UnusableReason(Struct, frozen=True):
    """The reason why an entry cannot be used."""

    reason: str
    remedy: str
    is_key: bool = False


def is_installed(module: str) -> bool:
    """Returns whether a library is installed, without loading it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def list_secret_headers(entry: ProviderEntry) -> Iterator[str]:
    for header, content in entry.headers.items():
        if any(mark in header.lower() for mark in _SECRET_HEADERS):
            yield content
            yield content.rpartition(" ")[2]  # behind a scheme such as `Bearer`


def make_key_hint(entry: ProviderEntry) -> str:
    if entry.key_command:
        return f"check the `key_command` of `[models.{entry.name}]`"
    if entry.key_variables:
        return f"check {' or '.join(f'`{name}`' for name in entry.key_variables)}"
    return f"give `[models.{entry.name}]` a `key_env`"


MILLION = 1_000_000
_SAMPLE = 1_000
"""The tokens of the sample; few enough to stay in the first tier of every price."""


class Price(Struct, frozen=True):
    """US dollars for a million tokens."""

    going_in: float | None
    coming_out: float | None


def compute_cost(entry: ProviderEntry, model: str, usage: port.UsagePart) -> float | None:
    """Returns US dollars; None when no price is known. A configured price counts cached tokens like others."""
    if entry.price_in is not None or entry.price_out is not None:
        return (usage.input_tokens * (entry.price_in or 0.0) + usage.output_tokens * (entry.price_out or 0.0)) / MILLION
    listed = _find_listed(entry, model)
    return _calculate_price(*listed, usage) if listed is not None else None


def find_price(entry: ProviderEntry, model: str) -> Price:
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


def is_known(entry: ProviderEntry, model: str) -> bool:
    """Returns whether the bundled price list has this model of the entry's provider."""
    return _find_listed(entry, model) is not None


def find_context_window(entry: ProviderEntry, model: str) -> int | None:
    if entry.context_window is not None:
        return entry.context_window
    listed = _find_listed(entry, model)
    return listed[1].context_window if listed is not None else None


def _to_price_per_million(sample: float | None) -> float | None:
    return None if sample is None else round(sample * MILLION / _SAMPLE, 6)


def _find_listed(entry: ProviderEntry, model: str) -> "tuple[Provider, ModelInfo] | None":
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
