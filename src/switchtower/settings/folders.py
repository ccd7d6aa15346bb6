"""Where things are kept: in one home, or in the user's XDG folders. Looks and names, creates nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Folders(NamedTuple):
    config: Path
    data: Path
    run: Path
    logs: Path


def locate(home: Path | None, environ: Mapping[str, str]) -> Folders:
    """The folders of one home; without one, the user's XDG folders and push's own run folder."""
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
