"""The table of known providers: their addresses, variables and default models. Most use OpenAI's chat completions API and need no
separate library.

Addresses from files and variables are normalized for clients.

The variables that configure providers come from the daemon's environment, and from the owner's shell later. Values of the shell
are kept in memory only. One provider's variables all come from one source, so that a key is never sent to an address that was set
for another one.
"""

import ipaddress
from collections.abc import Mapping
from enum import StrEnum
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from switchtower.core import errors


class Dialect(StrEnum):
    """The API that a provider uses."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    GOOGLE = "google"


class Provider(Struct, frozen=True, kw_only=True):
    kind: str
    dialect: Dialect = Dialect.OPENAI
    base_url: str | None = None
    """None where only the user can know it."""
    url_variable: str | None = None
    key_variables: tuple[str, ...] = ()
    """The variables for the key; the first one set is used."""
    needs_key: bool = True
    model: str | None = None
    """The default model."""
    price_list: str | None = None
    """Its name in the bundled price list."""


class ProviderLibrary(Struct, frozen=True):
    module: str
    extra: str | None = None
    """The optional dependency that it needs; None when it is always installed."""


LIBRARIES = {
    Dialect.OPENAI: ProviderLibrary("openai"),
    Dialect.ANTHROPIC: ProviderLibrary("anthropic", "anthropic"),
    Dialect.GOOGLE: ProviderLibrary("google.genai", "google"),
}

DEMO = "demo"
"""The demo is always available and needs nothing; it is not a row of the table, because it has no server."""

COMPATIBLE = "openai-compatible"
OLLAMA = "ollama"

_ALL = (
    Provider(
        kind="anthropic",
        dialect=Dialect.ANTHROPIC,
        base_url="https://api.anthropic.com",
        url_variable="ANTHROPIC_BASE_URL",
        key_variables=("ANTHROPIC_API_KEY",),
        model="claude-sonnet-5-5",
        price_list="anthropic",
    ),
    Provider(
        kind="openai",
        base_url="https://api.openai.com/v1",
        url_variable="OPENAI_BASE_URL",
        key_variables=("OPENAI_API_KEY",),
        model="gpt-6.1-terra",
        price_list="openai",
    ),
    Provider(
        kind="google",
        dialect=Dialect.GOOGLE,
        base_url="https://generativelanguage.googleapis.com",
        url_variable="GOOGLE_GEMINI_BASE_URL",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        model="gemini-3.8-flash",
        price_list="google",
    ),
    Provider(
        kind="openrouter",
        base_url="https://openrouter.ai/api/v1",
        key_variables=("OPENROUTER_API_KEY",),
        model="anthropic/claude-sonnet-5.5",
        price_list="openrouter",
    ),
    Provider(
        kind="mistral",
        base_url="https://api.mistral.ai/v1",
        key_variables=("MISTRAL_API_KEY",),
        model="mistral-large-4",
        price_list="mistral",
    ),
    Provider(
        kind="zai",
        base_url="https://api.z.ai/api/paas/v4",
        key_variables=("ZAI_API_KEY",),
        model="glm-5.3",
        price_list="zai",
    ),
    Provider(
        kind="minimax",
        base_url="https://api.minimax.io/v1",
        key_variables=("MINIMAX_API_KEY",),
        model="MiniMax-M2.7",
        price_list="minimax",
    ),
    Provider(
        kind="groq",
        base_url="https://api.groq.com/openai/v1",
        key_variables=("GROQ_API_KEY",),
        model="openai/gpt-oss-120b",
        price_list="groq",
    ),
    Provider(
        kind="deepseek",
        base_url="https://api.deepseek.com",
        key_variables=("DEEPSEEK_API_KEY",),
        model="deepseek-flash",
        price_list="deepseek",
    ),
    Provider(
        kind="xai",
        base_url="https://api.x.ai/v1",
        key_variables=("XAI_API_KEY",),
        model="grok-4.7",
        price_list="x-ai",
    ),
    Provider(kind=OLLAMA, base_url="http://127.0.0.1:11434/v1", url_variable="OLLAMA_HOST", needs_key=False),
    Provider(kind="vllm", url_variable="VLLM_BASE_URL", key_variables=("VLLM_API_KEY",), needs_key=False),
    Provider(kind="lmstudio", base_url="http://127.0.0.1:1234/v1", needs_key=False),
    Provider(kind=COMPATIBLE, needs_key=False),
)

PROVIDERS = {provider.kind: provider for provider in _ALL}
"""The providers in the order of preference when several are usable."""


OLLAMA_PORT = 11434
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104
_LOCAL = frozenset({"ollama", "vllm", "lmstudio"})
"""Servers whose API is always under `/v1`, which users often omit."""


def find_address_problem(address: str) -> str | None:
    """Returns the reason why this is not the address of a server; None when it is one. Never repeats it: it may contain a
    password.
    """
    try:
        parts = urlsplit(address.strip())
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        return "is not an address"
    if parts.scheme not in ("http", "https"):
        return "does not begin with `http://` or `https://`"
    if not parts.hostname or not port_is_fine or not address.strip().isprintable() or " " in address.strip():
        return "is not an address"
    if parts.username is not None or parts.password is not None:
        return "holds a user or a password"
    return None


def normalize_address(address: str, kind: str) -> str:
    """Returns the address in one spelling, as a client needs it."""
    parts = urlsplit(address.strip())
    path = parts.path.rstrip("/")
    if not path and kind in _LOCAL:
        path = "/v1"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def parse_ollama_host(host: str) -> str:
    """Interprets `OLLAMA_HOST` as Ollama does: scheme and port may be missing, and a server that listens on all interfaces is
    local.
    """
    scheme, separator, rest = host.strip().strip("\"'").partition("://")
    if not separator:
        scheme, rest = "http", scheme
    rest, _, path = rest.partition("/")
    default_port = {"http": 80, "https": 443}.get(scheme, 0) if separator else OLLAMA_PORT
    name, port = _split_host_and_port(rest)
    if name in ("", *_EVERYWHERE):
        name = "127.0.0.1"
    shown = f"[{name}]" if ":" in name else name
    return f"{scheme}://{shown}:{port or default_port}/{path}"


def mask_query(address: str | None) -> str:
    """Returns the address for people: without a query, which may contain a key."""
    return (address or "").partition("?")[0]


def is_loopback(address: str) -> bool:
    """Returns whether the address is this machine: no proxy is in between."""
    name = urlsplit(address).hostname or ""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _split_host_and_port(text: str) -> tuple[str, int | None]:
    if text.startswith("["):
        name, _, after = text[1:].partition("]")
        return name, _parse_port(after.removeprefix(":"))
    if text.count(":") > 1:
        return text, None  # an IPv6 address without brackets
    name, _, port = text.partition(":")
    return name, _parse_port(port)


def _parse_port(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) < 65_536 else None


LONGEST_VALUE = 16_384
SHELL = "your shell"
_BY_PROVIDER = {
    provider.kind: (*provider.key_variables, *([provider.url_variable] if provider.url_variable else []))
    for provider in PROVIDERS.values()
}
_PROVIDER_OF = {name: kind for kind, names in _BY_PROVIDER.items() for name in names}
NAMES = frozenset(_PROVIDER_OF)
"""The only variables that a shell may pass."""


def select_provider_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the provider variables that a process has and may pass to the daemon."""
    found = {name: environ.get(name, "").strip() for name in sorted(NAMES)}
    return {name: value for name, value in found.items() if _is_plain(value)}


