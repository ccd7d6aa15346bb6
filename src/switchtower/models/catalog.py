"""What can be used, and why the rest cannot: the file's entries first, then the environment's providers, then the demo model.

Asking what there is does no I/O and loads no library. Opening does: it finds the key, loads what is needed and keeps the
connection for the next one who asks. Keys are handed to `on_secret` as soon as they are known, and shown nowhere.
"""

import asyncio
import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct, structs

from switchtower.core import errors, redact, workshop
from switchtower.models import (
    addresses,
    breaker,
    connect,
    demo,
    entries,
    keys,
    port,
    prices,
    providers,
    remote,
    server_models,
    troubles,
)

_MOST_MODELS = 256
"""Kept open at a time; names come from clients."""
_SECRET_HEADERS = ("auth", "key", "token", "secret", "cookie", "password")


class Listing(Struct, frozen=True, kw_only=True):
    name: str
    provider: str
    """Its kind."""
    model: str | None
    """What serves when nobody names one."""
    base_url: str | None
    usable: bool
    reason: str
    """Why it cannot be used, with a remedy; empty when it can."""
    context_window: int | None = None
    price_in: float | None = None
    """US dollars for a million tokens, as `price_out`."""
    price_out: float | None = None
    source: str
    """`config`, `environment` or `built in`."""


class _Lack(Struct, frozen=True):
    """Why an entry cannot be used."""

    reason: str
    remedy: str


