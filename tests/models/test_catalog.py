"""The catalog: what can be used and why the rest cannot, who serves when nobody is named, and how a model is opened."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from tests.models.parts import SECRET_KEY, ask

from switchtower.core import errors
from switchtower.models import demo, entries, keys, providers
from switchtower.models.catalog import Catalog
from switchtower.models.entries import CatalogEntry, is_installed
from switchtower.models.keys import KeyStore
from switchtower.settings.sources import ConfigError
from switchtower.testing import model_script as script
from switchtower.testing.model_server import ModelServer


def list_models(tables: dict[str, Any], environ: dict[str, str], **options: Any) -> dict[str, CatalogEntry]:
    return {listing.name: listing for listing in Catalog(tables, environ, **options).list_entries()}


def get_refusal(catalog: Catalog, provider: str, model: str | None = None) -> errors.ProviderNotConfigured:
    with pytest.raises(errors.ProviderNotConfigured) as raised:
        catalog.check_model(provider, model)
    return raised.value


def test_with_nothing_configured_there_is_the_demo_model_and_the_list_says_so() -> None:
    catalog = Catalog({}, {})

    listings = catalog.list_entries()

    assert [listing.name for listing in listings if listing.usable] == ["demo"]
    assert listings[-1].source == "built in"
    assert "no other model is configured" in listings[-1].reason
    assert catalog.choose_default() is None
    assert catalog.choose(None, allows_demo=True) == ("demo", None)
    assert all(listing.reason for listing in listings)


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("OPENAI_API_KEY", "openai"),
        ("ANTHROPIC_API_KEY", "anthropic"),
        ("GEMINI_API_KEY", "google"),
        ("GOOGLE_API_KEY", "google"),
        ("OPENROUTER_API_KEY", "openrouter"),
        ("MISTRAL_API_KEY", "mistral"),
        ("ZAI_API_KEY", "zai"),
        ("MINIMAX_API_KEY", "minimax"),
        ("GROQ_API_KEY", "groq"),
        ("DEEPSEEK_API_KEY", "deepseek"),
        ("XAI_API_KEY", "xai"),
    ],
)
def test_the_usual_variable_of_a_provider_is_enough(variable: str, name: str) -> None:
    catalog = Catalog({}, {variable: SECRET_KEY})
    usable = [listing for listing in catalog.list_entries() if listing.usable]
    assert [(listing.name, listing.source) for listing in usable] == [(name, "environment"), ("demo", "built in")]
    assert usable[0].price_in, "a model that is chosen by itself has a known price"
    assert catalog.choose_default() == (name, usable[0].model)
    catalog.check_model(name, None)
    assert variable in catalog.list_secret_variables()
    assert f"`{variable}`" in list_models({}, {})[name].reason


def test_a_variable_that_is_set_to_nothing_is_not_set() -> None:
    assert Catalog({}, {"OPENAI_API_KEY": "  "}).choose_default() is None


def test_an_ollama_needs_no_key_but_the_name_of_a_model() -> None:
    catalog = Catalog({}, {"OLLAMA_HOST": "gpu.local"})

    assert list_models({}, {"OLLAMA_HOST": "gpu.local"})["ollama"].base_url == "http://gpu.local:11434/v1"
    catalog.check_model("ollama", "qwen3")
    assert get_refusal(catalog, "ollama").hint == "name a model"
    assert catalog.choose_default() is None, "nobody knows which models it has"
    assert "`OLLAMA_HOST` is not set" in str(get_refusal(Catalog({}, {}), "ollama", "qwen3"))


def test_a_base_url_in_the_environment_is_used_and_has_no_model_of_openais() -> None:
    environ = {"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1/"}
    listing = list_models({}, environ)["openai"]
    assert (listing.usable, listing.base_url, listing.model) == (True, "http://127.0.0.1:8000/v1", None)
    broken = list_models({}, {"OPENAI_BASE_URL": "user:pw@nowhere", "OPENAI_API_KEY": SECRET_KEY})["openai"]
    assert not broken.usable
    assert "`OPENAI_BASE_URL`" in broken.reason
    assert "pw" not in broken.reason


def test_the_files_entries_come_first_and_in_their_order() -> None:
    tables = {
        "later": {"provider": "groq", "key_env": "NOT_SET"},
        "local": {"provider": "ollama", "model": "qwen3"},
        "work": {"provider": "openai", "model": "gpt-5"},
    }
    environ = {"OPENAI_API_KEY": SECRET_KEY, "ANTHROPIC_API_KEY": SECRET_KEY}

    names = [listing.name for listing in Catalog(tables, environ).list_entries()]

    assert names[:3] == ["later", "local", "work"]
    assert names[-1] == "demo"
    assert Catalog(tables, environ).choose_default() == ("local", "qwen3")
    assert Catalog({}, environ).choose_default() == ("anthropic", providers.PROVIDERS["anthropic"].model)


def test_an_entry_may_take_a_providers_name() -> None:
    tables = {"openai": {"provider": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "own"}}
    listings = [listing for listing in Catalog(tables, {"OPENAI_API_KEY": SECRET_KEY}).list_entries() if listing.name == "openai"]
    assert [(listing.source, listing.model) for listing in listings] == [("config", "own")]


def test_what_was_configured_is_listed() -> None:
    table = {"provider": "openai", "model": "gpt-5", "price_in": 1, "price_out": 2.5, "context_window": 9_000}
    listing = list_models({"work": table}, {"OPENAI_API_KEY": SECRET_KEY})["work"]
    assert (listing.provider, listing.model, listing.context_window) == ("openai", "gpt-5", 9_000)
    assert (listing.price_in, listing.price_out, listing.usable, listing.reason) == (1.0, 2.5, True, "")


@pytest.mark.parametrize(("name", "module"), [("anthropic", "anthropic"), ("google", "google.genai")])
def test_without_its_library_a_provider_cannot_be_used_and_says_what_to_install(name: str, module: str) -> None:
    environ = {"ANTHROPIC_API_KEY": SECRET_KEY, "GEMINI_API_KEY": SECRET_KEY, "OPENAI_API_KEY": SECRET_KEY}
    catalog = Catalog({}, environ, installed=lambda asked: asked != module)

    assert get_refusal(catalog, name).hint == f"`pip install 'switchtower[{name}]'`"
    catalog.check_model("openai", None)


def test_a_library_is_looked_for_and_not_loaded() -> None:
    assert is_installed("msgspec")
    assert not is_installed("no_such_library")
    assert not is_installed("no_such_library.inside")
    assert not is_installed("")


def test_an_unknown_provider_is_refused_with_those_that_can_be_used() -> None:
    refused = get_refusal(Catalog({}, {"GROQ_API_KEY": SECRET_KEY}), "gorq", None)
    assert refused.message == "The model provider is not configured: `gorq`; hint: use one of `groq`, `demo`"
    assert len(get_refusal(Catalog({}, {}), "x\n\x00" * 10_000).message) < 300


@pytest.mark.parametrize("model", ["m" * 10_000, "a\nb", "\x00", "   "])
def test_what_is_no_name_of_a_model_is_refused(model: str) -> None:
    assert get_refusal(Catalog({}, {"OPENAI_API_KEY": SECRET_KEY}), "openai", model).hint == "name a model it has"


def test_openrouter_wants_the_maker_of_a_model() -> None:
    catalog = Catalog({}, {"OPENROUTER_API_KEY": SECRET_KEY})
    assert get_refusal(catalog, "openrouter", "gpt-5").hint == "write `maker/gpt-5`"
    catalog.check_model("openrouter", "openai/gpt-5")


def test_a_key_is_not_sent_to_another_address_than_its_providers() -> None:
    tables = {"mine": {"provider": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m"}}
    catalog = Catalog(tables, {"OPENAI_API_KEY": SECRET_KEY})
    catalog.check_model("mine", None)  # without any key: a server of one's own may want none


async def test_a_server_of_ones_own_never_sees_the_providers_key() -> None:
    async with ModelServer([script.reply_text("ok")]) as server:
        tables = {"mine": {"provider": "openai", "base_url": server.url, "model": "m"}}
        catalog = Catalog(tables, {"OPENAI_API_KEY": SECRET_KEY})
        await ask(await catalog.open_model("mine", None))
        await catalog.close()
        assert SECRET_KEY not in str(server.requests[0].headers)


async def test_the_environments_address_gets_the_environments_key() -> None:
    async with ModelServer([script.reply_text("ok")]) as server:
        catalog = Catalog({}, {"OPENAI_API_KEY": SECRET_KEY, "OPENAI_BASE_URL": server.url})
        model = await catalog.open_model("openai", "m")
        await ask(model)
        await catalog.close()
        assert server.requests[0].headers["authorization"] == f"Bearer {SECRET_KEY}"
        assert (model.provider, model.name) == ("openai", "m")


async def test_the_demo_model_goes_by_no_other_name() -> None:
    catalog = Catalog({}, {}, demo_delay=0)
    for name in (None, "demo"):
        model = await catalog.open_model("demo", name)
        assert isinstance(model, demo.DemoModel)
    assert get_refusal(catalog, "demo", "gpt-5").detail == "`demo` has no model `gpt-5`"


def get_default_refusal(catalog: Catalog, model: str | None = None, *, allows_demo: bool = False) -> errors.ProviderNotConfigured:
    with pytest.raises(errors.ProviderNotConfigured) as raised:
        catalog.choose(model, allows_demo=allows_demo)
    return raised.value


def test_the_demo_never_serves_a_session_that_does_not_allow_it() -> None:
    assert "no key and no model server was found" in str(get_default_refusal(Catalog({}, {})))
    assert "`--provider demo`" in str(get_default_refusal(Catalog({}, {})))


def test_the_demo_never_serves_a_session_that_names_a_model() -> None:
    refused = get_default_refusal(Catalog({}, {}), "gpt-5", allows_demo=True)

    assert refused.detail == "no usable provider is known to have the model `gpt-5`"


def test_a_key_without_its_library_is_reported_as_that_and_never_as_a_missing_key() -> None:
    catalog = Catalog({}, {"ANTHROPIC_API_KEY": SECRET_KEY}, installed=lambda module: module != "anthropic")

    for allows_demo in (False, True):
        refused = get_default_refusal(catalog, allows_demo=allows_demo)
        assert refused.detail == "`anthropic`: the library `anthropic` is not installed"
        assert refused.hint == "`pip install 'switchtower[anthropic]'`"


def test_a_configured_model_that_cannot_be_used_is_not_replaced_by_the_demo() -> None:
    catalog = Catalog({"work": {"provider": "openai", "key_env": "WORK_KEY"}}, {})

    assert get_default_refusal(catalog, allows_demo=True).detail == "`work`: `WORK_KEY` is not set"


def test_a_named_model_is_served_by_the_provider_that_is_known_to_have_it() -> None:
    catalog = Catalog({}, {"ANTHROPIC_API_KEY": SECRET_KEY, "OPENAI_API_KEY": SECRET_KEY})

    assert catalog.choose("gpt-5", allows_demo=False) == ("openai", "gpt-5")
    assert Catalog({}, {"OPENAI_API_KEY": SECRET_KEY}).choose("new-1", allows_demo=False) == ("openai", "new-1")
    assert "name its provider too" in str(get_default_refusal(catalog, "new-1"))


async def test_what_cannot_be_used_cannot_be_opened() -> None:
    with pytest.raises(errors.ProviderNotConfigured):
        await Catalog({}, {}).open_model("openai", "gpt-5")


async def test_opening_again_gives_the_same_model_and_many_names_do_not_pile_up() -> None:
    catalog = Catalog({"work": {"provider": "ollama", "model": "first"}}, {})
    first = await catalog.open_model("work", None)
    assert await catalog.open_model("work", "first") is first
    for number in range(300):
        await catalog.open_model("work", f"model-{number}")
    assert await catalog.open_model("work", "first") is not first
    await catalog.close()


def test_every_key_is_told_to_the_redactor_at_once() -> None:
    learned: list[str] = []
    tables = {
        "work": {
            "provider": "openai-compatible",
            "base_url": "http://127.0.0.1:1",
            "key_env": "MY_KEY",
            "headers": {"Authorization": "Bearer header-secret", "X-Team": "tower-team"},
        }
    }
    environ = {"MY_KEY": "my-own-key", "GROQ_API_KEY": "groq-key", "PATH": "/bin"}

    catalog = Catalog(tables, environ, on_secret=learned.append)

    assert {"my-own-key", "groq-key", "header-secret"} <= set(learned)
    assert "tower-team" not in learned
    assert "/bin" not in learned
    assert {"MY_KEY", "GROQ_API_KEY", "OPENAI_API_KEY"} <= catalog.list_secret_variables()
    assert not any(secret in repr(catalog) + repr(vars(catalog)["_entries"]) for secret in learned)


def test_entries_of_one_endpoint_share_a_breaker_and_others_do_not() -> None:
    tables = {
        "fast": {"provider": "openrouter", "model": "a/b"},
        "smart": {"provider": "openrouter", "model": "c/d"},
        "own": {"provider": "openai", "base_url": "http://127.0.0.1:1/v1"},
    }
    breakers = Catalog(tables, {}).list_breakers()
    assert breakers["fast"] is breakers["smart"] is breakers["openrouter"]
    assert breakers["own"] is not breakers["openai"]


def _wait_until_ended(pid: int) -> None:
    """Waits until it has ended, whether or not anybody has taken note of that."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state in "ZX":
            return
        time.sleep(0.01)
    raise AssertionError(f"the process {pid} lives on")


