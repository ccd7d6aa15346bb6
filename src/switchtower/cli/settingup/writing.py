"""The answers as lines of the configuration file: everything else in it stays as people wrote it.

Where a daemon could not start with the outcome, nothing is written.
"""

from collections.abc import Mapping
from pathlib import Path

from switchtower import config
from switchtower.cli.configuring import changing
from switchtower.cli.configuring import text as texts
from switchtower.cli.settingup.asking import SetupAnswers
from switchtower.cli.settingup.found import ProviderCandidate
from switchtower.models import providers

SKIPPED_CONTENT = "# The set-up was skipped; `tower setup` begins it again.\n"


def is_first_start(settings: config.Settings) -> bool:
    """Nobody has configured anything, nor skipped it."""
    return not settings.config_file.exists() and not settings.asked & {"provider", "model"}


def build_model_tables(
    settings: config.Settings, answers: SetupAnswers, candidate: ProviderCandidate | None
) -> Mapping[str, object]:
    """The models of the file as they will be."""
    if candidate is None or candidate.table is None or candidate.name in settings.models:
        return settings.models
    told = {**candidate.table, "model": answers.model} if answers.model else dict(candidate.table)
    return {**settings.models, candidate.name: told}


def write_answers(settings: config.Settings, answers: SetupAnswers, candidate: ProviderCandidate | None) -> Path:
    """For the owner alone, whole or not at all. Raises `ConfigError` or `OSError`; then nothing is changed."""
    assert answers.provider is not None and answers.policy is not None, "all was answered"
    provider, policy = answers.provider, answers.policy
    models = build_model_tables(settings, answers, candidate)
    added = None if candidate is None or models is settings.models else candidate.name
    # The file names a model only where the provider would not choose it by itself.
    chosen = None if added or candidate is None or answers.model == candidate.chosen_by_itself else answers.model

    def edit(before: str) -> str:
        # The demo pins nothing: a key that is set later counts at once.
        pins = provider != providers.DEMO
        after = texts.set_key(before, "provider", texts.encode_value(provider)) if pins else texts.remove_key(before, "provider")
        after = texts.remove_key(after, "model") if chosen is None else texts.set_key(after, "model", texts.encode_value(chosen))
        after = texts.set_key(after, "policy", texts.encode_value(policy))
        return after if added is None else f"{after.rstrip()}\n\n{_format_table(added, models[added])}"

    changing.change_file(settings.config_file, edit)
    return settings.config_file


def record_skip(settings: config.Settings) -> None:
    """Remembers that nobody wants to be asked. A file that is there stays as it is."""
    if not settings.config_file.exists():
        changing.change_file(settings.config_file, lambda before: before or SKIPPED_CONTENT)


def _format_table(name: str, values: object) -> str:
    assert isinstance(values, dict)
    lines = [f"{key} = {texts.encode_value(value)}" for key, value in values.items()]
    return "\n".join([f"[models.{name}]", *lines, ""])
