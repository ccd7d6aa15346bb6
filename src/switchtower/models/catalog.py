"""What can be used, and why the rest cannot: the file's entries first, then the environment's providers, then the demo model.

Asking what there is does no I/O and loads no library. Opening does: it finds the key, loads what is needed and keeps the
connection for the next one who asks. Keys are handed to `on_secret` as soon as they are known, and shown nowhere.
"""

import asyncio
import contextlib
import importlib.util
import threading
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
from switchtower.models.key_store import KeyStore, StoredKey, StoreProblem
from switchtower.models.variables import SHELL, ProviderVariables

_MOST_MODELS = 256
"""Kept open at a time; names come from clients."""
_HOW_TO_CONFIGURE = (
    "set a key such as `ANTHROPIC_API_KEY`, run `tower login PROVIDER`, or ask for the demo model with `--provider demo`; "
    "see `tower models`"
)
_TRIAL_VARIABLE = "SWITCHTOWER_TRIAL_KEY"
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
    key_source: str | None = None
    """Where its key comes from, for people; None when it has none or needs none."""
    lacks_key: bool = False
    """A key is all that it needs."""


class LoginTarget(Struct, frozen=True):
    """What a key is stored for: a provider or an entry of the file, and the address that the key may be sent to."""

    name: str
    address: str
    variables: tuple[str, ...]
    """The variables that go before a stored key."""
    is_configured: bool

    @property
    def variable(self) -> str:
        """Where a trial of the key puts it."""
        return self.variables[0] if self.variables else _TRIAL_VARIABLE

    def tables(self, tables: Mapping[str, Any]) -> Mapping[str, Any]:
        """The file's tables for a trial: an entry without a `key_env` gets one."""
        if self.variables or not self.is_configured:
            return tables
        return {**tables, self.name: {**tables[self.name], "key_env": _TRIAL_VARIABLE}}


