"""The names that a server lists: unknown ones are refused with the nearest, and a server of the user's own chooses the first."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.models.parts import KEY, ask

from switchtower.core import errors
from switchtower.models import server_models
from switchtower.models.catalog import Catalog
from switchtower.testing import model_server_script as script
from switchtower.testing.model_server import ModelServer

DIALECTS = ["openai", "anthropic", "google", "ollama", "openai-compatible"]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def catalog_of(server: ModelServer, dialect: str = "openai", clock: Clock | None = None, **table: str) -> Catalog:
    base_url = server.origin if dialect in ("anthropic", "google") else server.url
    entry = {"provider": dialect, "base_url": base_url, "key_env": "WORK_KEY", **table}
    return Catalog({"work": entry}, {"WORK_KEY": KEY, "OLLAMA_HOST": ""}, clock=clock or Clock())


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_unknown_name_is_refused_with_the_nearest_ones(dialect: str) -> None:
    async with ModelServer([], models=["qwen3-coder", "llama4", "gpt-6.1-terra"]) as server:
        catalog = catalog_of(server, dialect)
        await catalog.look_up("work", "gpt-6.1-tera")
        with pytest.raises(errors.UnknownModel) as refusal:
            catalog.check("work", "gpt-6.1-tera")
        await catalog.look_up("work", "llama4")
        catalog.check("work", "llama4")
        [lookup] = server.lookups
        await catalog.close()
    assert refusal.value.message.startswith("Unknown model: `gpt-6.1-tera`; hint: `work` has `gpt-6.1-terra`")
    assert KEY in "".join(lookup.headers.values()), "the list is asked for with the key"


async def test_a_server_without_a_list_takes_any_name() -> None:
    async with ModelServer([]) as server:
        catalog = catalog_of(server)
        await catalog.look_up("work", "anything")
        catalog.check("work", "anything")
        assert catalog.server_models("work") is None
        await catalog.close()


async def test_a_list_is_asked_for_once_in_a_while() -> None:
    clock = Clock()
    async with ModelServer([], models=["qwen3"]) as server:
        catalog = catalog_of(server, clock=clock)
        await asyncio.gather(*(catalog.look_up("work", "qwen3") for _ in range(5)))
        await catalog.look_up("work", "qwen3")
        assert len(server.lookups) == 1
        clock.now += server_models.FRESH
        await catalog.look_up("work", "qwen3")
        assert len(server.lookups) == 2
        await catalog.close()


async def test_a_model_that_was_installed_a_moment_ago_is_found() -> None:
    clock, models = Clock(), ["qwen3"]
    async with ModelServer([], models=models) as server:
        catalog = catalog_of(server, clock=clock)
        await catalog.look_up("work", "qwen3")
        models.append("llama4")
        clock.now += server_models.FRESH_REFUSAL
        await catalog.look_up("work", "llama4")
        catalog.check("work", "llama4")
        await catalog.close()


async def test_a_server_that_does_not_answer_is_not_waited_for() -> None:
    hung = asyncio.Event()

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hung.wait()
        writer.close()

    listening = await asyncio.start_server(ignore, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    names = await asyncio.to_thread(server_models.fetch, f"{url}/models", {}, 0.05)
    hung.set()
    listening.close()
    assert names is None


@pytest.mark.parametrize("dialect", ["ollama", "openai-compatible", "vllm"])
async def test_a_server_without_a_configured_model_answers_with_its_first(dialect: str) -> None:
    async with ModelServer([script.say("hello")], models=["nomic-embed-text", "qwen3", "llama4"]) as server:
        catalog = catalog_of(server, dialect)
        model = await catalog.open("work", None)
        assert (model.name, (await ask(model)).text) == ("qwen3", "hello")
        assert catalog.default() == ("work", "qwen3")
        await catalog.close()


async def test_ollama_is_found_at_its_usual_address() -> None:
    async with ModelServer([], models=["qwen3"]) as server:
        catalog = Catalog({}, {}, clock=Clock(), ollama_url=server.url)
        assert catalog.default() is None, "before it is looked for"
        await catalog.look_up_default()
        assert catalog.default() == ("ollama", "qwen3")
        [ollama] = [listing for listing in catalog.listings() if listing.name == "ollama"]
        assert (ollama.usable, ollama.model, ollama.base_url) == (True, "qwen3", server.url)
        await catalog.close()


async def test_no_ollama_is_no_provider() -> None:
    catalog = Catalog({}, {}, clock=Clock(), ollama_url="http://127.0.0.1:1/v1")
    await catalog.look_up_default()
    assert catalog.default() is None
    with pytest.raises(errors.ProviderNotConfigured, match="`OLLAMA_HOST` is not set"):
        catalog.check("ollama", "qwen3")
    await catalog.close()


@pytest.mark.parametrize(
    ("names", "wanted", "known"),
    [
        (["qwen3:latest"], "qwen3", True),
        (["qwen3:8b"], "qwen3", False),
        (["claude-sonnet-4-5-20250929"], "claude-sonnet-4-5", True),
        (["claude-sonnet-4-5-20250929"], "claude-sonnet-4-5-latest", True),
        (["claude-sonnet-4-5-20250929"], "claude-sonnet", False),
        (["meta/llama-4"], "meta/llama-4:free", True),
        (["gemini-3.8-flash"], "models/gemini-3.8-flash", True),
        (["GPT-6"], "gpt-6", True),
        (["gpt-6"], "gpt-5", False),
    ],
)
def test_aliases_count_as_the_models_they_stand_for(names: Sequence[str], wanted: str, known: bool) -> None:
    assert server_models.has(names, wanted) is known


async def test_a_price_is_known_when_it_is_configured_or_listed() -> None:
    tables = {
        "own": {"provider": "openai-compatible", "base_url": "http://127.0.0.1:1/v1", "model": "m"},
        "priced": {
            "provider": "openai-compatible",
            "base_url": "http://127.0.0.1:1/v1",
            "model": "m",
            "price_in": 0,
            "price_out": 0,
        },
    }
    catalog = Catalog(tables, {"OLLAMA_HOST": ""})
    assert [catalog.has_price(name, None) for name in ("own", "priced", "demo")] == [False, True, True]
