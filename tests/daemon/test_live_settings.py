"""Settings that change while the daemon runs: what is taken from a changed file, and what is not."""

from pathlib import Path

import pytest

from switchtower import config
from switchtower.settings.live import LiveSettings
from switchtower.settings.sources import ConfigError


def write_config(home: Path, text: str) -> Path:
    """By another file each time, as editors do: its number differs even where the clock does not."""
    fresh = home / "config.toml.new"
    fresh.write_text(text)
    return fresh.replace(home / "config.toml")


@pytest.fixture
def live_settings(tmp_path: Path) -> LiveSettings:
    write_config(tmp_path, 'policy = "ask"\nmax_line_bytes = 70000\n')
    return LiveSettings(config.load({"max_turns": 7}, {"TOWER_HOME": str(tmp_path), "TOWER_MODEL": "m"}))


def test_a_changed_file_counts_below_variables_and_flags(live_settings: LiveSettings, tmp_path: Path) -> None:
    write_config(
        tmp_path,
        'policy = "read-only"\nmax_turns = 9\nmodel = "other"\ntrusted_folders = ["/w"]\n[models.work]\nprovider = "ollama"\n',
    )

    current = live_settings.current

    assert (current.policy, current.max_turns, current.model) == ("read-only", 7, "m")
    assert (current.trusted_folders, dict(current.models)) == (("/w",), {"work": {"provider": "ollama"}})


def test_what_only_a_restart_applies_stays_as_it_was(live_settings: LiveSettings, tmp_path: Path) -> None:
    before = live_settings.current
    write_config(tmp_path, "max_line_bytes = 80000\n")

    assert live_settings.current.max_line_bytes == 70_000
    assert live_settings.current.reload().file_state != before.file_state


@pytest.mark.parametrize("text", ["policy = ", 'policy = "none"', "no_such_setting = 1", "models = 5"])
def test_a_file_with_a_mistake_changes_nothing_until_it_is_corrected(
    live_settings: LiveSettings, tmp_path: Path, text: str
) -> None:
    before = live_settings.current
    write_config(tmp_path, text)
    assert live_settings.current is before

    write_config(tmp_path, 'policy = "auto"\n')
    assert live_settings.current.policy == "auto"


def test_a_part_that_refuses_the_new_settings_keeps_every_part_at_the_old_ones(
    live_settings: LiveSettings, tmp_path: Path
) -> None:
    applied: list[str] = []

    def refuse(fresh: config.Settings) -> None:
        if fresh.policy == "yolo":
            raise ConfigError("rules", "the file", "wrong", hint="none")

    live_settings.on_change(lambda fresh: applied.append(fresh.policy))
    live_settings.on_change(refuse)
    write_config(tmp_path, 'policy = "yolo"\n')

    assert live_settings.current.policy == "ask"
    assert applied == ["yolo", "ask"]
