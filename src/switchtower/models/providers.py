"""The providers that we know how to reach: where they are, which variables they are known by, what serves when nobody names
a model. A table and nothing more.

Most speak OpenAI's chat completions API and need no library of their own.
"""

from enum import StrEnum

from msgspec import Struct


class Dialect(StrEnum):
    """Which API a provider speaks."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    GOOGLE = "google"


class Provider(Struct, frozen=True, kw_only=True):
    kind: str
    dialect: Dialect = Dialect.OPENAI
    base_url: str | None = None
    """None where only the user can know."""
    url_variable: str | None = None
    key_variables: tuple[str, ...] = ()
    """The first one set wins."""
    needs_key: bool = True
    model: str | None = None
    """Serves when nobody names one."""
    price_list: str | None = None
    """Its name in the bundled price list."""


class ProviderLibrary(Struct, frozen=True):
    module: str
    extra: str | None = None
    """The extra of ours that brings it; None for what we always bring."""


LIBRARIES = {
    Dialect.OPENAI: ProviderLibrary("openai"),
    Dialect.ANTHROPIC: ProviderLibrary("anthropic", "anthropic"),
    Dialect.GOOGLE: ProviderLibrary("google.genai", "google"),
}

DEMO = "demo"
"""Always there and needs nothing; no row of the table, because there is nothing to reach."""

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
"""In the order in which they are preferred when several could serve."""
