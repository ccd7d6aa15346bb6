"""The questions of the setup as data, and the conversion of their answers to lines of the configuration file.

The front end asks the questions. Everything else in the file stays unchanged, and nothing is written if a daemon could not start
with the result.

Finds the providers that a session could use on this machine (keys in the environment, models in the file, local servers, the
demo), and tests a chosen model with one small call.

It never reads keys: the catalog reports whether one exists. It queries only servers on this machine, with a short timeout, and
only for their models."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct, structs

from switchtower import config
from switchtower.cli.configuration import config_file
from switchtower.core import errors
from switchtower.core.ports import engine
from switchtower.models import catalog, connection, port, providers, server_models
from switchtower.models.entries import CatalogEntry
from switchtower.models.keys import KeyStore

SEARCH_TIMEOUT = 1.0
"""Seconds within which a server on this machine must answer."""
MAX_MODELS = 200


class LocalModelServer(Struct, frozen=True):
    """A program that serves models on this machine, at its default address."""

    kind: str
    base_url: str


LOCAL_SERVERS = tuple(
    LocalModelServer(kind, providers.PROVIDERS[kind].base_url or "")
    for kind in ("ollama", "lmstudio")
    if providers.PROVIDERS[kind].base_url is not None
)


class ProviderCandidate(Struct, frozen=True, kw_only=True):
    """A usable provider. `name` is a value of the setting `provider`."""

    name: str
    why: str
    """The reason why it was found, for the user."""
    model: str | None = None
    """The suggested model."""
    chosen_by_itself: str | None = None
    """The model that the provider uses when none is named."""
    models: tuple[str, ...] = ()
    """The models that are known to be available; there may be others."""
    table: dict[str, str] | None = None
    """The table to add to the file, if the file has none for this provider."""


class ProviderCandidates(Struct, frozen=True):
    candidates: tuple[ProviderCandidate, ...]
    """The default provider is first; the demo is last."""
    missing: tuple[tuple[str, str], ...] = ()
    """Providers that cannot be used yet, each with the reason and a remedy."""
    keyless: tuple[str, ...] = ()
    """The providers in `missing` that only need a key."""

    def get(self, name: str) -> ProviderCandidate | None:
        return next((candidate for candidate in self.candidates if candidate.name == name), None)


async def find_candidates(
    settings: config.Settings, environ: Mapping[str, str], *, servers: Sequence[LocalModelServer] = LOCAL_SERVERS
) -> ProviderCandidates:
    """Raises `ConfigError` for a file that cannot be used."""
    known = catalog.Catalog(settings.models, environ, stored_keys=KeyStore(settings.folders.config), in_shell=True)
    listings = await asyncio.to_thread(known.list_entries)
    usual = (known.choose_default() or (None,))[0]
    usable = [listing for listing in listings if listing.usable and listing.name != providers.DEMO]
    asked = [*(listing.base_url for listing in usable), *(server.base_url for server in servers)]
    answers = await _fetch_all_models([url for url in dict.fromkeys(asked) if url is not None and providers.is_loopback(url)])
    candidates = [_make_listed_candidate(listing, answers.get(listing.base_url or "")) for listing in usable]
    taken = {*settings.models, *(listing.name for listing in usable), *(listing.base_url for listing in usable)}
    for server in servers:
        models = answers.get(server.base_url)
        if models is not None and not {server.kind, server.base_url} & taken:
            candidates.append(_make_server_candidate(server, models))
    candidates.sort(key=lambda candidate: candidate.name != usual)
    found = {candidate.name for candidate in candidates}
    missing = [(listing.name, listing.reason) for listing in listings if not listing.usable and listing.name not in found]
    demo = ProviderCandidate(name=providers.DEMO, why="built in; it does not think, but the tools it uses are real")
    keyless = tuple(listing.name for listing in listings if listing.lacks_key and listing.name not in found)
    return ProviderCandidates((*candidates, demo), tuple(missing), keyless)


def _make_listed_candidate(listing: CatalogEntry, models: tuple[str, ...] | None) -> ProviderCandidate:
    if listing.source == "config":
        why = f"in the configuration file, as a `{listing.provider}`"
    elif listing.key_source is not None:
        why = f"its key is in {listing.key_source}"
    else:
        why = f"{providers.PROVIDERS[listing.provider].url_variable} is set"
    if models is not None:
        why += ", and it answers"
    model = listing.model or (models[0] if models else None)
    return ProviderCandidate(name=listing.name, why=why, model=model, chosen_by_itself=listing.model, models=models or ())


def _make_server_candidate(server: LocalModelServer, models: tuple[str, ...]) -> ProviderCandidate:
    table = {"provider": server.kind, "base_url": server.base_url}
    why = f"answers at {urlsplit(server.base_url).netloc}" + ("" if models else ", and has no model yet")
    return ProviderCandidate(name=server.kind, why=why, model=models[0] if models else None, models=models, table=table)


async def _fetch_all_models(urls: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Returns the models of the servers that answer."""
    told = await asyncio.gather(*(asyncio.to_thread(list_server_models, url) for url in urls))
    return {url: models for url, models in zip(urls, told, strict=True) if models is not None}


