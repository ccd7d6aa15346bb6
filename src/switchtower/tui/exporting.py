"""A session written to a file, by the command that does it: what it looks like is decided in one place."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from switchtower import config
from switchtower.client import discover, errors
from switchtower.tui.state import slash

_SUFFIXES = {"markdown": ".md", "html": ".html", "jsonl": ".jsonl"}
_TIMEOUT_S = 300.0


def parse_export_request(text: str) -> tuple[str, str]:
    """The form and the file, as far as they were named; a form alone, a file alone, or both."""
    first, _, rest = text.strip().partition(" ")
    if first in slash.FORMATS:
        return first, rest.strip()
    by_suffix = {suffix: form for form, suffix in _SUFFIXES.items()}
    return by_suffix.get(Path(text).suffix.lower(), slash.FORMATS[0]), text.strip()


def find_free_path(root: str, session_id: str, form: str) -> Path:
    """In the folder, and nobody's yet."""
    stem, suffix = f"session-{session_id[-6:].lower()}", _SUFFIXES[form]
    names = (f"{stem}{f'-{number}' if number else ''}{suffix}" for number in range(1_000))
    return next(path for path in (Path(root, name) for name in names) if not path.exists())


def _resolve_export_path(root: str, named: str) -> Path:
    """A file that is named from somewhere else is there."""
    return Path(root, Path(named).expanduser())


async def export_session(settings: config.Settings, session_id: str, text: str, *, root: str) -> Path:
    """Raises `ClientError` with what the command said."""
    form, named = parse_export_request(text)
    path = _resolve_export_path(root, named) if named else find_free_path(root, session_id, form)
    command = [sys.executable, "-P", "-m", "switchtower", "export", session_id, "--format", form, "-o", str(path)]
    home = {} if settings.home is None else {"TOWER_HOME": str(settings.home)}
    environment = {**os.environ, **home, "TOWER_SOCKET": str(discover.locate_socket(settings)), "NO_COLOR": "1"}

    def export() -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S)  # noqa: S603

    try:
        ended = await asyncio.to_thread(export)
    except (OSError, subprocess.TimeoutExpired, ValueError) as problem:
        raise errors.ClientError(f"the session was not exported: {problem}", hint=f"try `tower export {session_id}`") from None
    if ended.returncode:
        said = ended.stderr.decode(errors="replace").strip().removeprefix("tower: ")
        raise errors.ClientError(said[-1_000:] or f"the export ended with {ended.returncode}")
    return path
