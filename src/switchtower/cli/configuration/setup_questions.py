"""The questions of the setup as data, and the conversion of their answers to lines of the configuration file.

The front end asks the questions. Everything else in the file stays unchanged, and nothing is written if a daemon could not start
with the result.
"""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, structs

from switchtower import config
from switchtower.cli.configuration import config_file
from switchtower.cli.configuration import toml_text as texts
from switchtower.cli.configuration.setup_candidates import ProviderCandidate, ProviderCandidates
from switchtower.models import providers

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
        after = texts.set_key(before, "provider", texts.encode_value(provider)) if pins else texts.remove_key(before, "provider")
        after = texts.remove_key(after, "model") if chosen is None else texts.set_key(after, "model", texts.encode_value(chosen))
        after = texts.set_key(after, "policy", texts.encode_value(policy))
        return after if added is None else f"{after.rstrip()}\n\n{_format_table(added, models[added])}"

    config_file.change_file(settings.config_file, edit)
    return settings.config_file


def record_skip(settings: config.Settings) -> None:
    """Records that the user skipped the setup. An existing file stays unchanged."""
    if not settings.config_file.exists():
        config_file.change_file(settings.config_file, lambda before: before or SKIPPED_CONTENT)


def _format_table(name: str, values: object) -> str:
    assert isinstance(values, dict)
    lines = [f"{key} = {texts.encode_value(value)}" for key, value in values.items()]
    return "\n".join([f"[models.{name}]", *lines, ""])