def _is_plain(value: str) -> bool:
    return 0 < len(value) <= LONGEST_VALUE and value.isascii() and value.isprintable()


class ProviderVariables:
    def __init__(self, environ: Mapping[str, str], place: str = "the daemon's environment") -> None:
        """`place` names the source of this environment, for people."""
        self._place = place
        self.started_with = dict(environ)
        self._handed_over: dict[str, dict[str, str]] = {}
        self.current: Mapping[str, str] = self.started_with

    def __repr__(self) -> str:
        return f"ProviderVariables({', '.join(self._handed_over)})"  # the values are keys

    def add_shell_variables(self, given: Mapping[str, str]) -> bool:
        """Takes the variables that a shell has set; returns whether that changes anything. Raises `InvalidCommand`, which repeats
        no value.
        """
        for name, value in given.items():
            if name not in NAMES:
                raise errors.InvalidCommand("only variables of the known providers can be handed over", hint="see docs/models.md")
            if not _is_plain(value):
                raise errors.InvalidCommand(f"the value of `{name}` is not plain text of at most {LONGEST_VALUE} characters")
        before = self.current
        for kind in {_PROVIDER_OF[name] for name in given}:
            self._handed_over[kind] = {name: given[name] for name in _BY_PROVIDER[kind] if name in given}
        replaced = {name for kind in self._handed_over for name in _BY_PROVIDER[kind]}
        kept = {name: value for name, value in self.started_with.items() if name not in replaced}
        self.current = {**kept, **{name: value for values in self._handed_over.values() for name, value in values.items()}}
        return self.current != before

    def describe_source(self, name: str) -> str:
        """Returns the source of a variable's value, for people."""
        is_handed_over = name in self._handed_over.get(_PROVIDER_OF.get(name, ""), {})
        return SHELL if is_handed_over else self._place