def list_server_models(base_url: str) -> tuple[str, ...] | None:
    """Returns the models that a server lists through OpenAI's API; None when no such server answers."""
    names = server_models.fetch_list(f"{base_url}/models", {}, SEARCH_TIMEOUT)
    return None if names is None else names[:MAX_MODELS]


TRIAL_TIMEOUT = 30.0
_TRIAL_PROMPT = "Answer with the word OK and nothing else."
_MAX_ANSWER_CHARS = 60


class ModelTrial(Struct, frozen=True):
    """The result of a test call. `problem` is one sentence with a remedy and never contains a key; None after success."""

    problem: str | None = None
    said: str = ""
    seconds: float = 0.0
    was_made: bool = True

    @property
    def is_good(self) -> bool:
        return self.problem is None


async def try_model(
    settings: config.Settings,
    models: Mapping[str, object],
    provider: str,
    model: str | None,
    environ: Mapping[str, str],
    *,
    timeout: float = TRIAL_TIMEOUT,
) -> ModelTrial:
    """Tests a model. `models` are the file's tables after the change. The demo model needs no test."""
    if provider == providers.DEMO:
        return ModelTrial(was_made=False)
    patience = connection.ConnectionTimeouts(connect=min(10.0, timeout), silence=timeout)
    known = catalog.Catalog(models, environ, timeouts=patience, stored_keys=KeyStore(settings.folders.config))
    began = time.monotonic()
    try:
        async with asyncio.timeout(timeout):
            opened = await known.open_model(provider, model)
            said = await _read_answer(opened)
    except TimeoutError:
        return ModelTrial(f"`{provider}` did not answer within {timeout:g} s; hint: see whether it can be reached from here")
    except errors.CoreError as problem:
        return ModelTrial(problem.message)
    except port.ModelError as trouble:
        return ModelTrial(trouble.message)
    finally:
        await known.close()
    return ModelTrial(said=" ".join(said.split())[:_MAX_ANSWER_CHARS], seconds=time.monotonic() - began)


async def _read_answer(opened: port.Model) -> str:
    request = port.CompletionRequest([engine.Message("user", _TRIAL_PROMPT)])
    pieces = []
    async for part in opened.stream(request):
        if isinstance(part, port.TextPart):
            pieces.append(part.text)
    return "".join(pieces)


POLICIES = {
    "read-only": "it may look at everything, and changes nothing",
    "ask": "it reads by itself, and asks before it writes or runs something",
    "auto": "it also writes files of the workspace by itself, and asks before it runs something",
    "yolo": "it asks nobody about anything",
}
assert tuple(POLICIES) == config.POLICIES, "each profile has its line"
_MAX_NAME_CHARS = 200


class SetupOption(Struct, frozen=True):
    value: str
    note: str = ""


class SetupQuestion(Struct, frozen=True, kw_only=True):
    """One question. `name` is the field of `SetupAnswers` that its answer sets."""

    name: str
    text: str
    options: tuple[SetupOption, ...]
    usual: str | None
    """The answer used for empty input; None when an answer is required."""
    free: bool = False
    """True when answers other than the options are allowed."""


class SetupAnswers(Struct, frozen=True):
    provider: str | None = None
    model: str | None = None
    policy: str | None = None


class InvalidSetupAnswer(ValueError):
    """The input does not answer the question; the message has the reason."""