class TestKeysFromCommands:
    """`key_command`: run when a model is opened, off the loop, once."""

    def make_tables(self, server: ModelServer, command: Any) -> dict[str, Any]:
        return {"work": {"provider": "openai", "base_url": server.url, "model": "m", "key_command": command}}

    async def test_what_it_prints_first_is_the_key_and_it_runs_once(self, tmp_path: Path) -> None:
        runs = tmp_path / "runs"
        command = ["sh", "-c", f"echo x >> {runs}; echo ' {SECRET_KEY} '; echo more"]
        learned: list[str] = []
        async with ModelServer([script.reply_text("ok")] * 2) as server:
            catalog = Catalog(self.make_tables(server, command), {"PATH": "/usr/bin:/bin"}, on_secret=learned.append)
            catalog.check_model("work", None)
            assert not runs.exists(), "asking what there is runs nothing"
            models = await asyncio.gather(*(catalog.open_model("work", name) for name in ("a", "b", "c")))
            await ask(models[0])
            await catalog.close()
            assert server.requests[0].headers["authorization"] == f"Bearer {SECRET_KEY}"
        assert runs.read_text() == "x\n"
        assert learned == [SECRET_KEY]

    async def test_a_text_is_a_command_with_its_words(self) -> None:
        async with ModelServer([script.reply_text("ok")]) as server:
            catalog = Catalog(self.make_tables(server, f"printf '%s\\n' '{SECRET_KEY}'"), {"PATH": "/usr/bin:/bin"})
            await ask(await catalog.open_model("work", None))
            await catalog.close()
            assert server.requests[0].headers["authorization"] == f"Bearer {SECRET_KEY}"

    @pytest.mark.parametrize(
        ("command", "problem"),
        [
            (["sh", "-c", f"echo {SECRET_KEY}; echo {SECRET_KEY} >&2; exit 3"], "ended with exit code 3"),
            (["sh", "-c", "echo"], "printed no key"),
            (["sh", "-c", r"printf '\377\376\000\n'"], "printed no key"),
            (["sh", "-c", "yes"], "printed more than a key"),
            (["/no/such/command"], "cannot be run: No such file"),
            (["sh", "-c", f"echo {SECRET_KEY}; kill -9 $$"], "ended with exit code -9"),
        ],
    )
    async def test_a_command_that_fails_is_a_refusal_that_repeats_nothing(self, command: list[str], problem: str) -> None:
        async with ModelServer([]) as server:
            catalog = Catalog(self.make_tables(server, command), {"PATH": "/usr/bin:/bin"})
            with pytest.raises(errors.ProviderNotConfigured) as refused:
                await catalog.open_model("work", None)
        assert problem in refused.value.message
        assert SECRET_KEY not in refused.value.message
        assert "`key_command` of `[models.work]`" in refused.value.message

    def test_a_command_that_does_not_end_is_ended_with_all_it_started(self, tmp_path: Path) -> None:
        pids = tmp_path / "pids"
        command = ["sh", "-c", f"sleep 1000 & echo $! $$ > {pids}; echo half-a-key; wait"]
        [entry] = entries.parse_config_entries({"work": {"provider": "openai", "key_command": command}})

        with pytest.raises(errors.ProviderNotConfigured, match="did not end in time") as refused:
            keys.run_key_command(entry, {"PATH": "/usr/bin:/bin"}, timeout=0.5)

        assert "half-a-key" not in refused.value.message
        for pid in pids.read_text().split():
            _wait_until_ended(int(pid))

    def test_a_command_that_closes_its_output_and_lives_on_is_ended_too(self) -> None:
        command = ["sh", "-c", f"echo {SECRET_KEY}; exec >&-; sleep 1000"]
        [entry] = entries.parse_config_entries({"work": {"provider": "openai", "key_command": command}})
        with pytest.raises(errors.ProviderNotConfigured, match="did not end in time"):
            keys.run_key_command(entry, {"PATH": "/usr/bin:/bin"}, timeout=0.5)

    async def test_a_command_that_nobody_waits_for_any_more_is_ended(self, tmp_path: Path) -> None:
        pids = tmp_path / "pids"
        command = ["sh", "-c", f"sleep 1000 & echo $! $$ > {pids}.new; mv {pids}.new {pids}; wait"]
        [entry] = entries.parse_config_entries({"work": {"provider": "openai", "key_command": command}})
        asking = asyncio.create_task(keys.request_key(entry, {"PATH": "/usr/bin:/bin"}, timeout_s=1000))
        async with asyncio.timeout(60):
            while not pids.exists():
                await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

        for pid in pids.read_text().split():
            await asyncio.to_thread(_wait_until_ended, int(pid))

    async def test_after_a_refused_key_the_command_is_asked_again(self, tmp_path: Path) -> None:
        count = tmp_path / "count"
        command = ["sh", "-c", f"echo x >> {count}; echo key-number-$(wc -l < {count})"]
        async with ModelServer([script.ScriptedRefusal(401), script.reply_text("ok")]) as server:
            catalog = Catalog(self.make_tables(server, command), {"PATH": "/usr/bin:/bin"})
            with pytest.raises(Exception, match="API key refused; hint: check the `key_command`"):
                await ask(await catalog.open_model("work", None))
            assert (await ask(await catalog.open_model("work", None))).text == "ok"
            await catalog.close()
            sent = [request.headers["authorization"] for request in server.requests]
        assert sent == ["Bearer key-number-1", "Bearer key-number-2"]


