"""The catalog of models: what can be used, and why the rest cannot. The file's entries come first, then the environment's
providers, then the demo model.

Listing does no I/O and loads no library. Opening does: it finds the key, loads the library and caches the connection for later
callers. Keys are passed to `on_secret` as soon as they are known, and shown nowhere."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import structs

from switchtower.core import errors, redact
from switchtower.core.ports import host_services
from switchtower.models import breaker, connection, demo, entries, keys, port, provider_errors, providers, remote, server_models
from switchtower.models.keys import KeyStore, KeyStoreError, StoredKey
from switchtower.models.providers import SHELL, ProviderVariables

_MOST_MODELS = 256
"""The most models that are kept open at a time; names come from clients."""
_HOW_TO_CONFIGURE = (
    "set a key such as `ANTHROPIC_API_KEY`, run `tower login PROVIDER`, or ask for the demo model with `--provider demo`; "
    "see `tower models`"
)


def _ignore_secret(secret: str) -> None:
    pass


class Catalog:
    def __init__(
        self,
        tables: Mapping[str, Any],
        environ: Mapping[str, str],
        *,
        demo_delay: float = demo.DELAY,
        on_secret: Callable[[str], None] = _ignore_secret,
        timeouts: connection.ConnectionTimeouts = connection.ConnectionTimeouts(),  # noqa: B008
        clock: Callable[[], float] = time.monotonic,
        installed: Callable[[str], bool] = entries.is_installed,
        stored_keys: KeyStore | None = None,
        in_shell: bool = False,
        ollama_url: str | None = providers.PROVIDERS[providers.OLLAMA].base_url,
    ) -> None:
        """`in_shell`: the environment is that of a command, and not the daemon's. Raises `ConfigError` for a table that cannot be
        used.
        """
        self._variables = ProviderVariables(environ, SHELL) if in_shell else ProviderVariables(environ)
        self._stored_keys = stored_keys
        self._demo_delay = demo_delay
        self._on_secret = on_secret
        self._timeouts = timeouts
        self._clock = clock
        self._installed = installed
        self._tables = tables
        self._changing = threading.Lock()
        self._entries: dict[str, entries.ProviderEntry] = {}
        self._by_endpoint: dict[str, breaker.Breaker] = {}
        self._breakers: dict[str, breaker.Breaker] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._servers = server_models.ServerModels(clock)
        self._ollama_url = ollama_url
        self._probed: str | None = None
        """The entry that counts only while a server answers at its usual address."""
        self._command_keys: dict[str, str] = {}
        self._keys_in_use: dict[str, str | None] = {}
        self._connections: dict[str, connection.ProviderConnection] = {}
        self._retired: list[connection.ProviderConnection] = []
        """The connections of entries that have changed: runs that use them may still be active."""
        self._models: dict[tuple[str, str], port.Model] = {}
        self._key_variables: set[str] = set()
        self._build(tables)

    def __repr__(self) -> str:
        return f"Catalog({', '.join(self._entries)})"

    def reconfigure(self, tables: Mapping[str, Any], *, demo_delay: float) -> None:
        """Replaces the file's entries. Raises `ConfigError`, and then everything stays as it was. Active runs keep their
        models.
        """
        with self._changing:
            self._build(tables)
            self._tables = tables
            self._demo_delay = demo_delay

    def add_shell_variables(self, variables: Mapping[str, str]) -> None:
        """Takes the provider variables of the owner's shell, in memory only. Raises `InvalidCommand`."""
        with self._changing:
            if self._variables.add_shell_variables(variables):
                self._build(self._tables)

    def _build(self, tables: Mapping[str, Any]) -> None:
        configured = {entry.name: entry for entry in entries.parse_config_entries(tables)}
        found = {entry.name: entry for entry in entries.list_environment_entries(self._variables.current)}
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
        self._report_secrets()
        for name, entry in before.items():
            if ordered.get(name) != entry:
                self._servers.forget(name)
                self._forget_models(name)
                self._command_keys.pop(name, None)
                if (line := self._connections.pop(name, None)) is not None:
                    self._retired.append(line)

    def list_entries(self) -> list[entries.CatalogEntry]:
        """Lists everything, usable or not. It looks up prices, and the first call loads the price list (a fifth of a second)."""
        listed = [self._make_entry(entry) for entry in self._entries.values()]
        return [*listed, self._make_demo_entry(alone=not any(listing.usable for listing in listed))]

    def choose_default(self) -> tuple[str, str | None] | None:
        """Returns the first usable provider that has a default model; None when no provider is usable. It is never the demo."""
        for name, entry in self._entries.items():
            if (model := entry.model or self._servers.get_first(entry)) is not None and self._find_unusable_reason(entry) is None:
                return name, model
        return None

    def choose(self, model: str | None, *, allows_demo: bool) -> tuple[str, str | None]:
        """Returns the provider and model of a session that names no provider. Only this function falls back to the demo: for a
        session that allows it and names no model, where nothing is configured. Raises `ProviderNotConfigured`.
        """
        if model is not None:
            return self._find_provider(model), model
        if (default := self.choose_default()) is not None:
            return default
        if (problem := self._find_nearest_problem()) is not None:
            raise problem
        if not allows_demo:
            raise errors.ProviderNotConfigured("no key and no model server was found", hint=_HOW_TO_CONFIGURE)
        return providers.DEMO, None

    def _find_provider(self, model: str) -> str:
        """Returns the only usable provider, or the first that is known to have this model."""
        usable = [entry for entry in self._entries.values() if self._find_unusable_reason(entry) is None]
        if len(usable) == 1:
            return usable[0].name
        for entry in usable:
            listed = self._servers.get_names(entry)
            if (
                entry.model == model
                or entries.is_known(entry, model)
                or (listed is not None and server_models.has_model(listed, model))
            ):
                return entry.name
        named = f"no usable provider is known to have the model `{entries.shorten_value(model)}`"
        if usable:
            raise errors.ProviderNotConfigured(named, hint=f"name its provider too; {self._describe_alternatives()}")
        raise self._find_nearest_problem() or errors.ProviderNotConfigured(named, hint=_HOW_TO_CONFIGURE)

    def _find_nearest_problem(self) -> errors.ProviderNotConfigured | None:
        """Returns what is missing for a provider that the file configures, or that has its key; None when nothing is
        configured.
        """
        for entry in self._entries.values():
            lack = self._find_unusable_reason(entry)
            if lack is not None and (entry.source == "config" or self._has_key(entry)):
                return errors.ProviderNotConfigured(f"`{entry.name}`: {lack.reason}", hint=lack.remedy)
            if lack is None and entry.model is None and self._servers.get_first(entry) is None:
                return errors.ProviderNotConfigured(f"`{entry.name}` has no default model", hint="name one with `--model`")
        return None

    def _has_key(self, entry: entries.ProviderEntry) -> bool:
        return self._describe_key_source(entry) is not None

    def _describe_key_source(self, entry: entries.ProviderEntry) -> str | None:
        """Returns the source of the entry's key, for people; None when there is none. A variable takes precedence over a stored
        key.
        """
        if entry.key_command:
            return f"the `key_command` of `[models.{entry.name}]`"
        for variable in entry.key_variables:
            if self._variables.current.get(variable, "").strip():
                return f"`{variable}` of {self._variables.describe_source(variable)}"
        if (stored := self._find_stored_key(entry)) is None:
            return None
        return "the system keyring" if stored[1].place == "keyring" else "the file of `tower login`"

    def _find_stored_key(self, entry: entries.ProviderEntry) -> tuple[str, StoredKey] | None:
        if self._stored_keys is None:
            return None
        return self._stored_keys.find((entry.name, entry.provider.kind), entry.base_url)

    async def _read_key(self, entry: entries.ProviderEntry) -> str | None:
        """Reads the entry's key from its source. Raises `ProviderNotConfigured`."""
        if entry.key_command:
            if entry.name not in self._command_keys:
                self._command_keys[entry.name] = await keys.request_key(entry, self._variables.started_with)
            return self._command_keys[entry.name]
        if (key := keys.read_key(entry, self._variables.current)) is not None:
            return key
        if self._stored_keys is None or (stored := self._find_stored_key(entry)) is None:
            return None
        try:
            return await asyncio.to_thread(self._stored_keys.read, stored[0])
        except KeyStoreError as problem:
            raise errors.ProviderNotConfigured(f"`{entry.name}`: {problem.message}", hint=problem.hint) from None

    async def read_stored_keys(self) -> None:
        """Reads every stored key once, so that it is known as a secret before any text can contain it."""
        for entry in list(self._entries.values()):
            if self._find_stored_key(entry) is not None:
                with contextlib.suppress(errors.ProviderNotConfigured):
                    if key := await self._read_key(entry):
                        self._on_secret(key)

    def choose_model(self, provider: str, model: str | None) -> str | None:
        """Returns the model to use: the named one, the configured one, or the first of the server's list."""
        entry = self._entries.get(provider)
        return model or (None if entry is None else entry.model or self._servers.get_first(entry))

    def has_current_models(self, provider: str, model: str | None = None) -> bool:
        """Returns whether the server's list is known, as far as there is a server."""
        entry = self._entries.get(provider)
        if entry is None or entry.base_url is None or entry.problem is not None:
            return True
        return self._servers.is_fresh(entry, model or entry.model)

    async def refresh_models(self, provider: str, model: str | None = None) -> None:
        """Asks the provider's server for its models, unless they are known. It is bounded, and raises nothing."""
        entry = self._entries.get(provider)
        if entry is None or self.has_current_models(provider, model):
            return
        if entry.needs_key and not self._has_key(entry):
            return
        if entry.key_command and entry.name not in self._command_keys:
            return  # the command is run when a model is opened, where its failure can be shown
        try:
            key = await self._read_key(entry)
        except errors.ProviderNotConfigured:
            return
        await self._servers.refresh(entry, key)

    async def refresh_default(self) -> None:
        """Fetches what `choose_default` has to know: the lists of servers without a configured model, and whether Ollama runs at
        its usual address.
        """
        for name, entry in self._entries.items():
            if entry.model is not None and self._find_unusable_reason(entry) is None:
                return
            if entry.model is None and entry.base_url is not None:
                await self.refresh_models(name)

    def list_server_models(self, provider: str) -> tuple[str, ...] | None:
        """Returns the names that the server lists; None when it has no list."""
        entry = self._entries.get(provider)
        return self._servers.get_names(entry) if entry is not None else None

    def has_price(self, provider: str, model: str | None) -> bool:
        """Returns whether the cost of a call can be known. The first call loads the price list (a fifth of a second)."""
        entry = self._entries.get(provider)
        name = self.choose_model(provider, model)
        if entry is None or name is None:
            return entry is None  # the demo model costs nothing
        price = entries.find_price(entry, name)
        return price.going_in is not None or price.coming_out is not None

    def check_provider(self, provider: str) -> None:
        """Raises `ProviderNotConfigured` for a name that no provider has."""
        if provider != providers.DEMO and provider not in self._entries:
            raise errors.ProviderNotConfigured(f"`{entries.shorten_value(provider)}`", hint=self._describe_alternatives())

    def check_model(self, provider: str, model: str | None) -> None:
        """Raises `ProviderNotConfigured` for what `open_model` would refuse, as far as that is known without I/O."""
        self.check_provider(provider)
        if provider == providers.DEMO:
            if model not in (None, demo.NAME):
                raise errors.ProviderNotConfigured(
                    f"`{providers.DEMO}` has no model `{entries.shorten_value(model)}`",
                    hint="leave the model out, or name its provider",
                )
            return
        entry = self._entries[provider]
        if (lack := self._find_unusable_reason(entry)) is not None:
            raise errors.ProviderNotConfigured(f"`{provider}`: {lack.reason}", hint=lack.remedy)
        name = self.choose_model(provider, model)
        if name is None:
            raise errors.ProviderNotConfigured(f"`{provider}` has no model of its own choice", hint="name a model")
        if len(name) > entries.LONGEST_NAME or not name.isprintable() or not name.strip():
            raise errors.ProviderNotConfigured(f"`{provider}`: this is not a model's name", hint="name a model it has")
        if entry.provider.kind == "openrouter" and "/" not in name:
            raise errors.ProviderNotConfigured(f"`{provider}`: `{name}` names no maker", hint=f"write `maker/{name}`")
        if (listed := self._servers.get_names(entry)) is not None and not server_models.has_model(listed, name):
            near = ", ".join(f"`{one}`" for one in server_models.find_nearest(listed, name))
            hint = f"`{provider}` has {near}; `tower models {provider}` lists all {len(listed)}"
            raise errors.UnknownModel(f"`{entries.shorten_value(name)}`", hint=hint)

    def find_login_target(self, provider: str) -> entries.LoginTarget:
        """Returns the target of a stored key of this provider. Raises `ProviderNotConfigured`."""
        entry = self._entries.get(provider)
        if entry is None or entry.key_command or not (entry.key_variables or entry.source == "config"):
            names = [name for name, one in self._entries.items() if one.key_variables or one.source == "config"]
            hint = f"use one of {', '.join(f'`{name}`' for name in names)}"
            raise errors.ProviderNotConfigured(f"`{entries.shorten_value(provider)}` takes no stored key", hint=hint)
        lack = self._find_unusable_reason(entry)
        if lack is not None and (entry.base_url is None or entry.problem is not None):
            raise errors.ProviderNotConfigured(f"`{provider}`: {lack.reason}", hint=lack.remedy)
        assert entry.base_url is not None, "checked"
        return entries.LoginTarget(entry.name, entry.base_url, entry.key_variables, is_configured=entry.source == "config")

    async def open_model(self, provider: str, model: str | None) -> port.Model:
        """Returns the model behind its provider's breaker. Raises `ProviderNotConfigured`."""
        if self._needs_refresh(provider, model):
            await self.refresh_models(provider, model)
        self.check_model(provider, model)
        if provider == providers.DEMO:
            return demo.DemoModel(self._demo_delay)
        entry = self._entries[provider]
        name = self.choose_model(provider, model)
        assert name is not None, "checked"
        async with self._opening[provider]:
            key = await self._read_key(entry)
            if key is not None and key != self._keys_in_use.get(provider):
                self._on_secret(key)
            if key != self._keys_in_use.get(provider, key):
                self._forget_models(provider)
                if provider in self._connections:
                    self._connections[provider].set_key(key)
            self._keys_in_use[provider] = key
            if (opened := self._models.get((provider, name))) is None:
                opened = await self._open_model(entry, name, key)
                if len(self._models) >= _MOST_MODELS:
                    del self._models[next(iter(self._models))]
                self._models[provider, name] = opened
            return opened

    def list_secret_variables(self) -> frozenset[str]:
        """Returns the variables that hold keys, set or not: no program that an agent runs may inherit them."""
        usual = {name for provider in providers.PROVIDERS.values() for name in provider.key_variables}
        return frozenset(usual | self._key_variables)

    def list_breakers(self) -> Mapping[str, breaker.Breaker]:
        """Returns the breakers by name; names of one endpoint share one."""
        return dict(self._breakers)

    def list_breaker_states(self) -> list[host_services.BreakerState]:
        """Returns the states of the breakers that have had a call."""
        return [
            host_services.BreakerState(
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
        lines, self._connections, self._retired = [*self._connections.values(), *self._retired], {}, []
        self._models = {}
        for line in lines:
            await line.close()

    def _needs_refresh(self, provider: str, model: str | None) -> bool:
        """Only the server itself knows which model is the default, whether it has this one by now, or whether it runs at all."""
        name, listed = self.choose_model(provider, model), self.list_server_models(provider)
        return name is None or provider == self._probed or (listed is not None and not server_models.has_model(listed, name))

    async def _open_model(self, entry: entries.ProviderEntry, name: str, key: str | None) -> port.Model:
        origin = provider_errors.ErrorOrigin(
            name=entry.name,
            model=name,
            key_hint=entries.make_key_hint(entry),
            base_url=providers.mask_query(entry.base_url),
            redactor=redact.Redactor([*entries.list_secret_headers(entry), *([key] if key else [])]),
        )

        def make() -> port.Model:
            if entry.name not in self._connections:
                self._connections[entry.name] = connection.ProviderConnection(entry, key, self._timeouts)
            line = self._connections[entry.name]
            return remote.RemoteModel(
                entry,
                line.make_model(name),
                origin,
                silence=line.silence,
                context_window=entries.find_context_window(entry, name),
                on_refused_key=lambda: self._forget_key(entry),
            )

        try:
            # This runs in a thread: the first one loads libraries, which takes a second or two.
            opened = await asyncio.to_thread(make)
        except ImportError as missing:
            hint = "install Switchtower again, with its extras"
            raise errors.ProviderNotConfigured(f"`{entry.name}`: `{missing.name}` cannot be loaded", hint=hint) from missing
        return breaker.GuardedModel(opened, self._breakers[entry.name])

    def _forget_key(self, entry: entries.ProviderEntry) -> None:
        """Drops a key that was refused, because it may have expired; the next caller that opens the entry runs its command
        again.
        """
        if self._command_keys.pop(entry.name, None) is not None:
            self._forget_models(entry.name)

    def _forget_models(self, name: str) -> None:
        self._models = {key: model for key, model in self._models.items() if key[0] != name}

    def _find_unusable_reason(self, entry: entries.ProviderEntry) -> entries.UnusableReason | None:
        library = providers.LIBRARIES[entry.provider.dialect]
        if not self._installed(library.module):
            package = f"switchtower[{library.extra}]" if library.extra else "switchtower"
            return entries.UnusableReason(f"the library `{library.module}` is not installed", f"`pip install '{package}'`")
        if entry.problem is not None:
            return entries.UnusableReason(entry.problem, "set it to an address such as `http://127.0.0.1:8000`")
        if entry.base_url is None:
            return entries.UnusableReason(f"`{entry.provider.url_variable}` is not set", "set it to the server's address")
        if entry.name == self._probed and self._servers.get_names(entry) is None:
            missing = (
                f"`{entry.provider.url_variable}` is not set, and no server answers at {providers.mask_query(entry.base_url)}"
            )
            return entries.UnusableReason(missing, "start the server, or set the variable to its address")
        if entry.needs_key and not self._has_key(entry):
            variables = " or ".join(f"`{name}`" for name in entry.key_variables)
            if self._stored_keys is not None and self._stored_keys.problem is not None:
                return entries.UnusableReason(f"{variables} is not set, and stored keys are not used", self._stored_keys.problem)
            return entries.UnusableReason(
                f"{variables} is not set", f"set it in your shell, or run `tower login {entry.name}`", is_key=True
            )
        return None

    def _make_entry(self, entry: entries.ProviderEntry) -> entries.CatalogEntry:
        lack = self._find_unusable_reason(entry)
        model = entry.model or (self._servers.get_first(entry) if lack is None else None)
        known = lack is None and model is not None
        price = entries.find_price(entry, model) if known and model else entries.Price(entry.price_in, entry.price_out)
        return entries.CatalogEntry(
            name=entry.name,
            provider=entry.provider.kind,
            model=model,
            base_url=None if entry.name == self._probed and lack else providers.mask_query(entry.base_url) or None,
            usable=lack is None,
            reason=f"{lack.reason}; hint: {lack.remedy}" if lack else "",
            context_window=entries.find_context_window(entry, model) if known and model else entry.context_window,
            price_in=price.going_in,
            price_out=price.coming_out,
            source=entry.source,
            key_source=self._describe_key_source(entry),
            lacks_key=lack is not None and lack.is_key,
        )

    def _make_demo_entry(self, *, alone: bool) -> entries.CatalogEntry:
        return entries.CatalogEntry(
            name=providers.DEMO,
            provider=providers.DEMO,
            model=demo.NAME,
            base_url=None,
            usable=True,
            reason="no other model is configured; it answers only at a terminal, or where you name it" if alone else "",
            context_window=demo.CONTEXT_WINDOW,
            source="built in",
        )

    def _describe_alternatives(self) -> str:
        usable = [name for name, entry in self._entries.items() if self._find_unusable_reason(entry) is None]
        return f"use one of {', '.join(f'`{name}`' for name in [*usable, providers.DEMO])}"

    def _report_secrets(self) -> None:
        for variable in self.list_secret_variables():
            for values in (self._variables.started_with, self._variables.current):
                if key := values.get(variable, "").strip():
                    self._on_secret(key)
        for entry in self._entries.values():
            for secret in entries.list_secret_headers(entry):
                self._on_secret(secret)
