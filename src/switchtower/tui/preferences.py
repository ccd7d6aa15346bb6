"""The two themes, and the state that the terminal UI keeps between two starts: sent messages and the chosen theme.

The state is in small files that only the owner can read. Losing them costs nothing, so a failure is never an error.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from textual.theme import Theme

from switchtower import config
from switchtower.tui.state.input import MOST_ENTRIES

DARK = Theme(
    name="tower-dark",
    primary="#58a6ff",
    secondary="#388bfd",
    accent="#7cc4ff",
    warning="#e3b341",
    error="#ff7b72",
    success="#56d364",
    foreground="#e6edf3",
    background="#0d1117",
    surface="#161b22",
    panel="#21262d",
    dark=True,
    variables={"muted": "#8b949e"},
)
LIGHT = Theme(
    name="tower-light",
    primary="#0969da",
    secondary="#218bff",
    accent="#0550ae",
    warning="#9a6700",
    error="#cf222e",
    success="#1a7f37",
    foreground="#1f2328",
    background="#ffffff",
    surface="#f6f8fa",
    panel="#eaeef2",
    dark=False,
    variables={"muted": "#59636e"},
)
NAMES = (DARK.name, LIGHT.name)
_LIGHT_BACKGROUNDS = frozenset({"7", "15"})


def guess_theme(environ: Mapping[str, str]) -> str:
    """Guesses the theme: some terminals report their background colour, and most of the others are dark."""
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT.name if background in _LIGHT_BACKGROUNDS else DARK.name


_LARGEST = 4 * 1_048_576


def _get_folder(settings: config.Settings) -> Path:
    return settings.data_dir / "tui"


def load_history(settings: config.Settings) -> list[str]:
    """Returns the sent messages, oldest first."""
    try:
        with (_get_folder(settings) / "history.jsonl").open("rb") as file:
            lines = file.read(_LARGEST).splitlines()
    except OSError:
        return []
    texts = []
    for line in lines:
        with suppress(msgspec.MsgspecError):
            texts.append(msgspec.json.decode(line, type=str))
    return texts[-MOST_ENTRIES:]


def save_history(settings: config.Settings, texts: list[str]) -> None:
    encoder = msgspec.json.Encoder()
    _write_whole(_get_folder(settings) / "history.jsonl", b"".join(_encode_text(encoder, text) for text in texts[-MOST_ENTRIES:]))


def _encode_text(encoder: msgspec.json.Encoder, text: str) -> bytes:
    try:
        return encoder.encode(text) + b"\n"
    except UnicodeEncodeError:  # a lone surrogate, which JSON cannot encode
        return b""


def load_theme(settings: config.Settings) -> str | None:
    try:
        return (_get_folder(settings) / "theme").read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def save_theme(settings: config.Settings, name: str) -> None:
    _write_whole(_get_folder(settings) / "theme", name.encode())


def _write_whole(path: Path, content: bytes) -> None:
    """Writes the file atomically."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        beside.replace(path)