class TestTheFile:
    """`[models]`: what is wrong is named, with a remedy."""

    @pytest.mark.parametrize(
        ("tables", "setting", "hint"),
        [
            ({"w": {}}, "models.w.provider", "one of"),
            ({"w": {"provider": "gpt"}}, "models.w.provider", "one of anthropic, openai"),
            ({"w": {"provider": 5}}, "models.w.provider", "one of"),
            ({"w": {"provider": "openai", "modell": "x"}}, "models.w.modell", "the keys are"),
            ({"w": {"provider": "openai", "model": ""}}, "models.w.model", "text"),
            ({"w": {"provider": "openai", "model": "a\x00b"}}, "models.w.model", "text"),
            ({"w": {"provider": "openai", "base_url": "localhost:1"}}, "models.w.base_url", "http://127.0.0.1"),
            ({"w": {"provider": "openai", "base_url": 7}}, "models.w.base_url", "http://127.0.0.1"),
            ({"w": {"provider": "openai-compatible"}}, "models.w.base_url", "http://127.0.0.1"),
            ({"w": {"provider": "vllm"}}, "models.w.base_url", "http://127.0.0.1"),
            ({"w": {"provider": "openai", "key_env": SECRET_KEY}}, "models.w.key_env", "not the key"),
            ({"w": {"provider": "openai", "key_env": "A", "key_command": "b"}}, "models.w.key_command", "keep one"),
            ({"w": {"provider": "openai", "key_command": []}}, "models.w.key_command", "list of texts"),
            ({"w": {"provider": "openai", "key_command": "a 'b"}}, "models.w.key_command", "list of texts"),
            ({"w": {"provider": "openai", "key_command": ["a", 1]}}, "models.w.key_command", "list of texts"),
            ({"w": {"provider": "openai", "price_in": "1"}}, "models.w.price_in", "US dollars"),
            ({"w": {"provider": "openai", "price_out": -1}}, "models.w.price_out", "US dollars"),
            ({"w": {"provider": "openai", "price_out": float("nan")}}, "models.w.price_out", "US dollars"),
            ({"w": {"provider": "openai", "price_in": True}}, "models.w.price_in", "US dollars"),
            ({"w": {"provider": "openai", "context_window": 1.5}}, "models.w.context_window", "whole number"),
            ({"w": {"provider": "openai", "context_window": 0}}, "models.w.context_window", "whole number"),
            ({"w": {"provider": "openai", "thinking": "hard"}}, "models.w.thinking", "off, minimal"),
            ({"w": {"provider": "openai", "thinking": ["low"]}}, "models.w.thinking", "off, minimal"),
            ({"w": {"provider": "openai", "timeout": 0}}, "models.w.timeout", "seconds"),
            ({"w": {"provider": "openai", "headers": "x"}}, "models.w.headers", "texts"),
            ({"w": {"provider": "openai", "headers": {"a b": "c"}}}, "models.w.headers", "texts"),
            ({"w": {"provider": "openai", "headers": {"a": "b\r\nc: d"}}}, "models.w.headers", "texts"),
            ({"w": {"provider": "openai", "headers": {"a": 1}}}, "models.w.headers", "texts"),
            ({"w": "openai"}, "models.w", "[models.w]"),
            ({"demo": {"provider": "openai"}}, "models.demo", "another name"),
            ({"a b": {"provider": "openai"}}, "models.a b", "letters"),
            ({"x" * 65: {"provider": "openai"}}, "models." + "x" * 65, "letters"),
        ],
    )
    def test_a_mistake_is_refused_with_its_key_and_a_remedy(self, tables: dict[str, Any], setting: str, hint: str) -> None:
        with pytest.raises(ConfigError) as refused:
            Catalog(tables, {})
        assert refused.value.setting == setting
        assert hint in refused.value.hint
        assert SECRET_KEY not in str(refused.value)

    def test_a_password_in_an_address_is_refused_and_not_repeated(self) -> None:
        tables = {"w": {"provider": "openai", "base_url": "https://me:hunter2@host/v1"}}
        with pytest.raises(ConfigError) as refused:
            Catalog(tables, {})
        assert "hunter2" not in str(refused.value)

    @pytest.mark.parametrize("kind", providers.PROVIDERS)
    def test_every_provider_can_be_configured(self, kind: str) -> None:
        tables = {"w": {"provider": kind, "base_url": "https://example.com/v1", "model": "a/b", "key_env": "K"}}
        catalog = Catalog(tables, {"K": SECRET_KEY})
        catalog.check_model("w", None)
        assert catalog.choose_default() == ("w", "a/b")