class _Lack(Struct, frozen=True):
    """Why an entry cannot be used."""

    reason: str
    remedy: str
    is_key: bool = False


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
        stored_keys: KeyStore | None = None,
        in_shell: bool = False,
        ollama_url: str | None = providers.PROVIDERS[providers.OLLAMA].base_url,
    ) -> None:
        """`in_shell`: the environment is that of a command, and not the daemon's. Raises `ConfigError` for a table that cannot be
        used."""
        self._variables = ProviderVariables(environ, SHELL) if in_shell else ProviderVariables(environ)
        self._stored_keys = stored_keys
        self._demo_delay = demo_delay
        self._on_secret = on_secret
        self._patience = patience
        self._clock = clock
        self._installed = installed
        self._tables = tables
        self._changing = threading.Lock()
        self._entries: dict[str, entries.Entry] = {}
        self._by_endpoint: dict[str, breaker.Breaker] = {}
        self._breakers: dict[str, breaker.Breaker] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._servers = server_models.ServerModels(clock)
        self._ollama_url = ollama_url
        self._probed: str | None = None
        """The entry that counts only while a server answers at its usual address."""
        self._command_keys: dict[str, str] = {}
        self._keys_in_use: dict[str, str | None] = {}
        self._lines: dict[str, connect.Line] = {}
        self._retired: list[connect.Line] = []
        """Lines of entries that have changed: runs that use them may still be active."""
        self._models: dict[tuple[str, str], port.Model] = {}
        self._key_variables: set[str] = set()
        self._build(tables)

    def __repr__(self) -> str:
        return f"Catalog({', '.join(self._entries)})"

    def reconfigure(self, tables: Mapping[str, Any], *, demo_delay: float) -> None:
        """Takes the file's entries as they are now. Raises `ConfigError`, and then everything stays as it was. Runs that are
        active keep the models that they have."""
        with self._changing:
            self._build(tables)
            self._tables = tables
            self._demo_delay = demo_delay

    def hand_over(self, variables: Mapping[str, str]) -> None:
        """Takes the provider variables of the owner's shell, in memory only. Raises `InvalidCommand`."""
        with self._changing:
            if self._variables.hand_over(variables):
                self._build(self._tables)

    def _build(self, tables: Mapping[str, Any]) -> None:
        configured = {entry.name: entry for entry in entries.from_config(tables)}
        found = {entry.name: entry for entry in entries.from_environment(self._variables.current)}
        self._probed = None
        if self._ollama_url is not None and "OLLAMA_HOST" not in self._variables.current and providers.OLLAMA not in configured:
            found[providers.OLLAMA] = structs.replace(found[providers.OLLAMA], base_url=self._ollama_url)
            self._probed = providers.OLLAMA
        before, fresh = self._entries, {**found, **configured}
        ordered = {name: fresh[name] for name in (*configured, *(name for name in found if name not in configured))}
        for entry in ordered.values():
            if entry.base_url and entry.endpoint not in self._by_endpoint:
                self._by_endpoint[entry.endpoint] = breaker.Breaker(entry.endpoint, self._clock)
            self._opening.setdefault(entry.name, asyncio.Lock())
        self._breakers = {name: self._by_endpoint[entry.endpoint] for name, entry in ordered.items() if entry.base_url}
        self._entries = ordered
        self._key_variables |= {entry.key_env for entry in ordered.values() if entry.key_env}
        self._tell_secrets()
        for name, entry in before.items():
            if ordered.get(name) != entry:
                self._servers.forget(name)
                self._forget_models(name)
                self._command_keys.pop(name, None)
                if (line := self._lines.pop(name, None)) is not None:
                    self._retired.append(line)

    def listings(self) -> list[Listing]:
        """Everything, usable or not. Looks up prices, and the first time loads the list of them (a fifth of a second)."""
        listed = [self._listing(entry) for entry in self._entries.values()]
        return [*listed, self._demo_listing(alone=not any(listing.usable for listing in listed))]

    def default(self) -> tuple[str, str | None] | None:
        """The first usable provider that has a model by default; None when no provider is usable. It is never the demo."""
        for name, entry in self._entries.items():
            if (model := entry.model or self._servers.first(entry)) is not None and self._lack(entry) is None:
                return name, model
        return None

    def choose(self, model: str | None, *, allows_demo: bool) -> tuple[str, str | None]:
        """The provider and model of a session that names no provider. Only this function falls back to the demo: for a session
        that allows it and names no model, where nothing is configured. Raises `ProviderNotConfigured`."""
        if model is not None:
            return self._provider_of(model), model
        if (default := self.default()) is not None:
            return default
        if (problem := self._nearest_problem()) is not None:
            raise problem
        if not allows_demo:
            raise errors.ProviderNotConfigured("no key and no model server was found", hint=_HOW_TO_CONFIGURE)
        return providers.DEMO, None

    def _provider_of(self, model: str) -> str:
        """The only usable provider, or the first that is known to have this model."""
        usable = [entry for entry in self._entries.values() if self._lack(entry) is None]
        if len(usable) == 1:
            return usable[0].name
        for entry in usable:
            listed = self._servers.names(entry)
            if entry.model == model or prices.knows(entry, model) or (listed is not None and server_models.has(listed, model)):
                return entry.name
        named = f"no usable provider is known to have the model `{_shortened(model)}`"
        if usable:
            raise errors.ProviderNotConfigured(named, hint=f"name its provider too; {self._alternatives()}")
        raise self._nearest_problem() or errors.ProviderNotConfigured(named, hint=_HOW_TO_CONFIGURE)

    def _nearest_problem(self) -> errors.ProviderNotConfigured | None:
        """What a provider lacks that the file configures, or that has its key; None when nothing is configured."""
        for entry in self._entries.values():
            lack = self._lack(entry)
            if lack is not None and (entry.source == "config" or self._has_key(entry)):
                return errors.ProviderNotConfigured(f"`{entry.name}`: {lack.reason}", hint=lack.remedy)
            if lack is None and entry.model is None and self._servers.first(entry) is None:
                return errors.ProviderNotConfigured(f"`{entry.name}` has no default model", hint="name one with `--model`")
        return None

    def _has_key(self, entry: entries.Entry) -> bool:
        return self._key_source(entry) is not None

    def _key_source(self, entry: entries.Entry) -> str | None:
        """Where the entry's key comes from, for people; None when there is none. A variable goes before a stored key."""
        if entry.key_command:
            return f"the `key_command` of `[models.{entry.name}]`"
        for variable in entry.key_variables:
            if self._variables.current.get(variable, "").strip():
                return f"`{variable}` of {self._variables.place_of(variable)}"
        if (stored := self._stored(entry)) is None:
            return None
        return "the system keyring" if stored[1].place == "keyring" else "the file of `tower login`"

    def _stored(self, entry: entries.Entry) -> tuple[str, StoredKey] | None:
        if self._stored_keys is None:
            return None
        return self._stored_keys.find((entry.name, entry.provider.kind), entry.base_url)

    async def _key(self, entry: entries.Entry) -> str | None:
        """The entry's key, read where it is kept. Raises `ProviderNotConfigured`."""
        if entry.key_command:
            if entry.name not in self._command_keys:
                self._command_keys[entry.name] = await keys.asked_for(entry, self._variables.started_with)
            return self._command_keys[entry.name]
        if (key := keys.from_environment(entry, self._variables.current)) is not None:
            return key
        if self._stored_keys is None or (stored := self._stored(entry)) is None:
            return None
        try:
            return await asyncio.to_thread(self._stored_keys.read, stored[0])
        except StoreProblem as problem:
            raise errors.ProviderNotConfigured(f"`{entry.name}`: {problem.message}", hint=problem.hint) from None

    async def read_stored_keys(self) -> None:
        """Reads every stored key once, so that it is known as a secret before anything can mention it."""
        for entry in list(self._entries.values()):
            if self._stored(entry) is not None:
                with contextlib.suppress(errors.ProviderNotConfigured):
                    if key := await self._key(entry):
                        self._on_secret(key)

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
        if entry.needs_key and not self._has_key(entry):
            return
        if entry.key_command and entry.name not in self._command_keys:
            return  # the command is run when a model is opened, where its failure can be shown
        try:
            key = await self._key(entry)
        except errors.ProviderNotConfigured:
            return
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
            if model not in (None, demo.NAME):
                raise errors.ProviderNotConfigured(
                    f"`{providers.DEMO}` has no model `{_shortened(model)}`", hint="leave the model out, or name its provider"
                )
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

    def login_target(self, provider: str) -> LoginTarget:
        """What a stored key of this provider is for. Raises `ProviderNotConfigured`."""
        entry = self._entries.get(provider)
        if entry is None or entry.key_command or not (entry.key_variables or entry.source == "config"):
            names = [name for name, one in self._entries.items() if one.key_variables or one.source == "config"]
            hint = f"use one of {', '.join(f'`{name}`' for name in names)}"
            raise errors.ProviderNotConfigured(f"`{_shortened(provider)}` takes no stored key", hint=hint)
        lack = self._lack(entry)
        if lack is not None and (entry.base_url is None or entry.problem is not None):
            raise errors.ProviderNotConfigured(f"`{provider}`: {lack.reason}", hint=lack.remedy)
        assert entry.base_url is not None, "checked"
        return LoginTarget(entry.name, entry.base_url, entry.key_variables, is_configured=entry.source == "config")

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
            key = await self._key(entry)
            if key is not None and key != self._keys_in_use.get(provider):
                self._on_secret(key)
            if key != self._keys_in_use.get(provider, key):
                self._forget_models(provider)
                if provider in self._lines:
                    self._lines[provider].rekey(key)
            self._keys_in_use[provider] = key
            if (opened := self._models.get((provider, name))) is None:
                opened = await self._opened(entry, name, key)
                if len(self._models) >= _MOST_MODELS:
                    del self._models[next(iter(self._models))]
                self._models[provider, name] = opened
            return opened

    def secret_variables(self) -> frozenset[str]:
        """The variables that hold keys, set or not: nothing that an agent runs shall inherit them."""
        usual = {name for provider in providers.PROVIDERS.values() for name in provider.key_variables}
        return frozenset(usual | self._key_variables)

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
        lines, self._lines, self._retired = [*self._lines.values(), *self._retired], {}, []
        self._models = {}
        for line in lines:
            await line.close()

    def _is_open_question(self, provider: str, model: str | None) -> bool:
        """Only the server itself can say which model serves, whether it has this one by now, or whether it is there."""
        name, listed = self.choose_model(provider, model), self.server_models(provider)
        return name is None or provider == self._probed or (listed is not None and not server_models.has(listed, name))

    async def _opened(self, entry: entries.Entry, name: str, key: str | None) -> port.Model:
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
            self._forget_models(entry.name)

    def _forget_models(self, name: str) -> None:
        self._models = {key: model for key, model in self._models.items() if key[0] != name}

    def _lack(self, entry: entries.Entry) -> _Lack | None:
        library = providers.LIBRARIES[entry.provider.dialect]
        if not self._installed(library.module):
            package = f"switchtower[{library.extra}]" if library.extra else "switchtower"
            return _Lack(f"the library `{library.module}` is not installed", f"`pip install '{package}'`")
        if entry.problem is not None:
            return _Lack(entry.problem, "set it to an address such as `http://127.0.0.1:8000`")
        if entry.base_url is None:
            return _Lack(f"`{entry.provider.url_variable}` is not set", "set it to the server's address")
        if entry.name == self._probed and self._servers.names(entry) is None:
            missing = f"`{entry.provider.url_variable}` is not set, and no server answers at {addresses.shown(entry.base_url)}"
            return _Lack(missing, "start the server, or set the variable to its address")
        if entry.needs_key and not self._has_key(entry):
            variables = " or ".join(f"`{name}`" for name in entry.key_variables)
            if self._stored_keys is not None and self._stored_keys.problem is not None:
                return _Lack(f"{variables} is not set, and stored keys are not used", self._stored_keys.problem)
            return _Lack(f"{variables} is not set", f"set it in your shell, or run `tower login {entry.name}`", is_key=True)
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
            key_source=self._key_source(entry),
            lacks_key=lack is not None and lack.is_key,
        )

    def _demo_listing(self, *, alone: bool) -> Listing:
        return Listing(
            name=providers.DEMO,
            provider=providers.DEMO,
            model=demo.NAME,
            base_url=None,
            usable=True,
            reason="no other model is configured; it answers only at a terminal, or where you name it" if alone else "",
            context_window=demo.CONTEXT_WINDOW,
            source="built in",
        )

    def _alternatives(self) -> str:
        usable = [name for name, entry in self._entries.items() if self._lack(entry) is None]
        return f"use one of {', '.join(f'`{name}`' for name in [*usable, providers.DEMO])}"

    def _tell_secrets(self) -> None:
        for variable in self.secret_variables():
            for values in (self._variables.started_with, self._variables.current):
                if key := values.get(variable, "").strip():
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