def get_next_question(found: ProviderCandidates, answers: SetupAnswers, *, policy: str) -> SetupQuestion | None:
    """Returns None when all questions are answered. `policy` is the effective one."""
    if answers.provider is None:
        options = tuple(SetupOption(candidate.name, candidate.why) for candidate in found.candidates)
        keyless = tuple(SetupOption(name, "paste its key, which is stored for you") for name in found.keyless)
        return SetupQuestion(name="provider", text="Choose a model", options=(*options, *keyless), usual=options[0].value)
    candidate = found.get(answers.provider)
    if answers.model is None and answers.provider != "demo" and candidate is not None:
        names = dict.fromkeys([*([candidate.model] if candidate.model else []), *candidate.models])
        options = tuple(SetupOption(name) for name in names)
        text = f"Which model of {answers.provider}?"
        return SetupQuestion(name="model", text=text, options=options, usual=candidate.model, free=True)
    if answers.policy is None:
        options = tuple(SetupOption(name, note) for name, note in POLICIES.items())
        return SetupQuestion(name="policy", text="What may a session do unasked?", options=options, usual=policy)
    return None


def apply_answer(answers: SetupAnswers, question: SetupQuestion, text: str | None) -> SetupAnswers:
    """Applies the answer to a question: an option by name or number, or nothing for the default. Raises `InvalidSetupAnswer`."""
    text = (text or "").strip()
    names = [option.value for option in question.options]
    if not text:
        if question.usual is None:
            raise InvalidSetupAnswer("it needs an answer")
        chosen = question.usual
    elif text in names:
        chosen = text
    elif text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= len(names):
        chosen = names[int(text) - 1]
    elif question.free and text.isprintable() and len(text) <= _MAX_NAME_CHARS:
        chosen = text
    else:
        raise InvalidSetupAnswer(f"it is none of {', '.join(names)}" if names and not question.free else "it is not a name")
    return structs.replace(answers, **{question.name: chosen})


def apply_defaults(found: ProviderCandidates, answers: SetupAnswers, *, policy: str) -> SetupAnswers:
    """Answers all open questions with their defaults. Raises `InvalidSetupAnswer` when one has no default."""
    while (question := get_next_question(found, answers, policy=policy)) is not None:
        try:
            answers = apply_answer(answers, question, None)
        except InvalidSetupAnswer:
            raise InvalidSetupAnswer(f"`{answers.provider}` has no model of its own choice") from None
    return answers


SKIPPED_CONTENT = "# The set-up was skipped; `tower setup` begins it again.\n"


def is_first_start(settings: config.Settings) -> bool:
    """Returns whether the user has neither configured anything nor skipped the setup."""
    return not settings.config_file.exists() and not settings.asked & {"provider", "model"}


def build_model_tables(
    settings: config.Settings, answers: SetupAnswers, candidate: ProviderCandidate | None
) -> Mapping[str, object]:
    """Returns the file's model tables after the change."""
    if candidate is None or candidate.table is None or candidate.name in settings.models:
        return settings.models
    told = {**candidate.table, "model": answers.model} if answers.model else dict(candidate.table)
    return {**settings.models, candidate.name: told}


def write_answers(settings: config.Settings, answers: SetupAnswers, candidate: ProviderCandidate | None) -> Path:
    """Writes the file atomically, readable by the owner only. Raises `ConfigError` or `OSError` and then changes nothing."""
    assert answers.provider is not None and answers.policy is not None, "all was answered"
    provider, policy = answers.provider, answers.policy
    models = build_model_tables(settings, answers, candidate)
    added = None if candidate is None or models is settings.models else candidate.name
    # The file names a model only if the provider would not choose it by default.
    chosen = None if added or candidate is None or answers.model == candidate.chosen_by_itself else answers.model

    def edit(before: str) -> str:
        # The demo is not written to the file, so that a key that is set later takes effect at once.
        pins = provider != providers.DEMO
        after = (
            config_file.set_key(before, "provider", config_file.encode_value(provider))
            if pins
            else config_file.remove_key(before, "provider")
        )
        after = (
            config_file.remove_key(after, "model")
            if chosen is None
            else config_file.set_key(after, "model", config_file.encode_value(chosen))
        )
        after = config_file.set_key(after, "policy", config_file.encode_value(policy))
        return after if added is None else f"{after.rstrip()}\n\n{_format_table(added, models[added])}"

    config_file.change_file(settings.config_file, edit)
    return settings.config_file


def record_skip(settings: config.Settings) -> None:
    """Records that the user skipped the setup. An existing file stays unchanged."""
    if not settings.config_file.exists():
        config_file.change_file(settings.config_file, lambda before: before or SKIPPED_CONTENT)


def _format_table(name: str, values: object) -> str:
    assert isinstance(values, dict)
    lines = [f"{key} = {config_file.encode_value(value)}" for key, value in values.items()]
    return "\n".join([f"[models.{name}]", *lines, ""])