def installed(module: str) -> bool:
    """Whether a library is there, without loading it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _unheard(secret: str) -> None:
    pass


class Catalog:
    def __init__(
        self,
        tables: Mapping[str, Any],
        environ: Mapping[str, str],
        *,
        demo_delay: float = demo.DELAY,
        on_secret: Callable[[str], None] = _unheard,
        patience: connect.Patience = connect.Patience(),  # noqa: B008
        clock: Callable[[], float] = time.monotonic,
        installed: Callable[[str], bool] = installed,
        ollama_url: str | None = providers.PROVIDERS[providers.OLLAMA].base_url,
    ) -> None:
        """Raises `ConfigError` for a table that cannot be used."""
        self._environ = dict(environ)
        self._demo_delay = demo_delay
        self._on_secret = on_secret
        self._patience = patience
        self._installed = installed
        configured = {entry.name: entry for entry in entries.from_config(tables)}
        found = {entry.name: entry for entry in entries.from_environment(environ)}
        self._entries = {**configured, **{name: entry for name, entry in found.items() if name not in configured}}
        self._servers = server_models.ServerModels(clock)
        self._probed = self._place_ollama(ollama_url) if "OLLAMA_HOST" not in environ else None
        """The entry that counts only while a server answers at its usual address."""
        by_endpoint = {
            entry.endpoint: breaker.Breaker(entry.endpoint, clock) for entry in self._entries.values() if entry.base_url
        }
        self._breakers = {name: by_endpoint[entry.endpoint] for name, entry in self._entries.items() if entry.base_url}
        self._opening = {name: asyncio.Lock() for name in self._entries}
        self._command_keys: dict[str, str] = {}
        self._lines: dict[str, connect.Line] = {}
        self._models: dict[tuple[str, str], port.Model] = {}
        self._tell_secrets()

    def __repr__(self) -> str:
        return f"Catalog({', '.join(self._entries)})"

    def listings(self) -> list[Listing]:
        """Everything, usable or not. Looks up prices, and the first time loads the list of them (a fifth of a second)."""
        listed = [self._listing(entry) for entry in self._entries.values()]
        return [*listed, self._demo_listing(alone=not any(listing.usable for listing in listed))]

    def default(self) -> tuple[str, str | None]:
        """Who serves when nobody is named: the first that can be used and knows a model, else the demo model."""
        for name, entry in self._entries.items():
            if (model := entry.model or self._servers.first(entry)) is not None and self._lack(entry) is None:
                return name, model
        return providers.DEMO, None

    def choose_model(self, provider: str, model: str | None) -> str | None:
        """The model that serves: the one that is named, the configured one, or the first of the server's list."""
        entry = self._entries.get(provider)
        return model or (None if entry is None else entry.model or self._servers.first(entry))

    def is_looked_up(self, provider: str, model: str | None = None) -> bool:
        """Whether it is known what the server lists, as far as there is a server."""
        entry = self._entries.get(provider)
        if entry is None or entry.base_url is None or entry.problem is not None:
            return True
        return self._servers.is_fresh(entry, model or entry.model)

    async def look_up(self, provider: str, model: str | None = None) -> None:
        """Asks the provider's server which models it has, unless that is known. Bounded, and raises nothing."""
        entry = self._entries.get(provider)
        if entry is None or self.is_looked_up(provider, model):
            return
        if entry.needs_key and not entry.key_command and keys.from_environment(entry, self._environ) is None:
            return
        if entry.key_command and entry.name not in self._command_keys:
            return  # the command is run when a model is opened, where its failure can be shown
        key = self._command_keys.get(entry.name) or keys.from_environment(entry, self._environ)
        await self._servers.look_up(entry, key)

    async def look_up_default(self) -> None:
        """Asks what `default` has to know: the servers that name no model, and Ollama at its usual address."""
        for name, entry in self._entries.items():
            if entry.model is not None and self._lack(entry) is None:
                return
            if entry.model is None and entry.base_url is not None:
                await self.look_up(name)

    def server_models(self, provider: str) -> tuple[str, ...] | None:
        """The names that the server lists; None when it has no list."""
        entry = self._entries.get(provider)
        return self._servers.names(entry) if entry is not None else None

    def has_price(self, provider: str, model: str | None) -> bool:
        """Whether the cost of a call can be known. The first time it loads the list of prices (a fifth of a second)."""
        entry = self._entries.get(provider)
        name = self.choose_model(provider, model)
        if entry is None or name is None:
            return entry is None  # the demo model costs nothing
        price = prices.price(entry, name)
        return price.going_in is not None or price.coming_out is not None

    def check_provider(self, provider: str) -> None:
        """Raises `ProviderNotConfigured` for a name that no provider has."""
        if provider != providers.DEMO and provider not in self._entries:
            raise errors.ProviderNotConfigured(f"`{_shortened(provider)}`", hint=self._alternatives())

    def check(self, provider: str, model: str | None) -> None:
        """Raises `ProviderNotConfigured` for what `open` would refuse, as far as that can be told without I/O."""
        self.check_provider(provider)
        if provider == providers.DEMO:
            return
        entry = self._entries[provider]
        if (lack := self._lack(entry)) is not None:
            raise errors.ProviderNotConfigured(f"`{provider}`: {lack.reason}", hint=lack.remedy)
        name = self.choose_model(provider, model)
        if name is None:
            raise errors.ProviderNotConfigured(f"`{provider}` has no model of its own choice", hint="name a model")
        if len(name) > entries.LONGEST_NAME or not name.isprintable() or not name.strip():
            raise errors.ProviderNotConfigured(f"`{provider}`: this is not a model's name", hint="name a model it has")
        if entry.provider.kind == "openrouter" and "/" not in name:
            raise errors.ProviderNotConfigured(f"`{provider}`: `{name}` names no maker", hint=f"write `maker/{name}`")
        if (listed := self._servers.names(entry)) is not None and not server_models.has(listed, name):
            near = ", ".join(f"`{one}`" for one in server_models.nearest(listed, name))
            hint = f"`{provider}` has {near}; `tower models {provider}` lists all {len(listed)}"
            raise errors.UnknownModel(f"`{_shortened(name)}`", hint=hint)

    async def open(self, provider: str, model: str | None) -> port.Model:
        """The model behind its provider's breaker. Raises `ProviderNotConfigured`."""
        if self._is_open_question(provider, model):
            await self.look_up(provider, model)
        self.check(provider, model)
        if provider == providers.DEMO:
            return demo.DemoModel(self._demo_delay)
        entry = self._entries[provider]
        name = self.choose_model(provider, model)
        assert name is not None, "checked"
        async with self._opening[provider]:
            if (opened := self._models.get((provider, name))) is None:
                opened = await self._opened(entry, name)
                if len(self._models) >= _MOST_MODELS:
                    del self._models[next(iter(self._models))]
                self._models[provider, name] = opened
            return opened

    def secret_variables(self) -> frozenset[str]:
        """The variables that hold keys, set or not: nothing that an agent runs shall inherit them."""
        usual = {name for provider in providers.PROVIDERS.values() for name in provider.key_variables}
        return frozenset(usual | {entry.key_env for entry in self._entries.values() if entry.key_env})

    def breakers(self) -> Mapping[str, breaker.Breaker]:
        """By name; names of one endpoint share one."""
        return dict(self._breakers)

    def breaker_states(self) -> list[workshop.BreakerState]:
        """Of those that have been asked for something."""
        return [
            workshop.BreakerState(
                provider=name,
                state=guard.state.value.replace("-", "_"),
                failures=guard.failures,
                last_failure_ms=guard.figures.last_failure_ms,
                calls=guard.figures.calls,
                rejected=guard.figures.rejected,
                successes=guard.figures.successes,
                failed=guard.figures.failures,
                average_ms=guard.figures.average_ms,
            )
            for name, guard in self._breakers.items()
            if guard.figures.calls
        ]

    async def close(self) -> None:
        await self._servers.close()
        lines, self._lines = list(self._lines.values()), {}
        self._models = {}
        for line in lines:
            await line.close()

    def _is_open_question(self, provider: str, model: str | None) -> bool:
        """Only the server itself can say which model serves, whether it has this one by now, or whether it is there."""
        name, listed = self.choose_model(provider, model), self.server_models(provider)
        return name is None or provider == self._probed or (listed is not None and not server_models.has(listed, name))

    def _place_ollama(self, url: str | None) -> str | None:
        entry = self._entries.get(providers.OLLAMA)
        if url is None or entry is None or entry.source != "environment":
            return None
        self._entries[providers.OLLAMA] = structs.replace(entry, base_url=url)
        return providers.OLLAMA

    async def _opened(self, entry: entries.Entry, name: str) -> port.Model:
        if entry.key_command and entry.name not in self._command_keys:
            printed = await keys.asked_for(entry, self._environ)
            self._on_secret(printed)
            self._command_keys[entry.name] = printed
            if entry.name in self._lines:
                self._lines[entry.name].rekey(printed)
        key = self._command_keys.get(entry.name) or keys.from_environment(entry, self._environ)
        origin = troubles.Origin(
            name=entry.name,
            model=name,
            key_hint=_key_hint(entry),
            base_url=addresses.shown(entry.base_url),
            redactor=redact.Redactor([*_secret_headers(entry), *([key] if key else [])]),
        )

        def make() -> port.Model:
            if entry.name not in self._lines:
                self._lines[entry.name] = connect.Line(entry, key, self._patience)
            line = self._lines[entry.name]
            return remote.RemoteModel(
                entry,
                line.model(name),
                origin,
                silence=line.silence,
                context_window=prices.context_window(entry, name),
                on_refused_key=lambda: self._forget_key(entry),
            )

        try:
            # In a thread: the first one loads libraries, which takes a second or two.
            opened = await asyncio.to_thread(make)
        except ImportError as missing:
            hint = "install Switchtower again, with its extras"
            raise errors.ProviderNotConfigured(f"`{entry.name}`: `{missing.name}` cannot be loaded", hint=hint) from missing
        return breaker.GuardedModel(opened, self._breakers[entry.name])

    def _forget_key(self, entry: entries.Entry) -> None:
        """A key that was refused may have run out; the next who opens the entry asks its command for another."""
        if self._command_keys.pop(entry.name, None) is not None:
            self._models = {key: model for key, model in self._models.items() if key[0] != entry.name}

    def _lack(self, entry: entries.Entry) -> _Lack | None:
        library = providers.LIBRARIES[entry.provider.dialect]
        if not self._installed(library.module):
            package = f"switchtower[{library.extra}]" if library.extra else "switchtower"
            return _Lack(f"the library `{library.module}` is not installed", f"`pip install '{package}'`")
        if entry.problem is not None:
            return _Lack(entry.problem, "set it to an address such as `http://127.0.0.1:8000`")
        if entry.base_url is None or (entry.name == self._probed and self._servers.names(entry) is None):
            return _Lack(f"`{entry.provider.url_variable}` is not set", "set it to the server's address")
        if entry.needs_key and not entry.key_command and keys.from_environment(entry, self._environ) is None:
            variables = " or ".join(f"`{name}`" for name in entry.key_variables)
            return _Lack(f"{variables} is not set", "set it to the provider's key")
        return None

    def _listing(self, entry: entries.Entry) -> Listing:
        lack = self._lack(entry)
        model = entry.model or (self._servers.first(entry) if lack is None else None)
        known = lack is None and model is not None
        price = prices.price(entry, model) if known and model else prices.Price(entry.price_in, entry.price_out)
        return Listing(
            name=entry.name,
            provider=entry.provider.kind,
            model=model,
            base_url=None if entry.name == self._probed and lack else addresses.shown(entry.base_url) or None,
            usable=lack is None,
            reason=f"{lack.reason}; hint: {lack.remedy}" if lack else "",
            context_window=prices.context_window(entry, model) if known and model else entry.context_window,
            price_in=price.going_in,
            price_out=price.coming_out,
            source=entry.source,
        )

    def _demo_listing(self, *, alone: bool) -> Listing:
        return Listing(
            name=providers.DEMO,
            provider=providers.DEMO,
            model=demo.NAME,
            base_url=None,
            usable=True,
            reason="it does not think; it serves because nothing else can be used" if alone else "",
            context_window=demo.CONTEXT_WINDOW,
            source="built in",
        )

    def _alternatives(self) -> str:
        usable = [name for name, entry in self._entries.items() if self._lack(entry) is None]
        return f"use one of {', '.join(f'`{name}`' for name in [*usable, providers.DEMO])}"

    def _tell_secrets(self) -> None:
        for variable in self.secret_variables():
            if key := self._environ.get(variable, "").strip():
                self._on_secret(key)
        for entry in self._entries.values():
            for secret in _secret_headers(entry):
                self._on_secret(secret)


def _secret_headers(entry: entries.Entry) -> Iterator[str]:
    for header, content in entry.headers.items():
        if any(mark in header.lower() for mark in _SECRET_HEADERS):
            yield content
            yield content.rpartition(" ")[2]  # behind a scheme such as `Bearer`


def _key_hint(entry: entries.Entry) -> str:
    if entry.key_command:
        return f"check the `key_command` of `[models.{entry.name}]`"
    if entry.key_variables:
        return f"check {' or '.join(f'`{name}`' for name in entry.key_variables)}"
    return f"give `[models.{entry.name}]` a `key_env`"


def _shortened(text: str) -> str:
    text = "".join(character if character.isprintable() else "?" for character in text[:65])
    return text if len(text) <= 64 else f"{text[:64]}…"
