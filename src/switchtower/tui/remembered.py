"""What the terminal UI keeps between two starts: what was sent, and the chosen look. Small files, for the owner alone.

Losing them costs nothing, so trouble with them is never an error.
"""

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from switchtower import config
from switchtower.tui.state.history import MOST_ENTRIES

_LARGEST = 4 * 1_048_576


def _get_folder(settings: config.Settings) -> Path:
    return settings.data_dir / "tui"


def load_history(settings: config.Settings) -> list[str]:
    """The oldest first."""
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
    except UnicodeEncodeError:  # half of a pair, which JSON cannot say
        return b""


def load_theme(settings: config.Settings) -> str | None:
    try:
        return (_get_folder(settings) / "theme").read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def save_theme(settings: config.Settings, name: str) -> None:
    _write_whole(_get_folder(settings) / "theme", name.encode())


def _write_whole(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        beside.replace(path)
