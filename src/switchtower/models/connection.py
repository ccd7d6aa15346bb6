"""The connection of one entry to its provider: an HTTP client, kept open, and the models that use it.

Everything here is imported late and made in a thread: the libraries take a second or two to load, and a client reads certificates
from the disk. The libraries' own retries are off; the caller retries visibly.

A response cannot fill the memory, nor outlive its caller. The libraries buffer a line, and an error's body, of any length;
streams of many short lines pass unchanged, however long they are in total. And not every library closes its connection when the
caller stops reading.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from switchtower.models import entries, providers
from switchtower.models.providers import COMPATIBLE, Dialect

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI
    from pydantic_ai.models import Model


NO_KEY = "no-key"
"""The value that is sent where a server needs no key, because the libraries require one."""

_MISTRAL_ID_LENGTH = 9
"""Mistral accepts call ids of this length only."""


class ConnectionTimeouts(Struct, frozen=True):
    """Time limits in seconds."""

    connect: float = 10.0
    silence: float = 120.0
    """The limit without a single byte, before the first token and between two."""


class ProviderConnection:
    def __init__(self, entry: entries.ProviderEntry, key: str | None, timeouts: ConnectionTimeouts) -> None:
        self._entry = entry
        self._key = key or NO_KEY
        self.silence = entry.timeout or timeouts.silence
        self._http = _make_http_client(entry, timeouts.connect, self.silence)
        self._client: Any = None

    def __repr__(self) -> str:
        return f"Line({self._entry.name!r})"

    def set_key(self, key: str | None) -> None:
        """Sets the key of models made from now on. Existing models keep the old key, and the connections stay."""
        self._key = key or NO_KEY
        self._client = None

    async def close(self) -> None:
        await self._http.aclose()

    def make_model(self, name: str) -> "Model[Any]":
        match self._entry.provider.dialect:
            case Dialect.ANTHROPIC:
                return self._make_anthropic_model(name)
            case Dialect.GOOGLE:
                return self._make_google_model(name)
            case Dialect.OPENAI:
                return self._make_openai_model(name)

    @property
    def _profile(self) -> Any:
        """Returns a profile that supports thinking: a user who configured a level of thinking knows that the model can."""
        return {"supports_thinking": True} if self._entry.thinking not in (None, "off") else None

    def _make_anthropic_model(self, name: str) -> "Model[Any]":
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        if self._client is None:
            self._client = AsyncAnthropic(
                api_key=self._key, base_url=self._entry.base_url, http_client=self._http, max_retries=0, open_telemetry=False
            )
        return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=self._client), profile=self._profile)

    def _make_google_model(self, name: str) -> "Model[Any]":
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        if self._client is None:
            self._client = GoogleProvider(api_key=self._key, base_url=self._entry.base_url, http_client=self._http)
        return GoogleModel(name, provider=self._client, profile=self._profile)

    def _make_openai_model(self, name: str) -> "Model[Any]":
        from pydantic_ai.models.openai import OpenAIChatModel

        if self._client is None:
            self._client = self._make_openai_client()
        client: AsyncOpenAI = self._client
        match self._entry.provider.kind:
            case "openai":
                from pydantic_ai.providers.openai import OpenAIProvider

                return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client), profile=self._profile)
            case "openrouter":
                from pydantic_ai.models.openrouter import OpenRouterModel
                from pydantic_ai.providers.openrouter import OpenRouterProvider

                return OpenRouterModel(name, provider=OpenRouterProvider(openai_client=client), profile=self._profile)
            case "ollama":
                from pydantic_ai.models.ollama import OllamaModel
                from pydantic_ai.providers.ollama import OllamaProvider

                return OllamaModel(name, provider=OllamaProvider(openai_client=client), profile=self._profile)
            case "zai":
                from pydantic_ai.models.zai import ZaiModel
                from pydantic_ai.providers.zai import ZaiProvider

                return ZaiModel(name, provider=ZaiProvider(openai_client=client), profile=self._profile)
            case "deepseek":
                from pydantic_ai.providers.deepseek import DeepSeekProvider

                return OpenAIChatModel(name, provider=DeepSeekProvider(openai_client=client), profile=self._profile)
            case "vllm":
                from pydantic_ai.providers.vllm import VLLMProvider

                return OpenAIChatModel(name, provider=VLLMProvider(openai_client=client), profile=self._profile)
            case kind:
                from pydantic_ai.profiles import ModelProfile
                from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

                profile = ModelProfile(tool_call_id_length=_MISTRAL_ID_LENGTH) if kind == "mistral" else None
                label = self._entry.name if kind == COMPATIBLE else kind
                provider = OpenAICompatibleProvider(label, openai_client=client, profile=profile)
                return OpenAIChatModel(name, provider=provider, profile=self._profile)

    def _make_openai_client(self) -> "AsyncOpenAI":
        from openai import AsyncOpenAI

        client = AsyncOpenAI(api_key=self._key, base_url=self._entry.base_url, http_client=self._http, max_retries=0)
        if self._entry.endpoint != "openai":
            # The library reads these from the environment, whatever server it connects to.
            client.organization = None
            client.project = None
        return client


def _make_http_client(entry: entries.ProviderEntry, connect: float, silence: float) -> "httpx2.AsyncClient":
    import httpx2
    from pydantic_ai.models import create_async_httpx2_client

    assert entry.base_url is not None, "an entry that can be used knows where"
    # A separate transport bypasses the proxies of the environment, which do not lead back to this machine.
    own = httpx2.AsyncHTTPTransport() if providers.is_loopback(entry.base_url) else None
    client = create_async_httpx2_client(timeout=httpx2.Timeout(silence, connect=connect), transport=own)
    client.event_hooks["response"].append(limit_response)
    return client


LONGEST_LINE = 16 * 1_048_576
LONGEST_REFUSAL = 262_144


_responses: ContextVar["list[httpx2.Response] | None"] = ContextVar("heard", default=None)


@contextlib.contextmanager
def track_responses() -> "Iterator[list[httpx2.Response]]":
    """Yields the list of responses that arrive meanwhile, for closing. It must not stay open over a generator's `yield`."""
    responses: list[httpx2.Response] = []
    token = _responses.set(responses)
    try:
        yield responses
    finally:
        _responses.reset(token)


async def limit_response(response: "httpx2.Response") -> None:
    """A hook for the HTTP client, called before a body is read."""
    import httpx2

    whole = response.stream
    assert isinstance(whole, httpx2.AsyncByteStream), "the client is an asynchronous one"
    stream: httpx2.AsyncByteStream = whole

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            held = 0
            async for chunk in stream:
                if not response.is_success:
                    yield chunk[: LONGEST_REFUSAL - held]
                    held += len(chunk)
                    if held >= LONGEST_REFUSAL:
                        return  # enough to diagnose the error
                    continue
                line_end = chunk.rfind(b"\n")
                held = held + len(chunk) if line_end < 0 else len(chunk) - line_end - 1
                if held > LONGEST_LINE:
                    raise httpx2.RemoteProtocolError("a line longer than any answer", request=response.request)
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    response.stream = Bounded()
    if (responses := _responses.get()) is not None:
        responses.append(response)
