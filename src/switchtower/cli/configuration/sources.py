"""Lists every setting with its value and its source. It reads the environment and the file as a start does; changes nothing."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from switchtower import config
from switchtower.settings.parsers import Setting
from switchtower.settings.sources import SECTIONS, TABLES, ConfigError, locate

SECRET_SETTINGS = frozenset({"redaction_extra", "notify_webhook", "store"})
"""Settings that may contain a secret: a redaction pattern, a webhook's address, or a database address with a password."""


class EffectiveSetting(Struct, frozen=True, kw_only=True):
    name: str
    value: Any
    source: str
    """`default`, `file` or `environment`."""
    place: str | None
    """The file, or the variable's name."""
    default: Any


def find_setting(name: str) -> Setting | None:
    return next((setting for setting in config.SETTINGS if setting.name == name), None)


def list_settings(settings: config.Settings, environ: Mapping[str, str] = os.environ) -> list[EffectiveSetting]:
    """Lists all settings with secrets hidden, followed by the tables of the file."""
    from switchtower.core import redact

    in_file = _read_file_names(settings)
    rows = [_describe_setting(setting, settings, in_file, environ) for setting in config.SETTINGS]
    redactor = redact.Redactor()
    tables = [
        EffectiveSetting(
            name=name,
            value=redactor.redact_value(to_plain_value(value)),
            source="file",
            place=str(settings.config_file),
            default=None,
        )
        for name in TABLES
        if (value := getattr(settings, name))
    ]
    return rows + tables


def to_plain_value(value: Any) -> Any:
    """Converts a setting's value to a JSON value."""
    if isinstance(value, os.PathLike):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def format_value(value: Any) -> str:
    """Formats the value on one line, in the variable's syntax."""
    match to_plain_value(value):
        case None:
            return ""
        case bool() as switch:
            return "true" if switch else "false"
        case list() as names if all(isinstance(name, str) for name in names):
            return ",".join(names)
        case float() as number:
            return f"{number:.15g}"
        case str() as text:
            return text
        case table:
            import msgspec

            return msgspec.json.encode(table).decode()


def find_variable(setting: Setting, environ: Mapping[str, str] = os.environ) -> str | None:
    """Returns the variable that sets the value, if there is one."""
    return next((variable for variable in setting.variables if environ.get(variable)), None)


def _describe_setting(
    setting: Setting, settings: config.Settings, in_file: frozenset[str], environ: Mapping[str, str]
) -> EffectiveSetting:
    from switchtower.core import redact

    value = to_plain_value(getattr(settings, setting.name))
    if setting.name in SECRET_SETTINGS and value:
        value = [redact.MARK] * len(value) if isinstance(value, list) else redact.MARK
    source, place = "default", None
    if (variable := find_variable(setting, environ)) is not None:
        source, place = "environment", variable
    elif setting.name in in_file:
        source, place = "file", str(settings.config_file)
    redacted = redact.Redactor().redact_value({setting.name: value})[setting.name]
    return EffectiveSetting(
        name=setting.name, value=redacted, source=source, place=place, default=to_plain_value(setting.default)
    )


def _read_file_names(settings: config.Settings) -> frozenset[str]:
    """Returns the names that have a value in the file. The file was read a moment ago, so it is valid."""
    import tomllib

    try:
        in_file = tomllib.loads(settings.config_file.read_bytes().decode())
    except (OSError, ValueError):
        return frozenset()
    grouped = (f"{section}_{key}" for section in SECTIONS for key in in_file.get(section, ()))
    return frozenset((*in_file, *grouped))


def locate_config_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the file's path, which is known even when its content is invalid."""
    home = find_setting("home")
    assert home is not None
    named = next((value for variable in home.variables if (value := environ.get(variable))), None)
    try:
        folders = locate(home.parse(named) if named else None, environ)
    except ValueError as problem:
        raise ConfigError("home", f"the variable `{home.variables[0]}`", str(problem), hint=home.remedy) from None
    return folders.config / "config.toml"
