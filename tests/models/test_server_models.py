"""The names that a server lists: unknown ones are refused with the nearest, and a server of the user's own chooses the first."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.models.parts import SECRET_KEY, ask

from switchtower.core import errors
from switchtower.models import server_models
from switchtower.models.catalog import Catalog
from switchtower.testing import model_script as script
from switchtower.testing.model_server import ModelServer

DIALECTS = ["openai", "anthropic", "google", "ollama", "openai-compatible"]


class CatalogClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def make_catalog(server: ModelServer, dialect: str = "openai", clock: CatalogClock | None = None, **table: str) -> Catalog:
    base_url = server.origin if dialect in ("anthropic", "google") else server.url
    entry = {"provider": dialect, "base_url": base_url, "key_env": "WORK_KEY", **table}
    return Catalog({"work": entry}, {"WORK_KEY": SECRET_KEY, "OLLAMA_HOST": ""}, clock=clock or CatalogClock())


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_unknown_name_is_refused_with_the_nearest_ones(dialect: str) -> None:
    async with ModelServer([], models=["qwen3-coder", "llama4", "gpt-6.1-terra"]) as server:
        catalog = make_catalog(server, dialect)
        await catalog.refresh_models("work", "gpt-6.1-tera")
        with pytest.raises(errors.UnknownModel) as refusal:
            catalog.check_model("work", "gpt-6.1-tera")
        await catalog.refresh_models("work", "llama4")
        catalog.check_model("work", "llama4")
        [lookup] = server.lookups
        await catalog.close()
    assert refusal.value.message.startswith("Unknown model: `gpt-6.1-tera`; hint: `work` has `gpt-6.1-terra`")
    assert SECRET_KEY in "".join(lookup.headers.values()), "the list is asked for with the key"


async def test_a_server_without_a_list_takes_any_name() -> None:
    async with ModelServer([]) as server:
        catalog = make_catalog(server)
        await catalog.refresh_models("work", "anything")
        catalog.check_model("work", "anything")
        assert catalog.list_server_models("work") is None
        await catalog.close()


async def test_a_list_is_asked_for_once_in_a_while() -> None:
    clock = CatalogClock()
    async with ModelServer([], models=["qwen3"]) as server:
        catalog = make_catalog(server, clock=clock)
        await asyncio.gather(*(catalog.refresh_models("work", "qwen3") for _ in range(5)))
        await catalog.refresh_models("work", "qwen3")
        assert len(server.lookups) == 1
        clock.now += server_models.FRESH
        await catalog.refresh_models("work", "qwen3")
        assert len(server.lookups) == 2
        await catalog.close()


async def test_a_model_that_was_installed_a_moment_ago_is_found() -> None:
    clock, models = CatalogClock(), ["qwen3"]
    async with ModelServer([], models=models) as server:
        catalog = make_catalog(server, clock=clock)
        await catalog.refresh_models("work", "qwen3")
        models.append("llama4")
        clock.now += server_models.FRESH_REFUSAL
        await catalog.refresh_models("work", "llama4")
        catalog.check_model("work", "llama4")
        await catalog.close()


async def test_a_server_that_does_not_answer_is_not_waited_for() -> None:
    hung = asyncio.Event()

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hung.wait()
        writer.close()

    listening = await asyncio.start_server(ignore, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    names = await asyncio.to_thread(server_models.fetch_list, f"{url}/models", {}, 0.05)
    hung.set()
    listening.close()
    assert names is None


@pytest.mark.parametrize("dialect", ["ollama", "openai-compatible", "vllm"])
async def test_a_server_without_a_configured_model_answers_with_its_first(dialect: str) -> None:
    async with ModelServer([script.reply_text("hello")], models=["nomic-embed-text", "qwen3", "llama4"]) as server:
        catalog = make_catalog(server, dialect)
        model = await catalog.open_model("work", None)
        assert (model.name, (await ask(model)).text) == ("qwen3", "hello")
        assert catalog.choose_default() == ("work", "qwen3")
        await catalog.close()


async def test_ollama_is_found_at_its_usual_address() -> None:
    async with ModelServer([], models=["qwen3"]) as server:
        catalog = Catalog({}, {}, clock=CatalogClock(), ollama_url=server.url)
        assert catalog.choose_default() is None, "before it is looked for"
        await catalog.refresh_default()
        assert catalog.choose_default() == ("ollama", "qwen3")
        [ollama] = [listing for listing in catalog.list_entries() if listing.name == "ollama"]
        assert (ollama.usable, ollama.model, ollama.base_url) == (True, "qwen3", server.url)
        await catalog.close()


async def test_no_ollama_is_no_provider() -> None:
    catalog = Catalog({}, {}, clock=CatalogClock(), ollama_url="http://127.0.0.1:1/v1")
    await catalog.refresh_default()
    assert catalog.choose_default() is None
    with pytest.raises(errors.ProviderNotConfigured, match="`OLLAMA_HOST` is not set"):
        catalog.check_model("ollama", "qwen3")
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
    assert server_models.has_model(names, wanted) is known


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
