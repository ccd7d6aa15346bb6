"""The sources of settings: the folders, in one home or in the user's XDG folders, and the configuration file. It only reads,
and creates nothing.
"""

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Folders(NamedTuple):
    config: Path
    data: Path
    run: Path
    logs: Path


def locate(home: Path | None, environ: Mapping[str, str]) -> Folders:
    """Returns the folders of one home; without one, the user's XDG folders and push's own run folder."""
    if home is not None:
        return Folders(config=home, data=home / "data", run=home / "run", logs=home / "logs")
    user = Path(environ.get("HOME") or Path.home())

    def xdg(variable: str, default: str) -> Path:
        named = environ.get(variable, "")
        # The XDG specification: a relative path is invalid and must be ignored.
        return (Path(named) if named.startswith("/") else user / default) / "switchtower"

    return Folders(
        config=xdg("XDG_CONFIG_HOME", ".config"),
        data=xdg("XDG_DATA_HOME", ".local/share"),
        run=user / ".push" / "run",
        logs=xdg("XDG_STATE_HOME", ".local/state"),
    )


TABLES = ("models", "rules")
"""Parts of the file that are not single values: `[models.NAME]` and `[[rules]]`. The packages that use them parse them."""


SECTIONS = ("notify", "telemetry")
"""Tables of the file that only group settings: `webhook` in `[notify]` is the setting `notify_webhook`."""


class ConfigError(Exception):
    """A setting that cannot be used: its name, its source, the problem and the remedy."""

    def __init__(self, setting: str, source: str, problem: str, *, hint: str) -> None:
        super().__init__(setting, source, problem)
        self.setting = setting
        self.source = source
        self.problem = problem
        self.hint = hint

    @property
    def message(self) -> str:
        return f"`{self.setting}` from {self.source}: {self.problem}"

    def __str__(self) -> str:
        return f"{self.message}; hint: {self.hint}"


class Sources(NamedTuple):
    flags: Mapping[str, object]
    environ: Mapping[str, str]


def describe_home_error(problem: OSError, place: object) -> tuple[str, str]:
    """Returns why the home, or another folder that is needed, cannot be used; and a remedy."""
    where = problem.filename if isinstance(problem.filename, str) else place
    reason = problem.strerror or str(problem)
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of `{place}` is full ({reason})", "free some space, or set `TOWER_HOME` to a folder on another disk"
    return f"`{where}` cannot be used: {reason}", "set `TOWER_HOME` to a folder that you may write, or change who owns this one"


def read_config_file(config_file: Path, known: list[str]) -> dict[str, object]:
    try:
        content = config_file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as problem:
        raise ConfigError(
            "config.toml", f"`{config_file}`", problem.strerror or "cannot be read", hint="make the file readable or remove it"
        ) from None

    import tomllib

    try:
        in_file: dict[str, object] = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise ConfigError("config.toml", f"`{config_file}`", f"not valid TOML: {problem}", hint="correct that line") from None

    in_file = _flatten_sections(in_file, config_file)
    for key in in_file:
        if key not in known and key not in TABLES:
            raise ConfigError(key, f"`{config_file}`", "no setting has this name", hint=_suggest_key(key, known))
    return in_file


def _flatten_sections(in_file: dict[str, object], config_file: Path) -> dict[str, object]:
    """Moves the values of the sections to the top level, under their whole names."""
    flat = {key: value for key, value in in_file.items() if key not in SECTIONS}
    for section in SECTIONS:
        held = in_file.get(section, {})
        if not isinstance(held, dict):
            raise ConfigError(section, f"`{config_file}`", "is a single value", hint=f"write it as `[{section}]`")
        for key, value in held.items():
            name = f"{section}_{key}"
            if name in flat:
                raise ConfigError(name, f"`{config_file}`", f"is there twice, also in `[{section}]`", hint="remove one of them")
            flat[name] = value
    return flat


def _suggest_key(key: str, known: list[str]) -> str:
    if key == "home":
        return "set `TOWER_HOME`: the file is found through it"

    from difflib import get_close_matches

    if near := get_close_matches(key.replace("-", "_").lower(), known, n=1):
        return f"did you mean `{near[0]}`?"
    return f"remove it; the settings are {', '.join(known)}"