# Keys that come while the daemon runs


async def get_used_key(catalog: Catalog, server: ModelServer) -> str:
    await ask(await catalog.open_model("work", None))
    return server.requests[-1].headers["authorization"].removeprefix("Bearer ")


async def test_a_key_that_is_handed_over_is_used_and_known_as_a_secret_before() -> None:
    secrets: list[str] = []
    async with ModelServer([script.reply_text("hi"), script.reply_text("hi"), script.reply_text("hi")]) as server:
        table = {"provider": "openai", "base_url": server.url, "model": "m", "key_env": "OPENAI_API_KEY"}
        catalog = Catalog({"work": table}, {}, on_secret=secrets.append)
        assert "`OPENAI_API_KEY` is not set" in str(get_refusal(catalog, "work"))

        catalog.add_shell_variables({"OPENAI_API_KEY": SECRET_KEY})
        assert SECRET_KEY in secrets
        assert await get_used_key(catalog, server) == SECRET_KEY
        catalog.add_shell_variables({"OPENAI_API_KEY": "sk-second-0123456789"})
        assert await get_used_key(catalog, server) == "sk-second-0123456789"

        catalog.reconfigure({"work": {**table, "key_env": "OTHER_KEY"}}, demo_delay=0)
        assert "`OTHER_KEY` is not set" in str(get_refusal(catalog, "work"))
        assert "OTHER_KEY" in catalog.list_secret_variables()
        await catalog.close()


def test_tables_that_cannot_be_used_leave_everything_as_it_was() -> None:
    catalog = Catalog({}, {"OPENAI_API_KEY": SECRET_KEY})
    before = catalog.list_entries()

    with pytest.raises(ConfigError):
        catalog.reconfigure({"work": {"provider": "nonesuch"}}, demo_delay=0)

    assert catalog.list_entries() == before


@pytest.mark.parametrize("has_library", [True, False])
@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("in_shell", [True, False])
@pytest.mark.parametrize("at_start", [True, False])
def test_wherever_a_key_is_the_list_the_choice_and_the_check_agree(
    tmp_path: Path, at_start: bool, in_shell: bool, stored: bool, has_library: bool
) -> None:
    store = KeyStore(tmp_path)
    if stored:
        store.write("anthropic", SECRET_KEY, "https://api.anthropic.com")
    catalog = Catalog(
        {},
        {"ANTHROPIC_API_KEY": SECRET_KEY} if at_start else {},
        installed=lambda module: has_library or module != "anthropic",
        stored_keys=store,
    )
    if in_shell:
        catalog.add_shell_variables({"ANTHROPIC_API_KEY": SECRET_KEY})

    has_key = at_start or in_shell or stored
    listing = next(listing for listing in catalog.list_entries() if listing.name == "anthropic")
    assert listing.usable == (has_key and has_library)
    assert (listing.key_source is not None) == has_key
    if listing.usable:
        catalog.check_model("anthropic", None)
        assert catalog.choose(None, allows_demo=True)[0] == "anthropic"
    else:
        assert get_refusal(catalog, "anthropic").message.endswith(listing.reason)
        if has_key:
            assert get_default_refusal(catalog, allows_demo=True).message.endswith(listing.reason)
    if in_shell and has_key:
        assert listing.key_source == "`ANTHROPIC_API_KEY` of your shell"


def test_a_stored_key_is_not_used_for_another_address(tmp_path: Path) -> None:
    KeyStore(tmp_path).write("openai", SECRET_KEY, "https://api.openai.com/v1")
    catalog = Catalog({}, {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, stored_keys=KeyStore(tmp_path))

    listing = next(listing for listing in catalog.list_entries() if listing.name == "openai")

    assert listing.key_source is None
